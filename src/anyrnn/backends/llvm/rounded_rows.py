"""Emits the rounding of a kernel's operands to eight bits: of some rows, before all products with them."""

from __future__ import annotations

from collections.abc import Sequence

from anyrnn.backends.llvm.builder import PTR, Value, i64
from anyrnn.backends.llvm.emitter import Emitter, Key
from anyrnn.backends.llvm.int8 import ROUND_ROWS, room_bytes
from anyrnn.backends.llvm.shapes import Operand

ROOM_BYTES = 2**16
"""For rounded rows on the stack of a thread; what a second cache holds beside weights."""


class RoundedRows:
    """The operands of one kernel: a row has a block of each after the other."""

    def __init__(self, kernel: Emitter, operands: Sequence[Operand], sizes: Sequence[Value], depths: Sequence[Value]) -> None:
        """With room for them. `sizes`: the features of operands, and `depths` those that are multiplied now."""
        self.kernel, b, e = kernel, kernel.b, kernel.element
        self.room = b.value(PTR, f"alloca [{ROOM_BYTES} x i8], align 64", "room")
        self.features: dict[Key, Value] = {}
        self.offsets: dict[Key, Value] = {}
        self.row_bytes = i64(0)
        for operand, size, depth in zip(operands, sizes, depths, strict=True):
            key = operand.buffer, operand.later
            if key not in self.features:
                self.features[key], self.offsets[key] = depth, self.row_bytes
                self.row_bytes = b.add(self.row_bytes, b.mul(b.ceil_div(size, e.block), room_bytes(e)), "room_row_bytes")
        self.most_rows = b.maximum(b.binary("sdiv", i64(ROOM_BYTES), self.row_bytes), 1, "most_rows")
        self.places: dict[Key, tuple[Value, Value, Value]] = {}
        """Of each, as if rows before those that were rounded last stood there too: see `Products.stands_at`."""

    def round(self, first: Value, count: Value) -> None:
        """Round so many rows from a first one on, at most `most_rows`."""
        b, kernel, e = self.kernel.b, self.kernel, self.kernel.element
        for key, features in self.features.items():
            to = b.at(self.room, self.offsets[key], "i8", "to")
            row_bytes = kernel.row_bytes[key]
            rows = kernel.advance(kernel.bases[key], b.mul(row_bytes, first), "rows")
            given = [to, self.row_bytes, rows, row_bytes, kernel.panel_bytes[key[0]], features, count]
            b.call(ROUND_ROWS, given)
            before = b.at(to, b.mul(first, b.sub(i64(0), self.row_bytes)), "i8", "before")
            self.places[key] = before, self.row_bytes, i64(room_bytes(e) * e.lanes // e.block)
