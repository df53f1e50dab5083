"""Values for the options of layers, and which of them cells can have."""

from __future__ import annotations

from functools import cache
from typing import Any

from anyrnn import LayerOptions, cells
from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import Graph
from anyrnn.trace.language import sin
from tests.zoo import input_size, sizes_of


def wave(v: Any) -> Any:
    """Between 0 and 1 as gates are, or their cells may grow without bound, or divide by zero."""
    return 0.5 + 0.4 * sin(v)


VALUES: dict[str, Any] = {
    "input_dropout": 0.4,
    "recurrent_dropout": 0.3,
    "weight_dropout": 0.3,
    "output_dropout": 0.25,
    "zoneout": 0.35,
    "clip_state": 0.3,
    "clip_preactivation": 0.4,
    "clip_gradient": 0.2,
    "cut_gradient": True,
    "activations": {"tanh": "sigmoid", "sigmoid": wave},
    "merge": "mul",
    "residual": True,
    "reverse": True,
    "learned_state": True,
    "skip_input": True,
}
COMBINATIONS = [*([name] for name in VALUES), *([n for n in VALUES if n != without] for without in ("merge", "reverse"))]
"""Each alone, and nearly all together."""


def title(part: Any) -> str:
    """Of a combination, or of something else that a test is given."""
    if isinstance(part, str):
        return part
    return part[0] if len(part) == 1 else "all_but_" + "_".join(name for name in VALUES if name not in part)


@cache
def refused(cell: str, name: str) -> str:
    """Why layers of a cell cannot have an option; empty if they can."""
    graph = cells.load(cell).trace()
    value = of_ops(graph, VALUES[name]) if name == "activations" else VALUES[name]
    try:
        if name == "skip_input":
            graph = cells.load(cell).trace(skip_input=True)
        LayerOptions(**{name: value}).trained(graph, between_layers=False)
    except ValueError as error:
        return str(error)
    return "" if value else f"{cell} has none of them"


def of_ops(graph: Graph, functions: dict[str, str]) -> dict[str, str]:
    """The activation functions that a cell has."""
    ops = {node.op for node in graph.nodes if node.per_sample}
    return {op: function for op, function in functions.items() if op in ops}


def options_of(cell: str, names: Any) -> dict[str, Any]:
    chosen = {name: VALUES[name] for name in names if not refused(cell, name)}
    if "activations" in chosen:
        chosen["activations"] = of_ops(cells.load(cell).trace(), chosen["activations"])
    return chosen


def shape_of(cell: str, options: Any, hidden: int, inputs: int) -> dict[str, Any]:
    """The sizes, layers and directions of a network that can have these options: the most of them."""
    graph, named = cells.load(cell).trace(), sizes_of(cell, 7)
    skips, layers = "skip_input" in options, 2
    both = "reverse" not in options and (not skips or "merge" in options)
    output = graph.nodes[graph.output("y")].shape[0]
    if skips and output != Dim.of("hidden"):  # layers above the first would have other inputs than those of the hidden size
        named, layers = (dict.fromkeys(named, hidden), 2) if "residual" in options else (named, 1)
    width = output.evaluate({"hidden": hidden, **named}) * (2 if both and "merge" not in options else 1)
    size = hidden if skips else input_size(cell, inputs, width)
    return {"input_size": size, "hidden_size": hidden, **named, "num_layers": layers, "bidirectional": both}
