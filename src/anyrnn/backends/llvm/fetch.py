"""Fetches what the pointwise part of a tile will touch while the tile's products are made: memory is slow, and all at once would
wait, so a little is fetched with each panel that is multiplied. It is fetched to the second level of cache, as a core waits for
few lines on their way to the nearest. What is there already, as states of few samples are, takes as long to ask for.

Weights are fetched too, some way ahead of where they are multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence

from anyrnn.backends.llvm.builder import I64, PTR, Function, Value, i64
from anyrnn.backends.llvm.element import Element
from anyrnn.backends.llvm.emitter import Emitter, Key

LINE_BYTES = 64

STATE = ("cursor", "step", "end")
"""The words before the addresses: which is next, how many are fetched with each panel, and how many there are."""
WORDS = 2
"""address, bytes from row to row"""
NEAR_BYTES = 2**20
"""Of states, and of what passes from stage to stage, in all rows of a call: they stay in the second cache."""
SHORT_PANELS = 4
"""The products of at most so many panels take less time than memory: on some machines what the next tile will touch is fetched
meanwhile.
"""


class Fetches:
    """A table of addresses, filled for each group of panels."""

    def __init__(
        self,
        kernel: Emitter,
        far: Sequence[Key],
        near: Sequence[Key],
        hoisted: Sequence[Key],
        hoisting: Value,
        panels: int,
        rows: int,
    ) -> None:
        """A tile touches the buffers `far`, which come from memory, and `near`, or `hoisted` ones when `hoisting`, in at most so
        many panels and rows.
        """
        self.kernel, self.hoisted, self.hoisting, self.rows = kernel, hoisted, hoisting, rows
        self.pointwise, self.far = [*far, *near], len(far)
        self.count = max(len(self.pointwise), len(hoisted))
        assert kernel.kernel.dim is not None
        bytes = kernel.b.mul(kernel.b.mul(kernel.rows, kernel.size(kernel.kernel.dim)), len(near) * kernel.element.bytes)
        self.are_near = kernel.b.compare("sle", bytes, i64(NEAR_BYTES), "are_near")
        words = len(STATE) + WORDS * self.count * panels
        self.table = kernel.b.value(PTR, f"alloca [{words} x i64], align 64", "to_fetch")

    def note(self, first_panel: Value, panels_left: Value, product_panels: Value) -> None:
        """Fill the table for a group, panel by panel; `product_panels` will be multiplied for each of its tiles."""
        b = self.kernel.b
        each = b.select(self.are_near, i64(self.far), i64(len(self.pointwise)), "fetched_of_panel")
        if self.hoisted:
            each = b.select(self.hoisting, i64(len(self.hoisted)), each, "fetched_of_panel")
        end = b.mul(panels_left, each, "fetch_count")
        self.ahead: Value = i64(0)
        if self.kernel.machine.processor.tile_ahead:
            is_short = b.compare("sle", product_panels, i64(SHORT_PANELS), "is_short")
            self.ahead = b.select(is_short, i64(self.rows), i64(0), "rows_ahead")
        often = b.select(b.compare("sgt", product_panels, i64(0)), product_panels, i64(1), "often")
        step = b.ceil_div(end, often, "fetch_step")
        for name, value in (("step", step), ("end", end)):
            b.store(value, b.at(self.table, STATE.index(name), I64, name))
        panels = b.loop("panel_of_group", 0, panels_left, once=True)
        panel = b.add(first_panel, panels.index, "panel")
        first = b.at(self.table, b.add(b.mul(b.mul(panels.index, each), WORDS), len(STATE)), I64, "first")
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
        """Before a strip."""
        self.kernel.b.store(i64(0), self.kernel.b.at(self.table, STATE.index("cursor"), I64, "cursor"))


def fetch_some(b: Function, table: Value, row: Value, height: int) -> None:
    """Bring nearer the next few of what a tile of `height` rows will touch."""
    cursor, step, end = (b.at(table, k, I64, name) for k, name in enumerate(STATE))
    begin = b.load(I64, cursor, "begin")
    stop = b.minimum(b.add(begin, b.load(I64, step, "step")), b.load(I64, end, "end"), "stop")
    loop = b.loop("fetch", begin, stop)
    place = b.at(table, b.add(b.mul(loop.index, WORDS), len(STATE)), I64, "fetch")
    row_bytes = b.load(I64, b.at(place, 1, I64), "row_bytes")
    at = b.at(b.load(PTR, place, "address"), b.mul(row_bytes, row), "i8", "fetched")
    for i in range(height):
        b.prefetch(b.at(at, b.mul(row_bytes, i), "i8", "fetched"), level=2)
    b.end(loop)
    b.store(stop, cursor)


def fetch_weights(b: Function, e: Element, here: Value, vectors: Sequence[int], ahead: Value) -> None:
    """Bring to the nearest cache what some vectors of a feature's weights will be so many bytes further on."""
    for v in vectors:
        if v * e.panel_row % LINE_BYTES == 0:
            b.prefetch(b.at(here, b.add(ahead, v * e.panel_row), "i8", "coming"))
