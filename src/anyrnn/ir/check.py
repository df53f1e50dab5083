"""Checks that a graph is legal.

Passes and backends rely on all of this and test none of it. A violation is a defect of this package, or of a file that a graph
was read from (`serial`), so it is an AssertionError; it names the node, its op and the user's line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from anyrnn.ir.dims import Dim, Shape, shape_text
from anyrnn.ir.graph import Graph, Node, affine_parts
from anyrnn.ir.names import LEAVES
from anyrnn.ir.ops import TABLE

if TYPE_CHECKING:
    from anyrnn.passes.adjoint import Adjoint

PER_SAMPLE = ("input", "state", "load")
EITHER = ("cotangent",)
"""Leaves that are numbers of each sample, or may be; the others are not."""


def check_graph(graph: Graph) -> None:
    """A whole graph: its nodes, the leaves against the declared inputs, states and parameters, the outputs."""
    truths = check_nodes(graph.nodes, graph.name)
    states = [(s.name, s.shape) for s in graph.states]
    declared: dict[str, dict[str, Shape]] = {
        "input": dict(graph.inputs),
        "state": dict(states),
        "parameter": {p.name: p.shape for p in graph.parameters},
        "hyper": dict.fromkeys(graph.hypers, ()),
    }
    arguments = [name for name, _ in (*graph.inputs, *states)]
    demand(len(graph.inputs) > 0, graph.name, "has no input")
    demand(len(set(arguments)) == len(arguments), graph.name, f"calls two of its inputs and states the same: {arguments}")
    demand(len(declared["parameter"]) == len(graph.parameters), graph.name, "calls two parameters the same")
    for i, node in enumerate(graph.nodes):
        if node.op in declared:
            name = node.attributes[0]
            if name not in declared[node.op]:
                fail(graph.nodes, i, graph.name, f"{node.op} {name!r} is not declared")
            if node.shape != declared[node.op][name]:
                shapes = f"{shape_text(node.shape)} but is declared as {shape_text(declared[node.op][name])}"
                fail(graph.nodes, i, graph.name, f"{name!r} has shape {shapes}")
    expected = ["y", *(name for name, _ in states)]
    demand([name for name, _ in graph.outputs] == expected, graph.name, f"must have the outputs {', '.join(expected)}")
    for name, i in graph.outputs:
        demand(0 <= i < len(graph.nodes), graph.name, f"output {name!r} is node {i}, which does not exist")
        node = graph.nodes[i]
        if name == "y" and len(node.shape) != 1:
            fail(graph.nodes, i, graph.name, f"the output is no vector: {shape_text(node.shape)}")
        if name != "y" and node.shape != dict(states)[name]:
            shapes = f"{shape_text(dict(states)[name])} becomes {shape_text(node.shape)}"
            fail(graph.nodes, i, graph.name, f"state {name!r} of shape {shapes}")
        if not node.per_sample or truths[i]:
            fail(graph.nodes, i, graph.name, f"output {name!r} is no number of each sample")


def check_adjoint(adjoint: Adjoint) -> None:
    """The adjoint of a graph: its nodes, and that every gradient has the shape of what it is the gradient of."""
    who = f"adjoint of {adjoint.graph.name}"
    nodes, count = adjoint.nodes, len(adjoint.graph.nodes)
    check_nodes(nodes, who)
    demand(nodes[:count] == adjoint.graph.nodes, who, "does not begin with the graph's own nodes")
    shapes = dict(adjoint.graph.inputs), {s.name: s.shape for s in adjoint.graph.states}
    for pairs, of in zip((adjoint.inputs, adjoint.states), shapes, strict=True):
        for name, i in pairs:
            if nodes[i].shape != of[name] or not nodes[i].per_sample:
                fail(nodes, i, who, f"the gradient of {name!r} {shape_text(of[name])} has shape {shape_text(nodes[i].shape)}")
    for product in adjoint.products:
        rows, columns = nodes[product.matrix].shape
        sides = nodes[product.left].shape, nodes[product.right].shape
        if sides != ((rows,), (columns * product.heads,)):
            fail(nodes, product.matrix, who, f"its gradient is a product of {' and '.join(map(shape_text, sides))}")
    for parameter, i in adjoint.sums:
        if nodes[i].shape != nodes[parameter].shape or not nodes[i].per_sample:
            fail(nodes, parameter, who, f"its gradient is the sum of a value of shape {shape_text(nodes[i].shape)}")


def check_nodes(nodes: Sequence[Node], who: str = "graph", of_samples: bool = False) -> list[bool]:
    """Nodes by themselves: inputs come first, arities, shapes by the rules of the op table, the parameter phase kept apart, but
    for what is made of parameters for each sample (`of_samples`). Gives of each whether it is true or false rather than a number.
    """
    known: dict[Node, int] = {}
    truths: list[bool] = []
    for i, node in enumerate(nodes):
        row = TABLE.get(node.op)
        if row is None:
            fail(nodes, i, who, "is not in the op table")
        if row.arity is not None and len(node.inputs) != row.arity:
            fail(nodes, i, who, f"has {len(node.inputs)} inputs; {node.op} has {row.arity}")
        late = [s for s in node.inputs if not 0 <= s < i]
        if late:
            fail(nodes, i, who, f"reads node {late[0]}, which does not come before it")
        if node in known:
            fail(nodes, i, who, f"is the same as node {known[node]}")
        known[node] = i
        if len(node.shape) > 2 or (len(node.shape) == 2 and node.per_sample):
            fail(nodes, i, who, f"has shape {shape_text(node.shape)}, and matrices are for parameters")
        leaf = node.op in PER_SAMPLE or (node.op in EITHER and node.per_sample)
        made_per_sample = of_samples or node.op == "fill" or row.boolean  # may be, of what is alike for all samples
        if node.per_sample != (leaf or any(nodes[s].per_sample for s in node.inputs)) and not (
            made_per_sample and node.per_sample
        ):
            fail(nodes, i, who, f"says {'' if node.per_sample else 'not '}per sample and is the opposite")
        problem = _leaf_problem(node) if row.kind == "leaf" else _shape_problem(nodes, node, truths)
        if problem:
            fail(nodes, i, who, problem)
        truths.append(row.boolean or (row.kind == "structure" and any(truths[s] for s in node.inputs)))
    return truths


def _leaf_problem(node: Node) -> str | None:
    first = node.attributes[0] if node.attributes else None
    if node.op in LEAVES and not (isinstance(first, str) and first):
        return "has no name"
    if node.op == "load" and not (len(node.attributes) == 2 and isinstance(first, str) and isinstance(node.attributes[1], int)):
        return f"must name a buffer and a number of steps, not {node.attributes}"
    if node.op == "constant" and not isinstance(first, float):
        return f"must be a number, not {first!r}"
    if node.op == "size" and not isinstance(first, Dim):
        return f"must be a size, not {first!r}"
    if node.op in ("constant", "size", "hyper", "scale", "probability") and node.shape:
        return f"is one number, not of shape {shape_text(node.shape)}"
    return None


def _shape_problem(nodes: Sequence[Node], node: Node, truths: Sequence[bool]) -> str | None:
    shapes = [nodes[s].shape for s in node.inputs]
    if node.op == "affine":
        return _affine_problem(nodes, node)
    if node.op == "where" and not truths[node.inputs[0]]:
        return "its test is no comparison"
    numbers = node.inputs[1:] if node.op == "where" else node.inputs
    if node.row.kind != "structure" and any(truths[s] for s in numbers):
        return "computes with a truth value"
    if node.row.kind == "elementwise":
        sizes = list(dict.fromkeys(s for s in shapes if s))
        if len(sizes) > 1:
            return f"mixes sizes {' and '.join(map(shape_text, sizes))}"
        return _unless(node, sizes[0] if sizes else ())
    if node.row.kind == "reduction":
        fits = len(shapes[0]) == 1 or (len(shapes[0]) == 2 and not node.per_sample)
        return _unless(node, ()) if fits else f"needs a vector, not {shape_text(shapes[0])}"
    if node.op == "fill":
        fits = shapes[0] in ((), node.attributes)
        return _unless(node, node.attributes) if fits else f"needs one number, not {shape_text(shapes[0])}"
    if node.op == "transpose":
        return _unless(node, shapes[0][::-1]) if len(shapes[0]) == 2 else f"needs a matrix, not {shape_text(shapes[0])}"
    if node.op == "outer":
        fits = [len(s) for s in shapes] == [1, 1]
        return _unless(node, (*shapes[0], *shapes[1])) if fits else "needs two vectors of parameters"
    if node.op == "slice":
        return _slice_problem(node, shapes[0])
    assert node.op == "concat", f"no rule for the shape of {node.op}"
    if any(len(s) != 1 and (len(s) != 2 or node.per_sample) for s in shapes):
        return "joins what is no vector"
    if any(s[1:] != shapes[0][1:] for s in shapes):
        return f"joins {' and '.join(map(shape_text, shapes))}"
    return _unless(node, (sum((s[0] for s in shapes), Dim()), *shapes[0][1:]))


def _unless(node: Node, expected: Shape) -> str | None:
    return None if node.shape == expected else f"has shape {shape_text(node.shape)}; it must be {shape_text(expected)}"


def _slice_problem(node: Node, whole: Shape) -> str | None:
    if not whole:
        return "takes features of one number"
    offset, size = node.attributes
    rest = whole[0] - offset - size
    if any(factor < 0 for dim in (offset, size, rest) for name, factor in dim.terms if name):
        return f"takes {size} from {offset} on of {whole[0]}"
    return _unless(node, (size, *whole[1:]))


def _affine_problem(nodes: Sequence[Node], node: Node) -> str | None:
    if not node.attributes or len(node.inputs) < 2 * len(node.attributes):
        return f"has {len(node.inputs)} inputs for {len(node.attributes)} products"
    terms, biases = affine_parts(node)
    for matrix, operand, transposed, heads in terms:
        if len(nodes[matrix].shape) != 2:
            return f"multiplies by {shape_text(nodes[matrix].shape)}, which is no matrix"
        rows, columns = nodes[matrix].shape
        result, depth = (columns * heads, rows) if transposed else (rows, columns * heads)
        if nodes[operand].shape != (depth,):
            return f"multiplies {shape_text(nodes[matrix].shape)} and {shape_text(nodes[operand].shape)}"
        if node.shape != (result,):
            return f"has shape {shape_text(node.shape)}; a product in it has {shape_text((result,))}"
    for bias in biases:
        if nodes[bias].shape != node.shape or nodes[bias].per_sample:
            return f"adds a bias {shape_text(nodes[bias].shape)} that is no parameter vector of its size"
    return None


def fail(nodes: Sequence[Node], i: int, who: str, message: str) -> NoReturn:
    node = nodes[i]
    called = f" {node.name!r}" if node.name else ""
    line = f", {node.source}" if node.source else ""
    raise AssertionError(f"{who}: node {i} ({node.op}{called}{line}) {message}")


def demand(condition: bool, who: str, message: str) -> None:
    if not condition:
        raise AssertionError(f"{who}: {message}")
