"""How Triton spells each elementwise op, as text of its operands."""

from __future__ import annotations

from collections.abc import Sequence

from anyrnn.ir.graph import Node
from anyrnn.passes.plan import beyond_kernels

SPELLINGS: dict[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "maximum": "functions.maximum({0}, {1})",
    "minimum": "functions.minimum({0}, {1})",
    "abs": "tl.abs({0})",
    "sign": "functions.sign({0})",
    "floor": "tl.floor({0})",
    "sqrt": "tl.sqrt({0})",
    "exp": "tl.exp({0})",
    "log": "tl.log({0})",
    "tanh": "functions.tanh({0})",
    "sigmoid": "functions.sigmoid({0})",
    "softplus": "functions.softplus({0})",
    "relu": "functions.relu({0})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "less": "{0} < {1}",
    "equal": "{0} == {1}",
    "where": "tl.where({0}, {1}, {2})",
    "norm": "{0}",
    "stop_gradient": "{0}",
    "clip_gradient": "{0}",
    "fill": "{0}",
}
"""The rest of the table is products, reductions, leaves and random choices."""


def unsupported(nodes: Sequence[Node]) -> str | None:
    """Why this backend cannot run some nodes, or None."""
    return beyond_kernels(nodes, SPELLINGS)
