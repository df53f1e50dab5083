"""The op table is complete: every row says everything, and says it rightly."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
import pytest

from anyrnn import cells
from anyrnn.backends.llvm import target
from anyrnn.backends.llvm.run import write_code
from anyrnn.backends.llvm.spelling import SPELLINGS, unsupported
from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import Builder, Graph, Node
from anyrnn.ir.interpret import Interpreter
from anyrnn.ir.ops import ELEMENTWISE, TABLE, Op, same_value
from anyrnn.passes.compile import plan
from anyrnn.passes.options import with_input_dropout
from anyrnn.trace import State, Vec, cell
from anyrnn.trace.language import apply, clip_gradient, norm, stop_gradient, where

HIDDEN = Dim.of("hidden")
SIZES = {"hidden": 6}
KINDS = {"leaf", "elementwise", "reduction", "linear", "structure"}
POSITIVE = {"sqrt", "log"}
SAME_VALUE = {"stop_gradient", "clip_gradient"}
RANDOM = {"choose"}
"""Its meaning is not a function of its inputs alone: the interpreter itself draws."""
DIFFERENTIABLE = [op for op in ELEMENTWISE if not op.boolean and op.name not in (*RANDOM, *SAME_VALUE, "norm")]

every_op = pytest.mark.parametrize("op", TABLE.values(), ids=TABLE)


@every_op
def test_every_row_says_what_it_must(op: Op) -> None:
    assert TABLE[op.name] is op
    assert op.kind in KINDS
    assert op.latex
    fields = {field for _, field, _, _ in string.Formatter().parse(op.latex) if field}
    assert fields <= ({"name"} if op.kind == "leaf" else {str(k) for k in range(op.arity or 1)})
    if op.kind == "leaf":
        assert op.arity == 0
        assert op.doc
        return
    if op.kind in ("elementwise", "reduction"):
        assert op.derivative is not None
        assert op.meaning is not None or op.name in RANDOM
    else:
        assert op.doc
        assert hasattr(Interpreter, f"_{op.name}")


@pytest.mark.parametrize("op", [op for op in ELEMENTWISE if op.name not in (*RANDOM, "norm")], ids=lambda op: op.name)
def test_what_has_no_gradient_jumps_or_is_stopped(op: Op) -> None:
    builder = Builder()
    inputs = [builder.leaf("input", f"x{k}", (HIDDEN,)) for k in range(op.arity or 0)]
    arguments: list[Any] = [inputs[0] < 0.1, *inputs[1:]] if op.name == "where" else list(inputs)
    assert op.derivative is not None
    gradients = op.derivative(builder.leaf("cotangent", "y", (HIDDEN,)), builder.apply(op.name, *arguments), *arguments)
    assert all(g is None for g in gradients) == (op.jumps or op.name == "stop_gradient")


def evaluate(builder: Builder, leaves: dict[int, Any], root: int) -> Any:
    return Interpreter(np, np.asarray, SIZES).run(builder.nodes, dict(leaves), [root])[root]


def points(op: str, count: int) -> list[Any]:
    """Inputs [3, 6], away from where the op has a corner."""
    random = np.random.default_rng(sum(map(ord, op)))
    magnitudes = random.uniform(0.2, 1.8, (count, 3, 6))
    signs = 1.0 if op in POSITIVE else random.choice([-1.0, 1.0], magnitudes.shape)
    values = magnitudes * signs
    if op == "floor":
        values = np.floor(values * 3) + 0.5
    return list(values)


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
def test_derivatives_match_differences(op: Op) -> None:
    builder = Builder()
    values = points(op.name, op.arity or 0)
    inputs = [builder.leaf("input", f"x{k}", (HIDDEN,)) for k in range(len(values))]
    arguments: list[Any] = [inputs[0] < 0.1, *inputs[1:]] if op.name == "where" else list(inputs)
    y = builder.apply(op.name, *arguments)
    g = builder.leaf("cotangent", "y", (HIDDEN,))
    cotangent = np.random.default_rng(1).normal(size=(3, 6))
    leaves = {s.index: value for s, value in zip(inputs, values, strict=True)}
    assert op.derivative is not None
    gradients = op.derivative(g, y, *arguments)
    assert len(gradients) == op.arity
    step = 1e-6
    for k, gradient in enumerate(gradients):
        if op.name == "where" and k == 0:
            assert gradient is None
            continue
        moved = [{**leaves, inputs[k].index: values[k] + sign * step} for sign in (1, -1)]
        above, below = (evaluate(builder, m, y.index) for m in moved)
        difference = cotangent * (above - below) / (2 * step)
        found = (
            np.zeros_like(difference) if gradient is None else evaluate(builder, {**leaves, g.index: cotangent}, gradient.index)
        )
        np.testing.assert_allclose(np.broadcast_to(found, difference.shape), difference, rtol=1e-6, atol=1e-8)


def test_values_whose_gradients_are_not_their_own() -> None:
    builder = Builder()
    x, g = builder.leaf("input", "x", (HIDDEN,)), builder.leaf("cotangent", "y", (HIDDEN,))
    values, cotangent = np.arange(6.0)[None], np.array([[-2.0, -0.5, 0.0, 0.25, 0.5, np.nan]])
    leaves = {x.index: values, g.index: cotangent}
    stopped, clipped = stop_gradient(x), clip_gradient(x, -0.5, 0.25)
    for y in (stopped, clipped):
        node = builder.nodes[y.index]
        assert same_value(node.op, node.inputs) == x.index
        assert (evaluate(builder, leaves, y.index) == values).all()
    assert TABLE["stop_gradient"].derivative(g, stopped, x) == (None,)
    operands = [builder.symbol(i) for i in builder.nodes[clipped.index].inputs]
    found, *others = TABLE["clip_gradient"].derivative(g, clipped, *operands)
    assert others == [None, None]
    np.testing.assert_array_equal(evaluate(builder, leaves, found.index), [[-0.5, -0.5, 0.0, 0.25, 0.25, np.nan]])
    crossed = apply("clip_gradient", x, 1.0, -1.0)
    operands = [builder.symbol(i) for i in builder.nodes[crossed.index].inputs]
    found, *_ = TABLE["clip_gradient"].derivative(g, crossed, *operands)
    np.testing.assert_array_equal(evaluate(builder, leaves, found.index), cotangent.clip(1.0, -1.0))


def test_the_derivative_of_a_normalisation() -> None:
    builder = Builder()
    v = builder.leaf("input", "v", (HIDDEN,))
    y = norm(v)
    g = builder.leaf("cotangent", "y", (HIDDEN,))
    node = builder.nodes[y.index]
    rule = TABLE["norm"].derivative
    assert rule is not None
    _, gradient, _ = rule(g, y, *(builder.symbol(i) for i in node.inputs))
    random = np.random.default_rng(2)
    value, cotangent, step = random.normal(size=(3, 6)), random.normal(size=(3, 6)), 1e-6
    found = evaluate(builder, {v.index: value, g.index: cotangent}, gradient.index)
    for feature in range(6):
        move = np.zeros(6)
        move[feature] = step
        above, below = (evaluate(builder, {v.index: value + sign * move}, y.index) for sign in (1, -1))
        difference = (cotangent * (above - below) / (2 * step)).sum(-1)
        np.testing.assert_allclose(found[:, feature], difference, rtol=1e-6, atol=1e-8)


def test_the_derivative_of_a_sum() -> None:
    builder = Builder()
    g = builder.leaf("cotangent", "y")
    v = builder.leaf("input", "v", (HIDDEN,))
    rule = TABLE["sum"].derivative
    assert rule is not None
    assert [s.index for s in rule(g, builder.apply("sum", v), v)] == [g.index]


@pytest.mark.parametrize("op", [op for op in ELEMENTWISE if op.boolean], ids=lambda op: op.name)
def test_comparisons_have_no_derivative(op: Op) -> None:
    builder = Builder()
    a, b = (builder.leaf("input", name, (HIDDEN,)) for name in "ab")
    assert op.derivative is not None
    assert op.derivative(None, builder.apply(op.name, a, b), a, b) == (None, None)


def cell_of(op: Op) -> Graph:
    """A cell that is little more than one op."""
    if op.name == "choose":
        return with_input_dropout(cells.rnn_tanh.trace(), "between_layers")

    def one(x: Any, h: Any) -> Any:
        arguments = [x < h if op.name == "where" else h, x, x * h][: op.arity]
        value = norm(h) if op.name == "norm" else apply(op.name, *arguments)
        return (where(value, x, h) if op.boolean else value), State(h=h + x)

    one.__annotations__ = {"x": Vec("hidden")}
    graph: Graph = cell(one, name=f"one_{op.name}").trace()
    assert any(n.op == op.name for n in graph.nodes)
    return graph


def test_llvm_spells_every_op() -> None:
    assert {op.name for op in ELEMENTWISE} - {"choose"} == {*SPELLINGS} - {"fill"}


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_llvm_renders_every_op_or_declines_it_by_name(op: Op) -> None:
    made = plan(cell_of(op))
    reasons = {unsupported(k.nodes) for stage in (*made.inference.before, *made.inference.body) for k in stage.kernels} - {None}
    if reasons:
        assert reasons == {f"the op {op.name}"}
        return
    code = write_code(made, "inference", "float32")
    target.parse(code.text)


def test_llvm_declines_an_op_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(SPELLINGS, "floor")
    assert unsupported([Node("floor", (0,), (HIDDEN,))]) == "the op floor"


def test_sizes_are_written_as_fractions() -> None:
    hidden = Dim.of("hidden")
    assert str(hidden * 2 / 3 + 1) == "2*hidden/3 + 1"
    assert str(hidden / 4) == "hidden/4"
    assert str(hidden / 4 * -1 - 2) == "-hidden/4 - 2"
