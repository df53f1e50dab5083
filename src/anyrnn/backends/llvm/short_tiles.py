"""Emits tiles of short products: those of a single block of an operand that is known before the loop."""

from __future__ import annotations

from functools import partial

from anyrnn.backends.llvm.builder import PTR, Function, Value, const, i64
from anyrnn.backends.llvm.covering import add_products
from anyrnn.backends.llvm.element import Element
from anyrnn.backends.llvm.factors import factor_at, weight_at
from anyrnn.backends.llvm.target import Machine
from anyrnn.backends.llvm.tile_kinds import TileKind, operand_word


def short_products(b: Function, e: Element, machine: Machine, kind: TileKind, operand: Value, row: Value) -> list[Value]:
    """Of a highest tile from a row on, by the packed weights of an operand's entry that has a single block: [row][sum][panel].

    In registers, and without what longer products need at every tile: places of sums, parts of the next weights, what to fetch.
    """
    height, vectors = kind.heights[0], range(kind.count * kind.width)
    depth, row_bytes, panel_bytes = (operand_word(b, operand, name) for name in ("depth", "row_bytes", "panel_bytes"))
    first = b.at(operand_word(b, operand, "address", PTR), b.mul(row_bytes, row), "i8", "first")
    sums = [(f"sum{v}.{i}", const(e.vector, 0.0)) for i in range(height) for v in vectors]
    follow = b.compare("eq", panel_bytes, i64(e.panel_row), "follow")  # a row's panels each other, as in callers' arrays
    length = b.select(follow, depth, i64(e.lanes), "length")
    begin = [("rows", first), ("weights", operand_word(b, operand, "weights", PTR)), *sums]
    panel = b.loop("panel", 0, depth, length, begin, once=True)
    rows = [b.at(panel.values[0], b.mul(row_bytes, i), "i8", f"row.{i}") for i in range(height)]
    stop = b.minimum(b.sub(depth, panel.index), length, "stop")
    names = [name for name, _ in begin[1:]]
    loop = b.loop("k", 0, stop, 1, list(zip(names, panel.values[1:], strict=True)), once=True)
    weights, *totals = loop.values
    factors = [partial(factor_at, b, e, row, loop.index) for row in rows]
    weights_here = [partial(weight_at, b, e, weights, v, e.panel_row) for v in vectors]
    added = add_products(b, machine, factors, weights_here, totals)
    after = b.end(loop, [b.at(weights, kind.feature_bytes(e), "i8", "weights"), *added])
    return b.end(panel, [b.at(panel.values[0], panel_bytes, "i8", "rows"), *after])[2:]
