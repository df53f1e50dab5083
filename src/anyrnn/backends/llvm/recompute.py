"""Training calls that keep less than their backward passes need, see `anyrnn.sequence.windows`.

Each window that is kept has an area of its own in the reserve, all others share the first one. Between the
windows of a call nothing changes but the tables that say where rows stand, and states are copied from area to area, so kernels
know nothing of windows, and results have the bits that they have without.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt

from anyrnn._locks import ForkedLock
from anyrnn.backends.llvm.element import Element
from anyrnn.backends.llvm.extent import BEFORE, TABLES, Extent
from anyrnn.backends.llvm.frame import Frame
from anyrnn.backends.llvm.memory import Arena, Placed, ReserveLayout, Scratch, area_rows
from anyrnn.backends.llvm.words import between_bytes
from anyrnn.sequence.network import Network
from anyrnn.sequence.packing import Integers
from anyrnn.sequence.windows import Windows, choose_windows

LOCK = ForkedLock()
"""Around backward calls: two over one forward call would write to the area that its windows share."""


@lru_cache(maxsize=256)
def choose(network: Network, element: Element, extent: Extent, budget: int) -> Windows | None:
    """See `anyrnn.sequence.windows.choose_windows`."""
    bytes_of = partial(_bytes, network, element, extent)
    return choose_windows(network, extent.steps, extent.rows, extent.chunk, budget, bytes_of)


def _bytes(network: Network, element: Element, extent: Extent, windows: Windows | None) -> int:
    """That a training call keeps."""
    arena = Arena()
    for layer, _ in network.units:
        ReserveLayout(network, element, layer, extent, arena, windows)
    for _ in range(network.layers - 1):
        arena.take(between_bytes(network, element, extent))
    return arena.bytes


class Areas:
    """Where the rows of one layer and direction stand in the windows of a call."""

    def __init__(self, frame: Frame, unit: int, windows: Windows, reserve: int) -> None:
        self.extent, self.windows = frame.shape.extent, windows
        self.buffers: dict[str, list[tuple[npt.NDArray[np.uint8], int]]] = {"saved": [], "held": []}
        """of each kind the memory of each buffer, [panels, bytes], and its bytes from row to row"""
        for buffer in frame.units[unit].kept.values():
            self.buffers[buffer.table].append((_panels(buffer, reserve), buffer.row_bytes))
        direction = frame.units[unit].direction
        self.packed, self.around = (_sums_of(self.extent, direction > 0, held) for held in (False, True))
        self.tables = [self._tables(frame.tables[direction], window) for window in range(windows.count)]
        """by window, the parts of the tables that it changes, and what is to stand there"""

    def steps(self, window: int) -> tuple[int, int]:
        """The first step of a window and its end."""
        begin = window * self.windows.steps
        return begin, min(begin + self.windows.steps, self.extent.steps)

    def chunks(self, window: int) -> tuple[int, int]:
        begin, end = self.steps(window)
        return begin // self.extent.chunk, -(-end // self.extent.chunk)

    def put(self, window: int) -> None:
        """Let the tables say where the steps of a window stand, and what its kernels read of the step after it."""
        for table, rows in self.tables[window]:
            table[:] = rows

    def _tables(self, tables: Integers, window: int) -> list[tuple[Integers, Integers]]:
        begin, end = self.steps(window)
        found = []
        for name, sums, last in (
            ("saved", self.packed, min(end, self.extent.steps - 1)),
            ("held", self.around, min(end + 1, self.extent.steps)),
        ):
            area = self.windows.area(window) * area_rows(self.windows, self.extent, name)
            where = tables[TABLES.index(name), BEFORE + begin : BEFORE + last + 1]
            found.append((where, area + sums[begin : last + 1] - sums[begin]))
        return found

    def go_on(self, window: int) -> None:
        """Bring the states after the window before this one to where it begins, and remember them if it will be done again."""
        begin, _ = self.steps(window)
        source, count = self._held(window - 1, begin), int(self.around[begin + 1] - self.around[begin])
        if self.windows.again(window):  # first, as areas may overlap
            self._move("held", source, self._checkpoint(window), count)
        self._move("held", source, self._held(window, begin), count)

    def go_back(self, window: int) -> None:
        """Bring the first step after a window, which was the first of the next one, to the window's own end."""
        _, end = self.steps(window)
        if end == self.extent.steps:
            return
        self._move("saved", self._saved(window + 1, end), self._saved(window, end), int(self.packed[end + 1] - self.packed[end]))
        count = int(self.around[end + 2] - self.around[end + 1])
        self._move("held", self._held(window + 1, end + 1), self._held(window, end + 1), count)

    def restore(self, window: int) -> None:
        """Bring back the states before a window that is done again."""
        begin, _ = self.steps(window)
        if window:
            count = int(self.around[begin + 1] - self.around[begin])
            self._move("held", self._checkpoint(window), self._held(window, begin), count)

    def _saved(self, window: int, step: int) -> int:
        area = self.windows.area(window) * area_rows(self.windows, self.extent, "saved")
        return area + int(self.packed[step] - self.packed[window * self.windows.steps])

    def _held(self, window: int, step: int) -> int:
        area = self.windows.area(window) * area_rows(self.windows, self.extent, "held")
        return area + int(self.around[step] - self.around[window * self.windows.steps])

    def _checkpoint(self, window: int) -> int:
        return self.windows.areas * area_rows(self.windows, self.extent, "held") + window * self.extent.rows

    def _move(self, table: str, source: int, target: int, count: int) -> None:
        """Copy rows of all buffers of a kind."""
        if count:
            for panels, bytes in self.buffers[table]:
                panels[:, target * bytes : (target + count) * bytes] = panels[:, source * bytes : (source + count) * bytes]


def _panels(buffer: Placed, reserve: int) -> npt.NDArray[np.uint8]:
    memory = (ctypes.c_uint8 * buffer.bytes).from_address(reserve + buffer.offset)
    return np.ctypeslib.as_array(memory).reshape(-1, buffer.panel_bytes)


def _prepared(frame: Frame, addresses: Sequence[int]) -> Scratch:
    """Make a frame ready for pieces, in this memory."""
    scratch = Scratch(frame.own_bytes + frame.packed_bytes)
    frame.prepare(addresses, scratch)
    frame.use(frame.threads)
    return scratch


def _sums_of(extent: Extent, reverse: bool, held: bool) -> Integers:
    """The rows before each step of all steps, of what is saved in steps or held between them."""
    table = extent.tables(reverse)[TABLES.index("held" if held else "packed"), BEFORE:]
    return np.append(table, table[-1])


def forward(frame: Frame, addresses: Sequence[int]) -> None:
    """A training call. The last of the addresses is that of the reserve."""
    windows = frame.shape.windows
    assert windows is not None
    memory = _prepared(frame, addresses)
    for position, unit in enumerate(frame.order):
        areas = Areas(frame, unit, windows, addresses[-1])
        for window in range(windows.count):
            areas.put(window)
            if window:
                areas.go_on(window)
            frame.run_piece(position, *areas.chunks(window))
    del memory  # pieces work in it until here


def backward(frame: Frame, again: Frame, addresses: Sequence[int], to_do_again: Sequence[int]) -> None:
    """A backward call. `again`: the training call's frame, without outputs; `to_do_again`: its addresses."""
    with LOCK.now:
        _backward(frame, again, addresses, to_do_again)


def _backward(frame: Frame, again: Frame, addresses: Sequence[int], to_do_again: Sequence[int]) -> None:
    windows = frame.shape.windows
    assert windows is not None
    memory = _prepared(frame, addresses), _prepared(again, to_do_again)
    chunks = -(-frame.shape.extent.steps // frame.shape.extent.chunk)
    for position, unit in enumerate(frame.order):
        areas, theirs = (Areas(one, unit, windows, addresses[-1]) for one in (frame, again))
        fresh = True
        for window in reversed(range(windows.count)):
            first, end = areas.chunks(window)
            does_again = windows.again(window)
            if does_again:
                theirs.put(window)
                if fresh:  # packs weights, and writes first states, where nothing stands yet
                    again.run_piece(again.order.index(unit), 0, 0)
                    fresh = False
            areas.go_back(window)
            if does_again:
                theirs.restore(window)
                again.run_piece(again.order.index(unit), first, end)
            areas.put(window)
            frame.run_piece(position, chunks - end, chunks - first)
    del memory  # pieces work in it until here
