"""A step that is given the products of its input, for inputs of which there are few: those of classes stand in a table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from anyrnn.ir.graph import Builder, Graph, affine_parts
from anyrnn.passes.simplify import live


@dataclass(frozen=True)
class GivenProducts:
    """`graph` is the step whose inputs are the products of the former one with `matrices`, before its further inputs: nodes of
    the former graph, which parameters alone make.
    """

    graph: Graph
    matrices: tuple[int, ...]


def with_given_products(graph: Graph) -> GivenProducts | None:
    """The same step with its input's products for inputs; None where the step uses its input in another way."""
    name, nodes = graph.inputs[0][0], graph.nodes
    x = next((i for i, node in enumerate(nodes) if node.op == "input" and node.attributes[0] == name), None)
    matrices: list[int] = []
    for node in nodes:
        if x not in node.inputs:
            continue
        terms, biases = affine_parts(node) if node.op == "affine" else ([], [])
        plain = [matrix for matrix, operand, transposed, heads in terms if operand == x and not transposed and heads == 1]
        if len(plain) != node.inputs.count(x):
            return None
        matrices += plain
    if x is None or not matrices or x in (i for _, i in graph.outputs):
        return None
    products = tuple((f"{name}.{k}", (nodes[m].shape[0],)) for k, m in enumerate(matrices))
    builder, mapped = Builder(), dict[int, int]()
    given = iter([builder.leaf("input", *product) for product in products])
    for i, node in enumerate(nodes):
        builder.source = node.source
        if x in node.inputs:
            terms, biases = affine_parts(node)
            others = [(builder.symbol(mapped[m]), builder.symbol(mapped[o]), t, h) for m, o, t, h in terms if o != x]
            added = [builder.symbol(mapped[b]) for b in biases]
            value = builder.affine(others, added) if others else None
            for _ in range(len(terms) - len(others)):
                value = next(given) if value is None else value + next(given)
            for bias in [] if others else added:
                value = value + bias
            assert value is not None
            mapped[i] = value.index
            builder.rename(value.index, node.name)
        elif i != x:
            mapped[i] = builder.add(replace(node, inputs=tuple(mapped[s] for s in node.inputs)))
    kept, outputs = live(builder.nodes, [(output, mapped[i]) for output, i in graph.outputs])
    before, after = ({n.attributes[0] for n in some if n.op == "parameter"} for some in (nodes, kept))
    parameters = tuple(p for p in graph.parameters if p.name not in before - after)
    inputs = (*products, *graph.inputs[1:])
    changed = replace(graph, nodes=kept, outputs=outputs, inputs=inputs, parameters=parameters)
    return GivenProducts(changed, tuple(matrices))
