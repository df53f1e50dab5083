"""Reverse mode over the one-step graph, symbolically.

The result is one graph that holds the forward nodes and, after them, the adjoint. Weight gradients are not summed in it: for
each matrix it names the pairs of vectors whose outer products, summed over all steps and samples, are the gradient, and for
each parameter vector or scalar the value to sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anyrnn.errors import UnsupportedError
from anyrnn.ir.dims import Dim, Shape
from anyrnn.ir.graph import Builder, Graph, Node, affine_parts, reachable
from anyrnn.ir.symbol import Symbol
from anyrnn.passes.parameters import Weight


@dataclass(frozen=True)
class OuterProduct:
    """A term of a matrix's gradient: the sum over rows of left (x) right. All are node indices."""

    matrix: int
    left: int
    right: int
    heads: int


@dataclass(frozen=True)
class Adjoint:
    """`nodes` extends the graph's own nodes. The rest are indices into it.

    `inputs` and `states` give the cotangents of the step's inputs that are vectors and of the states before the step: zeros for
    what nothing depends on. `products` and `sums` lead to the gradients of what the step reads from the parameter phase.
    """

    graph: Graph
    nodes: tuple[Node, ...]
    inputs: tuple[tuple[str, int], ...]
    states: tuple[tuple[str, int], ...]
    products: tuple[OuterProduct, ...]
    sums: tuple[tuple[int, int], ...]

    @property
    def roots(self) -> list[int]:
        """All that it gives."""
        values = [i for _, i in (*self.inputs, *self.states, *self.sums)]
        return values + [i for product in self.products for i in (product.left, product.right)]


def of_numbers(nodes: Sequence[Node]) -> list[bool]:
    """Whether a node is made of an input, a state or a parameter."""
    return _leading_back(nodes, ())


def differentiable(nodes: Sequence[Node]) -> list[bool]:
    """Whether a gradient with respect to a node is ever wanted: it leads back to an input, a state or a parameter."""
    return _leading_back(nodes, ("stop_gradient",))


def _leading_back(nodes: Sequence[Node], ends: Sequence[str]) -> list[bool]:
    result: list[bool] = []
    for node in nodes:
        leads = node.op not in ends and any(result[s] for s in node.inputs)
        result.append(leads or node.op in ("input", "state", "parameter"))
    return result


def adjoint(graph: Graph) -> Adjoint:
    """The adjoint of one step, for cotangents of the output and of every new state (leaves `cotangent`)."""
    builder = Builder(graph.nodes)
    wanted = differentiable(graph.nodes)
    cotangents: dict[int, Symbol] = {}
    products: list[OuterProduct] = []
    sums: dict[int, Symbol] = {}
    chosen: dict[int, tuple[int, int]] = {}
    """of what a choice (at random, or by a test) may choose first: the choice, and the cotangent that it passes on"""

    def give(index: int, value: Symbol | None) -> None:
        """Add to the cotangent of a node."""
        if value is None or not wanted[index]:
            return
        node = graph.nodes[index]
        value = _as_shape_of(builder, value, node)
        book = cotangents if node.per_sample else sums
        book[index] = book[index] + value if index in book else value

    for name, index in graph.outputs:
        give(index, builder.leaf("cotangent", name, graph.nodes[index].shape))
    for index in sorted(reachable(graph.nodes, (i for _, i in graph.outputs)), reverse=True):
        node = graph.nodes[index]
        if not node.per_sample or index not in cotangents or node.row.kind == "leaf":
            continue
        g = cotangents[index]
        if node.name:
            builder.rename(g.index, "d_" + node.name)
        builder.source = node.source
        if node.op == "affine":
            terms, biases = affine_parts(node)
            for matrix, operand, transposed, heads in terms:
                if wanted[operand]:
                    give(operand, builder.affine([(builder.symbol(matrix), g, not transposed, heads)]))
                if wanted[matrix]:
                    left, right = (operand, g.index) if transposed else (g.index, operand)
                    products.append(OuterProduct(matrix, left, right, heads))
            for bias in biases:
                give(bias, g)
        elif node.op == "slice":
            give(node.inputs[0], _unsliced(builder, g, graph.nodes[node.inputs[0]], node))
        elif node.op == "concat":
            offset = node.shape[0] * 0
            for part in node.inputs:
                size = graph.nodes[part].shape[0]
                give(part, builder.slice(g, offset, size))
                offset = offset + size
        elif node.op == "fill":
            give(node.inputs[0], g)
        elif node.row.arity == 1 and index in chosen and chosen[index][1] == g.index:  # nothing else reads it
            choice = chosen[index][0]
            give(node.inputs[0], _through_choice(builder, node, choice, cotangents[choice]))
        else:
            assert node.row.derivative is not None, f"op {node.op} has no derivative"
            symbols = [builder.symbol(s) for s in node.inputs]
            values = node.row.derivative(g, builder.symbol(index), *symbols)
            if node.op in ("choose", "where"):
                first = node.inputs[-2]
                chosen[first] = index, values[-2].index
            for source, value in zip(node.inputs, values, strict=True):
                give(source, value)

    made = {(n.op, n.attributes[0]): cotangents[i] for i, n in enumerate(graph.nodes) if n.row.kind == "leaf" and i in cotangents}

    def found(op: str, name: str, shape: Shape) -> tuple[str, int]:
        return name, (made[op, name] if (op, name) in made else _zeros(builder, shape)).index

    inputs = tuple(found("input", name, shape) for name, shape in graph.inputs if shape)
    states = tuple(found("state", state.name, state.shape) for state in graph.states)
    pairs = tuple((index, value.index) for index, value in sums.items())
    return Adjoint(graph, tuple(builder.nodes), inputs, states, tuple(products), pairs)


def _through_choice(builder: Builder, node: Node, choice: int, d_choice: Symbol) -> Symbol | None:
    """The cotangent of the operand of a function whose result goes to a choice alone. Where it is chosen the choice has its
    value, and elsewhere there is no cotangent; so what the choice gave, which is often a state, is kept instead.
    """
    assert node.row.derivative is not None, f"op {node.op} has no derivative"
    result = builder.symbol(choice)
    (value,) = node.row.derivative(d_choice, result, builder.symbol(node.inputs[0]))
    if value is None:
        return None
    chosen = builder.nodes[choice]
    test = [builder.symbol(i) for i in chosen.inputs[:-2]]
    return builder.make(chosen.op, [*test, value, builder.constant(0.0)], result.shape, chosen.attributes)


def _zeros(builder: Builder, shape: Shape) -> Symbol:
    """Zero for every feature of every sample."""
    return builder.symbol(builder.add(Node("fill", (builder.constant(0.0).index,), shape, shape, per_sample=True)))


def _as_shape_of(builder: Builder, value: Symbol, node: Node) -> Symbol:
    """Undo the stretching of scalars: sum over features, or fill."""
    if value.shape == node.shape:
        return value
    return builder.apply("sum", value) if node.shape == () else builder.stretch(value, node.shape)


def _unsliced(builder: Builder, g: Symbol, whole: Node, node: Node) -> Symbol:
    """The cotangent of a vector, or of a parameter, from that of its slice: zeros around it."""
    offset, size = node.attributes

    def zeros(features: Dim) -> list[Symbol]:
        shape = (features, *whole.shape[1:])
        made = _zeros(builder, shape) if node.per_sample else builder.stretch(builder.constant(0.0), shape)
        return [made] if features.terms else []

    return builder.concat([*zeros(offset), g, *zeros(whole.shape[0] - offset - size)])


@dataclass(frozen=True)
class ParameterTerm:
    """Adds node `value` to rows of a parameter's gradient."""

    parameter: str
    offset: Dim
    rows: Dim
    value: int


@dataclass(frozen=True)
class PhaseAdjoint:
    """The adjoint of the parameter phase: `nodes` extends the graph's, with a `cotangent` leaf for each weight that the step
    reads.
    """

    nodes: tuple[Node, ...]
    terms: tuple[ParameterTerm, ...]


def phase_adjoint(graph: Graph, weights: Sequence[Weight]) -> PhaseAdjoint:
    """Reverse mode over arithmetic on parameters, symbolically."""
    builder = Builder(graph.nodes)
    wanted = differentiable(graph.nodes)
    cotangents: dict[int, Symbol] = {}
    terms: list[ParameterTerm] = []

    def give(index: int, value: Symbol | None) -> None:
        if value is None or not wanted[index]:
            return
        node = graph.nodes[index]
        value = _as_shape_of(builder, value, node)
        cotangents[index] = cotangents[index] + value if index in cotangents else value

    for weight in weights:
        if wanted[weight.node]:
            give(weight.node, builder.leaf("cotangent", weight.name, weight.shape, per_sample=False))
    for index in sorted(reachable(graph.nodes, (w.node for w in weights)), reverse=True):
        node = graph.nodes[index]
        if index not in cotangents:
            continue
        g = cotangents[index]
        below = graph.nodes[node.inputs[0]] if node.inputs else None
        if node.op == "parameter":
            terms.append(ParameterTerm(node.attributes[0], Dim(), node.shape[0] if node.shape else Dim(), g.index))
        elif node.op == "slice" and below is not None and below.op == "parameter":
            terms.append(ParameterTerm(below.attributes[0], node.attributes[0], node.attributes[1], g.index))
        elif node.op == "slice" and below is not None:
            give(node.inputs[0], _unsliced(builder, g, below, node))
        elif node.op == "concat":
            offset = Dim()
            for source in node.inputs:
                size = graph.nodes[source].shape[0]
                give(source, builder.slice(g, offset, size))
                offset = offset + size
        elif node.op == "transpose":
            give(node.inputs[0], builder.transpose(g))
        elif node.op == "fill":
            give(node.inputs[0], builder.apply("sum", g))
        elif node.op == "sum":
            give(node.inputs[0], g)
        elif node.op == "largest":
            pass
        elif node.row.derivative is not None and node.row.kind == "elementwise":
            symbols = [builder.symbol(s) for s in node.inputs]
            for source, value in zip(node.inputs, node.row.derivative(g, builder.symbol(index), *symbols), strict=True):
                give(source, value)
        else:
            assert node.op == "affine", node.op
            terms_of, biases = affine_parts(node)
            for matrix, operand, transposed, heads in terms_of:
                if heads > 1:
                    what = "declare its result as a parameter of its own, or its factors with trained=False"
                    raise UnsupportedError(f"{node.source}: a product in blocks, of parameters alone, has no gradient: {what}")
                assert not transposed  # a cell has transposes of matrices as values
                give(operand, builder.affine([(builder.symbol(matrix), g, True, 1)]))
                give(matrix, builder.outer(g, builder.symbol(operand)))
            for bias in biases:
                give(bias, g)
    return PhaseAdjoint(tuple(builder.nodes), tuple(terms))
