"""Fetches what the pointwise part of a tile will touch while the tile's products are made: memory is slow, and all at once would
wait, so a little is fetched with each panel that is multiplied. It is fetched to the second level of cache, as a core waits for
few lines on their way to the nearest.
"""

from __future__ import annotations

from collections.abc import Sequence

from anyrnn.backends.llvm.builder import I64, PTR, Value, i64
from anyrnn.backends.llvm.emitter import Emitter, Key

WORDS = 2
"""address, bytes from row to row"""
SHORT_PANELS = 4
"""The products of at most so many panels take less time than memory: what the next tile will touch is fetched meanwhile."""


class Fetches:
    """A table of addresses, filled for each group of panels."""

    def __init__(
        self, kernel: Emitter, pointwise: Sequence[Key], hoisted: Sequence[Key], hoisting: Value, panels: int, rows: int
    ) -> None:
        """`pointwise` are the buffers that a tile touches, or `hoisted` when `hoisting`, in at most so many panels and rows."""
        self.kernel, self.pointwise, self.hoisted, self.hoisting, self.rows = kernel, pointwise, hoisted, hoisting, rows
        self.count = max(len(pointwise), len(hoisted))
        b = kernel.b
        self.table = b.value(PTR, f"alloca [{max(1, WORDS * self.count * panels)} x i64], align 64", "to_fetch")
        self.cursor = b.value(PTR, "alloca i64, align 8", "cursor")

    def note(self, first_panel: Value, panels_left: Value, product_panels: Value) -> None:
        """Fill the table for a group, panel by panel; `product_panels` will be multiplied for each of its tiles."""
        b = self.kernel.b
        each: Value = i64(len(self.pointwise))
        if self.hoisted:
            each = b.select(self.hoisting, i64(len(self.hoisted)), each, "fetched_of_panel")
        self.end = b.mul(panels_left, each, "fetch_count")
        is_short = b.compare("sle", product_panels, i64(SHORT_PANELS), "is_short")
        self.ahead = b.select(is_short, i64(self.rows), i64(0), "rows_ahead")
        often = b.select(b.compare("sgt", product_panels, i64(0)), product_panels, i64(1), "often")
        self.step = b.binary("sdiv", b.add(self.end, b.sub(often, 1)), often, "fetch_step")
        panels = b.loop("panel_of_group", 0, panels_left, once=True)
        panel = b.add(first_panel, panels.index, "panel")
        first = b.at(self.table, b.mul(b.mul(panels.index, each), WORDS), I64, "first")
        for k in range(self.count):
            words = [self._words(keys[k], panel) for keys in (self.pointwise, self.hoisted) if k < len(keys)]
            if len(words) > 1:
                words = [tuple(b.select(self.hoisting, y, x, "fetch") for x, y in zip(*words, strict=True))]
            for word, value in enumerate(words[0]):
                b.store(value, b.at(first, WORDS * k + word, I64, "fetch"))
        b.end(panels)

    def _words(self, key: Key, panel: Value) -> tuple[Value, ...]:
        return self.kernel.panel_at(key, panel, self.ahead), self.kernel.row_bytes[key]

    def restart(self) -> None:
        """Before a tile."""
        self.kernel.b.store(i64(0), self.cursor)

    def some(self, row: Value, height: int) -> None:
        """Bring nearer the next few of what a tile of `height` rows will touch."""
        b, advance = self.kernel.b, self.kernel.advance
        begin = b.load(I64, self.cursor, "cursor")
        end = b.minimum(b.add(begin, self.step), self.end, "cursor")
        loop = b.loop("fetch", begin, end)
        place = b.at(self.table, b.mul(loop.index, WORDS), I64, "fetch")
        row_bytes = b.load(I64, b.at(place, 1, I64), "row_bytes")
        at = advance(b.load(PTR, place, "address"), b.mul(row_bytes, row), "fetched")
        for i in range(height):
            b.prefetch(advance(at, b.mul(row_bytes, i), "fetched"), level=2)
        b.end(loop)
        b.store(end, self.cursor)
