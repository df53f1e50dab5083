"""Emits products of one row with weights that are not packed, but read in squares where they stand, see `MatrixPack.stands`."""

from __future__ import annotations

from anyrnn.backends.llvm.builder import Module, const
from anyrnn.backends.llvm.copies import transposed_square
from anyrnn.backends.llvm.element import Element

SQUARES = "add_squares"
"""The function that multiplies by weights in squares."""


def add_squares(module: Module, e: Element) -> None:
    """`void(ptr rows, i64 row bytes, ptr factors, i64 panel bytes, i64 features, ptr before, ptr sum)`: before and a vector of
    products of one row, by weights of which one matrix row goes to each lane: `rows` begins the first of as many as there are
    lanes, `factors` the row's first panel; `features` is a multiple of the lanes. The bits are those of packed weights.
    """
    parameters = [("ptr", "rows"), ("i64", "row_bytes"), ("ptr", "factors"), ("i64", "panel_bytes"), ("i64", "features")]
    b = module.function(SQUARES, [*parameters, ("ptr", "before"), ("ptr", "sum")])
    rows, row_bytes, factors, panel_bytes, features, before, target = b.arguments
    square = b.loop("square", 0, features, e.lanes, [("panel", factors), ("sum", const(e.vector, 0.0))], once=True)
    panel, total = square.values
    column = b.at(rows, square.index, e.type, "column")
    lines = [b.at(column, b.mul(row_bytes, lane), "i8", f"row.{lane}") for lane in range(e.lanes)]
    weights = transposed_square(b, [b.load(e.vector, line, "weights", e.bytes) for line in lines])
    for k, weight in enumerate(weights):
        factor = b.splat(b.load(e.type, b.at(panel, k, e.type), "factor"), e.lanes, "factor")
        total = b.fma(factor, weight, total, "sum")
    _, total = b.end(square, [b.at(panel, panel_bytes, "i8", "panel"), total])
    b.store(b.fadd(b.load(e.vector, before, "before", e.panel_row), total), target, e.panel_row)
    b.ret()
