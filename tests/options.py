"""Values for the options of layers, and which of them cells can have."""

from __future__ import annotations

from typing import Any

from anyrnn import cells

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
    "activations": {"tanh": "sigmoid", "sigmoid": "tanh"},
    "merge": "mul",
    "residual": True,
    "reverse": True,
    "learned_state": True,
    "skip_input": True,
}
COMBINATIONS = [*([name] for name in VALUES), *([n for n in VALUES if n != without] for without in ("merge", "reverse"))]
"""Each alone, and nearly all together."""
NO_PRODUCT_OF_STATES = {"indrnn"}
"""Cells to which some options cannot be applied."""


def title(part: Any) -> str:
    """Of a combination, or of something else that a test is given."""
    if isinstance(part, str):
        return part
    return part[0] if len(part) == 1 else "all_but_" + "_".join(name for name in VALUES if name not in part)


def options_of(cell: str, names: Any) -> dict[str, Any]:
    skipped = {"recurrent_dropout", "weight_dropout", "cut_gradient"} if cell in NO_PRODUCT_OF_STATES else set()
    chosen = {name: VALUES[name] for name in names if name not in skipped}
    if "activations" in chosen:
        ops = {node.op for node in cells.load(cell).trace().nodes}
        chosen["activations"] = {op: function for op, function in VALUES["activations"].items() if op in ops}
        chosen = {name: value for name, value in chosen.items() if value}
    return chosen


def shape_of(cell: str, options: Any, hidden: int, inputs: int) -> dict[str, Any]:
    """The sizes, layers and directions of a network that can have these options: the most of them."""
    narrow = "skip_input" in options and "proj" in sizes_of(cell) and "residual" not in options
    both = "reverse" not in options and ("skip_input" not in options or "merge" in options)
    sizes = sizes_of(cell) if narrow or "skip_input" not in options else dict.fromkeys(sizes_of(cell), hidden)
    sizes = {"input_size": hidden if "skip_input" in options else inputs, "hidden_size": hidden, **sizes}
    return {**sizes, "num_layers": 1 if narrow else 2, "bidirectional": both}


def sizes_of(cell: str) -> dict[str, int]:
    return {name: 7 for name in cells.load(cell).trace().size_names if name not in ("input", "hidden")}
