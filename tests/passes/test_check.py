from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from anyrnn import cells
from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import Node
from anyrnn.passes.check import check_phase, check_program
from anyrnn.passes.compile import Plan, plan
from anyrnn.passes.plan import Buffer, GradientProduct, GradientSum, Kernel, Program, Stage
from tests.zoo import EVERY

PROGRAMS = ("inference", "training", "backward")
HIDDEN, INPUT = Dim.of("hidden"), Dim.of("input")


def planned(name: str, bias: bool = True) -> Plan:
    return plan(cells.load(name).trace(bias=bias))


@pytest.mark.parametrize("which", PROGRAMS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", EVERY)
def test_the_programs_of_all_cells_are_legal(name: str, bias: bool, which: str) -> None:
    made = planned(name, bias)
    check_phase(made.phase)
    check_program(getattr(made, which), f"{name} {which}")


# Every rule, broken, on a small program: h' = p * h + W·x by way of u, in two stages.


def vector(buffer: str, later: int = 0, dim: Dim = HIDDEN) -> Node:
    return Node("load", (), (dim,), (buffer, later), True, buffer)


def scalar(buffer: str) -> Node:
    return Node("load", (), (), (buffer, 0))


WEIGHT = Node("parameter", (), (HIDDEN, HIDDEN), ("W",), False)
PRODUCT = Node("affine", (0, 1), (HIDDEN,), ((False, 1),))
SUM = Node("sum", (0,), ())
DOUBLE = Node("add", (0, 0), (HIDDEN,))

FIRST = Kernel("first", HIDDEN, (WEIGHT, vector("h"), PRODUCT), ((2, "u", 0),))
TOTAL = Kernel("total", None, (vector("u"), SUM), ((1, "s", 0),))
SECOND = Kernel("second", HIDDEN, (vector("u"), scalar("s"), Node("mul", (0, 1), (HIDDEN,))), ((2, "h", 1), (2, "y", 0)))
BUFFERS = (
    Buffer("x", "stream", INPUT),
    Buffer("h", "state", HIDDEN),
    Buffer("y", "output", HIDDEN),
    Buffer("u", "cross", HIDDEN),
    Buffer("s", "cross", None),
    Buffer("n", "chunk", None),
)
GOOD = Program(False, BUFFERS, ("h",), (), None, (Stage((FIRST,)), Stage((TOTAL, SECOND))), None, ())


def with_kernels(*stages: tuple[Kernel, ...], program: Program = GOOD) -> Program:
    return replace(program, body=tuple(Stage(kernels) for kernels in stages))


def with_first(nodes: tuple[Node, ...], *stores: tuple[int, str, int]) -> Program:
    return with_kernels((replace(FIRST, nodes=nodes, stores=stores),), (TOTAL, SECOND))


def with_total(nodes: tuple[Node, ...], *stores: tuple[int, str, int]) -> Program:
    return with_kernels((FIRST,), (replace(TOTAL, nodes=nodes, stores=stores), SECOND))


def with_buffers(**changes: Buffer) -> Program:
    return replace(GOOD, buffers=tuple(changes.get(b.name, b) for b in BUFFERS))


def test_the_small_program_is_legal() -> None:
    check_program(GOOD)


ACROSS = Kernel("across", INPUT, (replace(WEIGHT, shape=(INPUT, HIDDEN)), vector("u"), replace(PRODUCT, shape=(INPUT,))), ())
BROKEN: dict[str, tuple[Callable[[], Program], str]] = {
    "a buffer twice": (lambda: replace(GOOD, buffers=(*BUFFERS, BUFFERS[0])), "calls two buffers the same"),
    "an unknown role": (lambda: with_buffers(u=Buffer("u", "drawer", HIDDEN)), "buffer 'u' has the unknown role 'drawer'"),
    "a state without a buffer": (lambda: replace(GOOD, states=("h", "c")), "'c' is no buffer of a state"),
    "a state in another buffer": (lambda: replace(GOOD, states=("h", "u")), "'u' is no buffer of a state"),
    "an entry without an exit": (lambda: replace(GOOD, entry=GOOD.body[0]), "has an entry without an exit"),
    "two kernels of one size": (lambda: with_kernels((FIRST, FIRST), (TOTAL, SECOND)), "a stage with two kernels of one size"),
    "scalars that come late": (lambda: with_kernels((FIRST,), (SECOND, TOTAL)), "a stage in which scalars are not made first"),
    "an illegal node": (
        lambda: with_first((WEIGHT, vector("h"), replace(PRODUCT, shape=(INPUT,))), (2, "u", 0)),
        "a product in it",
    ),
    "a leaf of a graph": (
        lambda: with_first((Node("input", (), (HIDDEN,), ("x",)), DOUBLE), (1, "u", 0)),
        r"kernel first: node 0 \(input\) is no leaf of a kernel",
    ),
    "a load of nothing": (lambda: with_first((vector("v"), DOUBLE), (1, "u", 0)), "loads 'v', which is no buffer"),
    "a load of another size": (
        lambda: with_first((vector("x"), DOUBLE), (1, "u", 0)),
        r"loads \[hidden\] from 'x' \[input\]",
    ),
    "a load of a scalar as a vector": (lambda: with_first((vector("s"), DOUBLE), (1, "u", 0)), r"loads \[hidden\] from 's' \[\]"),
    "a product among scalars": (
        lambda: with_total((WEIGHT, vector("u"), PRODUCT, Node("sum", (2,), ())), (3, "s", 0)),
        "is a product among scalars",
    ),
    "a product of what was just computed": (
        lambda: with_first((WEIGHT, vector("h"), Node("neg", (1,), (HIDDEN,)), replace(PRODUCT, inputs=(0, 2))), (3, "u", 0)),
        "multiplies what does not stand in memory",
    ),
    "a vector among scalars": (
        lambda: with_total((vector("u"), SUM, DOUBLE), (1, "s", 0)),
        r"node 2 \(add\) is a vector \[hidden\] among scalars",
    ),
    "a scalar among columns": (
        lambda: with_first((vector("h"), SUM, Node("mul", (0, 1), (HIDDEN,))), (2, "u", 0)),
        r"node 1 \(sum\) makes a scalar among columns",
    ),
    "columns of two sizes": (
        lambda: with_first((vector("x", 0, INPUT), Node("neg", (0,), (INPUT,)), vector("h")), (2, "u", 0)),
        r"has shape \[input\] among columns of hidden",
    ),
    "a store to nothing": (lambda: with_first((vector("h"), DOUBLE), (1, "v", 0)), "stores to 'v', which is no buffer"),
    "a store to what is given": (
        lambda: replace(with_first((vector("h"), DOUBLE), (1, "x", 0)), buffers=(Buffer("x", "stream", HIDDEN), *BUFFERS[1:])),
        "is stored to 'x', which is only read",
    ),
    "a store to what was saved": (
        lambda: replace(with_buffers(u=Buffer("u", "saved", HIDDEN)), reverse=True),
        "is stored to 'u', which is only read",
    ),
    "a store of another size": (
        lambda: with_first((vector("h"), DOUBLE), (1, "s", 0)),
        r"of shape \[hidden\] is stored to 's' \[\]",
    ),
    "a store of a parameter": (
        lambda: with_first((Node("parameter", (), (HIDDEN,), ("p",), False),), (0, "u", 0)),
        "is stored to 'u' and is no number of each sample",
    ),
    "a store of a truth value": (
        lambda: with_first((vector("h"), Node("less", (0, 0), (HIDDEN,))), (1, "u", 0)),
        "is stored to 'u' and is no number of each sample",
    ),
    "a read of what nobody made": (
        lambda: with_first((vector("h"), DOUBLE), (1, "y", 0)),
        "kernel total reads 'u' at 0, which nothing has written",
    ),
    "a read of the step to come": (
        lambda: with_first((WEIGHT, vector("h", 1), PRODUCT), (2, "u", 0)),
        "kernel first reads 'h' at 1, which nothing has written",
    ),
    "a read of another kernel in a stage": (
        lambda: with_kernels((FIRST, ACROSS), (TOTAL, SECOND)),
        "kernel across: node 1 .* loads 'u' that another kernel of its stage makes",
    ),
    "a state that is never made": (
        lambda: with_kernels((FIRST,), (TOTAL, replace(SECOND, stores=((2, "y", 0),)))),
        "kernel first reads 'h' at 1, which nothing has written",
    ),
    "a last state that is never made": (
        lambda: with_kernels((replace(FIRST, nodes=(vector("x", 0, INPUT),), dim=INPUT, stores=()),)),
        "never makes the last 'h'",
    ),
    "an output that is never made": (
        lambda: with_kernels((FIRST,), (TOTAL, replace(SECOND, stores=((2, "h", 1),)))),
        r"never makes 'y' of step \[0\]",
    ),
    "a saved value that is never made": (
        lambda: replace(GOOD, buffers=(*BUFFERS, Buffer("kept", "saved", HIDDEN))),
        r"never makes 'kept' of step \[0\]",
    ),
    "a sum of numbers": (lambda: with_buffers(s=Buffer("s", "sum", None)), "adds up 's', one number a sample, which several"),
    "a sum that is read": (lambda: with_buffers(u=Buffer("u", "sum", HIDDEN)), "loads 'u', which is added up over steps"),
    "a sum that is added to twice": (
        lambda: replace(
            with_first((WEIGHT, vector("h"), PRODUCT), (2, "u", 0), (2, "t", 0), (1, "t", 0)),
            buffers=(*BUFFERS, Buffer("t", "sum", HIDDEN)),
        ),
        "adds to 't' 2 times a step",
    ),
    "a sum that is made outside the steps": (
        lambda: replace(
            with_first((WEIGHT, vector("h"), PRODUCT), (2, "u", 0), (2, "t", 0)),
            buffers=(*BUFFERS, Buffer("t", "sum", HIDDEN)),
            after=(Stage((replace(ACROSS, stores=((2, "t", 0),)),)),),
        ),
        "adds to 't' outside the steps",
    ),
    "a gradient of nothing": (
        lambda: replace(GOOD, sums=(GradientSum("W", ("v", 0)),)),
        "a gradient reads 'v', which is no buffer",
    ),
    "a gradient of a scalar": (
        lambda: replace(GOOD, products=(GradientProduct("W", ("h", 0), ("s", 0), 1),)),
        "the gradient of 'W' is a product of what is no vector",
    ),
    "a gradient of what nobody made": (
        lambda: replace(GOOD, sums=(GradientSum("W", ("n", 0)),)),
        "gradients reads 'n' at 0, which nothing has written",
    ),
    "a gradient of what is made after the chunk": (
        lambda: replace(GOOD, sums=(GradientSum("W", ("h", 2)),)),
        "gradients reads 'h' at 3, which nothing has written",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_every_rule_for_programs(case: str) -> None:
    break_it, message = BROKEN[case]
    with pytest.raises(AssertionError, match=message):
        check_program(break_it())


def test_a_product_may_not_read_what_its_own_stage_makes() -> None:
    """Nothing but a barrier says that the other threads' features are there."""
    lower = Kernel("lower", HIDDEN, (WEIGHT, vector("h", 1), PRODUCT), ((1, "y", 0), (2, "h", 1)))
    program = replace(with_kernels((lower,)), reverse=True)
    with pytest.raises(AssertionError, match="kernel lower: needs all features of 'h' at 5 in the stage that makes them"):
        check_program(program)


def test_a_rotated_loop_may_not_leave_the_end_of_a_chunk_undone() -> None:
    """What the last stage of a step makes is there only when the next step has begun: too late for what ends the chunk."""
    total = replace(TOTAL, nodes=(vector("u", -1), SUM), stores=((1, "s", -1),))
    second = (vector("u", -1), replace(scalar("s"), attributes=("s", -1)), SECOND.nodes[2])
    tail = Stage((total, replace(SECOND, nodes=second, stores=((2, "h", 0), (2, "y", -1)))))
    head = Stage((FIRST,))
    program = replace(GOOD, entry=Stage(()), body=(tail, head), exit=tail)
    check_program(program)
    with pytest.raises(AssertionError, match="reads 'y' at 1, which nothing has written"):
        check_program(replace(program, sums=(GradientSum("W", ("y", 0)),)))


def test_every_rule_for_the_parameter_phase() -> None:
    phase = planned("lstm").phase
    check_phase(phase)
    weight = phase.weights[0]
    with pytest.raises(AssertionError, match=r"calls two weights \['weight_ih\[0\]'\]"):
        check_phase(replace(phase, weights=(weight, *phase.weights)))
    with pytest.raises(AssertionError, match="is not the weight"):
        check_phase(replace(phase, weights=(replace(weight, shape=()),)))
