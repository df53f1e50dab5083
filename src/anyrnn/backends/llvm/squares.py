"""Emits products with weights that stand where the caller has them, see `MatrixPack.stands`.

Few rows are multiplied by squares of a matrix, which are transposed in registers, here; backward by pieces of its rows, which are
what would be packed. More are multiplied by blocks that are packed just before, see `tiles`: what is packed is in the nearest
cache then, where packing all weights first takes them through memory.
"""

from __future__ import annotations

from anyrnn.backends.llvm.builder import PTR, Module, const, i64
from anyrnn.backends.llvm.copies import transposed_square
from anyrnn.backends.llvm.element import Element

MOST_IN_SQUARES = 8
"""Rows that are multiplied by squares in registers at the most."""
MOST_IN_ROWS = 8
"""Rows that are multiplied by rows of a matrix where these stand at the most: every tile reads them there, and few stay near."""
IN_SQUARES = "add_squares"
"""The function that multiplies by squares."""


def add_squares(module: Module, e: Element) -> None:
    """`void(ptr weights, i64 weight bytes, ptr factors, i64 row bytes, i64 panel bytes, i64 features, ptr before, i64 apart, ptr
    sums, i64 rows)`: for each of a few rows, what is before and a vector of products, by weights of which one matrix row goes to
    each lane: `weights` begins the first of as many as there are lanes, `factors` the first row's first panel; `features` is a
    multiple of the lanes. The bits are those of packed weights.
    """
    of_rows = [("ptr", "factors"), *[("i64", name) for name in ("row_bytes", "panel_bytes", "features")], ("ptr", "before")]
    of_sums = [("i64", "apart"), ("ptr", "sums"), ("i64", "rows")]
    b = module.function(IN_SQUARES, [("ptr readonly", "weights"), ("i64", "weight_bytes"), *of_rows, *of_sums])
    begin, weight_bytes, factors, row_bytes, panel_bytes, features, before, apart, sums, rows = b.arguments
    waiting = b.value(PTR, f"alloca [{MOST_IN_SQUARES} x {e.vector}], align {e.panel_row}", "waiting")
    square = b.loop("square", 0, features, e.lanes, [("panel", factors)], once=True)
    (panel,) = square.values
    column = b.at(begin, square.index, e.type, "column")
    lines = [b.at(column, b.mul(weight_bytes, lane), "i8", f"row.{lane}") for lane in range(e.lanes)]
    weights = transposed_square(b, [b.load(e.vector, line, "weights", e.bytes) for line in lines])
    is_first = b.compare("eq", square.index, i64(0), "is_first")
    row = b.loop("row", 0, rows, 1, [("factors", panel)], once=True)
    place = b.at(waiting, row.index, e.vector, "place")
    total = b.select(is_first, const(e.vector, 0.0), b.load(e.vector, place, "total", e.panel_row), "total")
    for k, weight in enumerate(weights):
        factor = b.splat(b.load(e.type, b.at(row.values[0], k, e.type), "factor"), e.lanes, "factor")
        total = b.fma(factor, weight, total, "sum")
    b.store(total, place, e.panel_row)
    b.end(row, [b.at(row.values[0], row_bytes, "i8", "factors")])
    b.end(square, [b.at(panel, panel_bytes, "i8", "panel")])
    row = b.loop("row", 0, rows, 1, [("before", before)], once=True)
    total = b.load(e.vector, b.at(waiting, row.index, e.vector), "total", e.panel_row)
    first = b.load(e.vector, row.values[0], "first", e.panel_row)
    b.store(b.fadd(first, total), b.at(sums, row.index, e.vector), e.panel_row)
    b.end(row, [b.at(row.values[0], apart, "i8", "before")])
    b.ret()
