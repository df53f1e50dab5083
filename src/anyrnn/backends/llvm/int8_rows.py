"""Emits the rounding of a kernel's operands to eight bits: of some rows, before all products with them."""

from __future__ import annotations

from collections.abc import Sequence

from anyrnn.backends.llvm.builder import PTR, Value, i64
from anyrnn.backends.llvm.emitter import Emitter, Key
from anyrnn.backends.llvm.int8 import ROUND_ROWS, row_bytes
from anyrnn.backends.llvm.shapes import Operand

ROOM_BYTES, SMALL_ROOM_BYTES = 2**18, 2**16
"""Of a thread's stack, for as many rounded rows as that holds, or for one: a second cache holds it beside weights. The small one
is for object files, whose threads are others'.
"""


class RoundedRows:
    """The operands of one kernel: a row has those of each after the other."""

    def __init__(self, kernel: Emitter, operands: Sequence[Operand], sizes: Sequence[Value], depths: Sequence[Value]) -> None:
        """With room for them. `sizes`: the features of operands, and `depths` those that are multiplied now."""
        self.kernel, b = kernel, kernel.b
        self.features: dict[Key, Value] = {}
        self.offsets: dict[Key, Value] = {}
        self.bytes = i64(0)
        """of a row"""
        for operand, size, depth in zip(operands, sizes, depths, strict=True):
            key = operand.buffer, operand.later
            if key not in self.features:
                self.features[key], self.offsets[key] = depth, self.bytes
                self.bytes = b.add(self.bytes, row_bytes(b, kernel.element, size), "room_row_bytes")
        room = SMALL_ROOM_BYTES if kernel.machine.one_thread else ROOM_BYTES
        most = b.maximum(b.binary("sdiv", i64(room), self.bytes), 1, "most_rows")
        parts = b.maximum(b.ceil_div(kernel.rows, most), 1, "parts")
        self.rows = b.ceil_div(kernel.rows, parts, "rows_together")
        """how many are rounded at once; in parts as even as can be, as a short one reads all weights for few products"""
        self.room = b.value(PTR, f"alloca i8, {b.mul(self.rows, self.bytes).typed}, align 64", "room")
        self.places: dict[Key, tuple[Value, Value]] = {}
        """Of each the address, as if rows before those that were rounded last stood there too, and bytes from row to row."""

    def round(self, first: Value, count: Value) -> None:
        """Round so many rows from a first one on, at most `rows`."""
        b, kernel = self.kernel.b, self.kernel
        for key, features in self.features.items():
            to, apart = b.at(self.room, self.offsets[key], "i8", "to"), kernel.row_bytes[key]
            rows = kernel.advance(kernel.bases[key], b.mul(apart, first), "rows")
            with b.only_if(b.compare("sgt", features, i64(0)), "multiplied"):
                b.call(ROUND_ROWS, [to, self.bytes, rows, apart, kernel.panel_bytes[key[0]], features, count])
            self.places[key] = b.at(to, b.mul(first, b.sub(i64(0), self.bytes)), "i8", "before"), self.bytes
