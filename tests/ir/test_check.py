from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from anyrnn import cells
from anyrnn.ir.check import check_adjoint, check_graph, check_nodes
from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import Graph, Node
from anyrnn.passes.adjoint import adjoint, phase_adjoint
from anyrnn.passes.compile import plan
from anyrnn.passes.simplify import simplify
from tests.zoo import EVERY

HIDDEN, INPUT, TWO = (Dim.of("hidden"),), (Dim.of("input"),), (Dim.of("hidden") * 2,)
MATRIX = (*HIDDEN, *HIDDEN)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("bias", [True, False])
def test_the_graphs_of_all_cells_are_legal_after_every_pass(name: str, bias: bool) -> None:
    traced = cells.load(name).trace(bias=bias)
    check_graph(traced)
    simplified = simplify(traced)
    check_graph(simplified)
    check_adjoint(adjoint(simplified))
    made = plan(traced)
    check_nodes(made.phase.nodes)
    check_nodes(phase_adjoint(simplified, made.phase.weights).nodes)


# Every rule, broken.


def vector(name: str = "x", shape: tuple[Dim, ...] = HIDDEN) -> Node:
    return Node("input", (), shape, (name,), True, name)


def parameter(name: str = "p", shape: tuple[Dim, ...] = HIDDEN) -> Node:
    return Node("parameter", (), shape, (name,), False, name)


SCALAR = Node("state", (), (), ("s",))
SUM = Node("sum", (0,), ())

BROKEN_NODES: dict[str, tuple[list[Node], str]] = {
    "an unknown op": ([Node("twist")], "is not in the op table"),
    "arity": ([vector(), Node("add", (0,), HIDDEN)], r"node 1 \(add\) has 1 inputs; add has 2"),
    "order": ([Node("neg", (1,), HIDDEN), vector()], "reads node 1, which does not come before it"),
    "an input that is not there": ([Node("neg", (-1,), HIDDEN)], "reads node -1, which does not come before it"),
    "two nodes that are one": ([vector(), vector()], "is the same as node 0"),
    "a matrix of each sample": ([vector(shape=MATRIX)], "and matrices are for parameters"),
    "three axes": ([parameter(shape=(*MATRIX, *HIDDEN))], "and matrices are for parameters"),
    "a parameter of each sample": ([replace(parameter(), per_sample=True)], "says per sample and is the opposite"),
    "an input that is a parameter": ([replace(vector(), per_sample=False)], "says not per sample and is the opposite"),
    "arithmetic that forgets its samples": (
        [vector(), Node("neg", (0,), HIDDEN, per_sample=False)],
        "says not per sample and is the opposite",
    ),
    "a constant of each sample": ([Node("constant", (), (), (1.0,))], "says per sample and is the opposite"),
    "a leaf without a name": ([vector(name="")], "has no name"),
    "a load without a step": ([Node("load", (), HIDDEN, ("h",))], "must name a buffer and a number of steps"),
    "a constant that is no number": ([Node("constant", (), (), ("1",), False)], "must be a number, not '1'"),
    "a size that is no size": ([Node("size", (), (), (3,), False)], "must be a size, not 3"),
    "a constant of many numbers": ([Node("constant", (), HIDDEN, (1.0,), False)], "is one number, not of shape"),
    "sizes that are mixed": (
        [vector(), vector("u", INPUT), Node("mul", (0, 1), HIDDEN)],
        r"mixes sizes \[hidden\] and \[input\]",
    ),
    "a result of another size": ([vector(), Node("neg", (0,), INPUT)], r"has shape \[input\]; it must be \[hidden\]"),
    "a scalar that became a vector": ([SCALAR, Node("neg", (0,), HIDDEN)], r"has shape \[hidden\]; it must be \[\]"),
    "a choice by a number": ([vector(), Node("where", (0, 0, 0), HIDDEN)], "its test is no comparison"),
    "arithmetic on truth": (
        [vector(), Node("less", (0, 0), HIDDEN), Node("neg", (1,), HIDDEN)],
        r"node 2 \(neg\) computes with a truth value",
    ),
    "a sum that is a vector": ([vector(), Node("sum", (0,), HIDDEN)], r"has shape \[hidden\]; it must be \[\]"),
    "a sum of one number": ([SCALAR, Node("sum", (0,), ())], r"needs a vector, not \[\]"),
    "a fill of a vector": ([vector(), Node("fill", (0,), INPUT, INPUT)], r"needs one number, not \[hidden\]"),
    "a fill of another size": ([SCALAR, Node("fill", (0,), HIDDEN, INPUT)], r"has shape \[hidden\]; it must be \[input\]"),
    "a transpose of a vector": (
        [parameter(), Node("transpose", (0,), HIDDEN, (), False)],
        r"needs a matrix, not \[hidden\]",
    ),
    "a transpose that turns nothing": (
        [parameter(shape=(*HIDDEN, *INPUT)), Node("transpose", (0,), (*HIDDEN, *INPUT), (), False)],
        r"it must be \[input, hidden\]",
    ),
    "an outer product of numbers": (
        [parameter(shape=()), Node("outer", (0, 0), (), (), False)],
        "needs two vectors of parameters",
    ),
    "an outer product of another size": (
        [parameter(), Node("outer", (0, 0), (*HIDDEN, *INPUT), (), False)],
        r"has shape \[hidden, input\]; it must be \[hidden, hidden\]",
    ),
    "a slice of one number": ([SCALAR, Node("slice", (0,), HIDDEN, (Dim(), *HIDDEN))], "takes features of one number"),
    "a slice beyond the end": (
        [vector(), Node("slice", (0,), HIDDEN, (*HIDDEN, *HIDDEN))],
        r"takes hidden from hidden on of hidden",
    ),
    "a slice of another size": (
        [vector(shape=TWO), Node("slice", (0,), TWO, (Dim(), *HIDDEN))],
        r"it must be \[hidden\]",
    ),
    "a concat of one number": ([SCALAR, vector(), Node("concat", (0, 1), HIDDEN)], "joins what is no vector"),
    "a concat that loses features": ([vector(), Node("concat", (0, 0), HIDDEN)], r"it must be \[2\*hidden\]"),
    "an affine without products": ([vector(), Node("affine", (0,), HIDDEN)], "has 1 inputs for 0 products"),
    "an affine without an operand": (
        [parameter(shape=MATRIX), Node("affine", (0,), HIDDEN, ((False, 1),), False)],
        "has 1 inputs for 1 products",
    ),
    "an affine by a vector": (
        [parameter(), vector(), Node("affine", (0, 1), HIDDEN, ((False, 1),))],
        r"multiplies by \[hidden\], which is no matrix",
    ),
    "an affine of another depth": (
        [parameter(shape=MATRIX), vector(shape=INPUT), Node("affine", (0, 1), HIDDEN, ((False, 1),))],
        r"multiplies \[hidden, hidden\] and \[input\]",
    ),
    "an affine that forgets its transpose": (
        [parameter(shape=(*HIDDEN, *INPUT)), vector(shape=INPUT), Node("affine", (0, 1), HIDDEN, ((True, 1),))],
        r"multiplies \[hidden, input\] and \[input\]",
    ),
    "an affine that forgets its heads": (
        [parameter(shape=(*HIDDEN, HIDDEN[0] / 4)), vector(), Node("affine", (0, 1), HIDDEN, ((False, 2),))],
        r"multiplies \[hidden, hidden/4\] and \[hidden\]",
    ),
    "an affine of another size": (
        [parameter(shape=MATRIX), vector(), Node("affine", (0, 1), INPUT, ((False, 1),))],
        r"has shape \[input\]; a product in it has \[hidden\]",
    ),
    "a bias of another size": (
        [parameter(shape=MATRIX), vector(), parameter("b", INPUT), Node("affine", (0, 1, 2), HIDDEN, ((False, 1),))],
        r"adds a bias \[input\] that is no parameter vector of its size",
    ),
    "a bias of each sample": (
        [parameter(shape=MATRIX), vector(), Node("affine", (0, 1, 1), HIDDEN, ((False, 1),))],
        "adds a bias",
    ),
}


@pytest.mark.parametrize("case", BROKEN_NODES)
def test_every_rule_for_nodes(case: str) -> None:
    nodes, message = BROKEN_NODES[case]
    with pytest.raises(AssertionError, match=message):
        check_nodes(nodes)


def test_a_message_names_the_node_and_the_line() -> None:
    broken = [vector(), Node("neg", (0,), INPUT, (), True, "u", "my_cell.py:7")]
    with pytest.raises(AssertionError, match=r"^mine: node 1 \(neg 'u', my_cell.py:7\) has shape"):
        check_nodes(broken, "mine")


LSTM = cells.lstm.trace()


def changed(graph: Graph, index: int, **changes: Any) -> Graph:
    nodes = list(graph.nodes)
    nodes[index] = replace(nodes[index], **changes)
    return replace(graph, nodes=tuple(nodes))


def first(op: str) -> int:
    return next(i for i, n in enumerate(LSTM.nodes) if n.op == op)


BROKEN_GRAPHS: dict[str, tuple[Callable[[], Graph], str]] = {
    "no input": (lambda: replace(LSTM, inputs=()), "has no input"),
    "a name twice": (
        lambda: replace(LSTM, inputs=(*LSTM.inputs, ("h", HIDDEN))),
        r"calls two of its inputs and states the same: \['x', 'h', 'h', 'c'\]",
    ),
    "a parameter twice": (lambda: replace(LSTM, parameters=LSTM.parameters * 2), "calls two parameters the same"),
    "an undeclared input": (lambda: changed(LSTM, first("input"), attributes=("u",)), "input 'u' is not declared"),
    "an undeclared parameter": (lambda: replace(LSTM, parameters=LSTM.parameters[1:]), "parameter 'weight_ih' is not declared"),
    "a state of another shape": (
        lambda: replace(LSTM, states=tuple(replace(s, shape=INPUT) for s in LSTM.states)),
        r"'h' has shape \[hidden\] but is declared as \[input\]",
    ),
    "no output": (lambda: replace(LSTM, outputs=LSTM.outputs[1:]), "must have the outputs y, h, c"),
    "outputs in another order": (lambda: replace(LSTM, outputs=LSTM.outputs[::-1]), "must have the outputs y, h, c"),
    "an output that is not there": (
        lambda: replace(LSTM, outputs=(("y", 999), *LSTM.outputs[1:])),
        "output 'y' is node 999, which does not exist",
    ),
    "an output that is a scalar": (lambda: with_output("y", SUM), r"the output is no vector: \[\]"),
    "a state that changes its shape": (lambda: with_output("c", SUM), r"state 'c' of shape \[hidden\] becomes \[\]"),
    "an output that is a parameter": (
        lambda: with_output("c", next(n for n in LSTM.nodes if n.op == "slice" and len(n.shape) == 1)),
        "output 'c' is no number of each sample",
    ),
    "an output that is true or false": (
        lambda: with_output("c", Node("less", (1, 1), HIDDEN)),
        "output 'c' is no number of each sample",
    ),
}


def with_output(name: str, node: Node) -> Graph:
    nodes = LSTM.nodes if node in LSTM.nodes else (*LSTM.nodes, node)
    return replace(LSTM, nodes=nodes, outputs=tuple((n, nodes.index(node) if n == name else i) for n, i in LSTM.outputs))


@pytest.mark.parametrize("case", BROKEN_GRAPHS)
def test_every_rule_for_graphs(case: str) -> None:
    break_it, message = BROKEN_GRAPHS[case]
    with pytest.raises(AssertionError, match=message):
        check_graph(break_it())


def test_every_rule_for_adjoints() -> None:
    good = adjoint(simplify(LSTM))
    check_adjoint(good)
    x_gradient, h_gradient = good.inputs[0][1], good.states[0][1]
    product, (parameter_node, _) = good.products[0], good.sums[0]
    broken = [
        (replace(good, nodes=good.nodes[1:]), "reads node"),
        (replace(good, graph=replace(good.graph, nodes=good.graph.nodes[::-1])), "does not begin with the graph's own nodes"),
        (replace(good, inputs=(("x", h_gradient),)), r"the gradient of 'x' \[input\] has shape \[hidden\]"),
        (replace(good, states=(("h", x_gradient),)), r"the gradient of 'h' \[hidden\] has shape \[input\]"),
        (replace(good, products=(replace(product, right=product.left),)), "its gradient is a product of"),
        (replace(good, sums=((parameter_node, x_gradient),)), r"its gradient is the sum of a value of shape \[input\]"),
    ]
    for case, message in broken:
        with pytest.raises(AssertionError, match=message):
            check_adjoint(case)
