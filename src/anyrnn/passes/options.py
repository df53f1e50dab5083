"""Options of a layer as rewrites of the one-step graph, before its adjoint is taken: gradients, stages and kernels follow by
themselves.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from anyrnn.ir.graph import Builder, Graph, substitute


@lru_cache(maxsize=256)
def with_input_dropout(graph: Graph) -> Graph:
    """The cell on an input of which features are dropped at random, the others scaled up: dropout between layers."""
    builder = Builder()
    name, shape = graph.inputs[0]
    x = builder.leaf("input", name, shape)
    kind = "between_layers"
    scale = builder.leaf("scale", kind, (), per_sample=False)
    dropped = builder.make("choose", [x * scale, builder.constant(0.0)], shape, (kind, 0), f"{name}_dropped")
    inputs = {i: dropped.index for i, n in enumerate(graph.nodes) if n.op == "input" and n.attributes[0] == name}
    mapped = substitute(builder, graph.nodes, inputs, (i for _, i in graph.outputs))
    return replace(graph, nodes=tuple(builder.nodes), outputs=tuple((n, mapped[i]) for n, i in graph.outputs))
