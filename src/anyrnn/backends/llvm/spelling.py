"""How LLVM spells each elementwise op, as code of its operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anyrnn.backends.llvm import math
from anyrnn.backends.llvm.builder import Function, Value
from anyrnn.ir.graph import Node
from anyrnn.passes.plan import beyond_kernels

Spelling = Callable[..., Value]


def _function(emit: Callable[..., Value]) -> Spelling:
    def spelling(b: Function, name: str, *operands: Value) -> Value:
        return emit(b, *operands, name)

    return spelling


SPELLINGS: dict[str, Spelling] = {
    "add": lambda b, name, x, y: b.fadd(x, y, name),
    "sub": lambda b, name, x, y: b.fsub(x, y, name),
    "mul": lambda b, name, x, y: b.fmul(x, y, name),
    "div": lambda b, name, x, y: b.fdiv(x, y, name),
    "neg": lambda b, name, x: b.fneg(x, name),
    "less": lambda b, name, x, y: b.compare("olt", x, y, name),
    "equal": lambda b, name, x, y: b.compare("oeq", x, y, name),
    "where": lambda b, name, test, x, y: b.select(test, x, y, name),
    "norm": lambda b, name, y, a, scale: y,
    "fill": lambda b, name, x: x,
    "stop_gradient": lambda b, name, x: x,
    "clip_gradient": lambda b, name, x, low, high: x,
    **{op: _function(f) for op, f in math.FUNCTIONS.items()},
}
"""The rest of the table is products, reductions, leaves and random choices."""


def unsupported(nodes: Sequence[Node]) -> str | None:
    """Why this backend cannot run some nodes, or None."""
    return beyond_kernels(nodes, SPELLINGS)
