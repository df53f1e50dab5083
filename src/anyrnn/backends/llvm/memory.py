"""Where the buffers of a program lie: in the reserve (from forward to backward), in scratch, or with the caller. And the memory
that calls work in.

A buffer of vectors is [panel][slot][row][lane], or [slot][panel][row][lane]; one of scalars is [slot][row]. Panels are rounded up
to a multiple of four, so that a kernel may touch whole groups. Every buffer begins at a multiple of 64 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anyrnn._memory import ALIGNMENT, aligned
from anyrnn.backends.llvm.emitter import SUM_ROWS, SUM_STEPS, Element
from anyrnn.ir.dims import Dim
from anyrnn.passes.plan import Buffer, Program
from anyrnn.sequence.network import Network


def padded_panels(features: int, lanes: int) -> int:
    return -(-features // (4 * lanes)) * 4


@dataclass(frozen=True)
class Placed:
    """A buffer of ours: offset in its memory, slot mask, bytes from slot to slot, row to row, panel to panel, and in all."""

    offset: int
    mask: int
    slot_bytes: int
    row_bytes: int
    panel_bytes: int
    bytes: int

    @property
    def words(self) -> tuple[int, int, int, int, int]:
        return self.offset, self.mask, self.slot_bytes, self.row_bytes, self.panel_bytes


@dataclass
class Arena:
    """Hands out offsets."""

    bytes: int = 0

    def take(self, bytes: int) -> int:
        offset = self.bytes
        self.bytes += max(-(-bytes // ALIGNMENT), 1) * ALIGNMENT
        return offset


def place(
    arena: Arena, element: Element, features: int | None, slots: int, rows: int, mask: int, slots_apart: bool = False
) -> Placed:
    """Room for `slots` steps of `rows` rows; `features` is None for scalars. `slots_apart`: whole slots follow each other."""
    if features is None:
        row, panels = element.bytes, 1
    else:
        row, panels = element.panel_row, padded_panels(features, element.lanes)
    panel = slots * rows * row
    if slots_apart:
        return Placed(arena.take(panels * panel), mask, panels * rows * row, row, rows * row, panels * panel)
    return Placed(arena.take(panels * panel), mask, rows * row, row, panel, panels * panel)


@dataclass(frozen=True)
class Extent:
    """Steps and rows of a call, and the steps of a chunk and of a gradient's block, which follow from them."""

    steps: int
    rows: int
    whole: bool = False
    """what is kept for a chunk is kept for the whole sequence, so that all of it is still there afterwards"""

    @property
    def chunk(self) -> int:
        return _power_of_two(CHUNK_ROWS // max(1, self.rows))

    @property
    def block(self) -> int:
        return _power_of_two(BLOCK_ROWS // max(1, self.rows))

    @property
    def chunk_slots(self) -> int:
        """Slots for what is kept for a chunk: two chunks in turn, or the whole sequence."""
        if self.whole:
            return _power_of_two(2 * self.steps - 1)
        return self.chunk * (1 if self.chunk >= self.steps else 2)

    @property
    def sum_slots(self) -> int:
        """Slots for what is added up over `SUM_STEPS` steps; that and a chunk's steps are powers of two."""
        return max(1, self.chunk_slots // SUM_STEPS, 1 if self.chunk >= self.steps else 2)


CHUNK_ROWS = 1024
"""Rows of a chunk, about: enough for products at full speed, few enough for the cache."""
BLOCK_ROWS = 128
"""Rows of a block of a gradient's sum, at most: rounding errors of one chain of additions grow with its length. It fixes the
order of the sum, so it never depends on the machine.
"""


def _power_of_two(n: int) -> int:
    return 1 << max(0, n.bit_length() - 1)


def _features(dim: Dim | None, sizes: Mapping[str, int]) -> int | None:
    return None if dim is None else dim.evaluate(sizes)


class Reserve:
    """What the forward pass of one layer and direction keeps: the states before every step and after the last, and the saved
    values.
    """

    def __init__(self, network: Network, element: Element, layer: int, extent: Extent, arena: Arena) -> None:
        sizes = network.layer_sizes(layer)
        self.buffers: dict[str, Placed] = {}
        for buffer in network.plan.training.buffers:
            if buffer.role in ("state", "saved"):
                slots = extent.steps + (buffer.role == "state")
                self.buffers[buffer.name] = place(arena, element, _features(buffer.dim, sizes), slots, extent.rows, -1)


def place_scratch(
    program: Program, element: Element, sizes: Mapping[str, int], extent: Extent, arena: Arena, reserved: Mapping[str, Placed]
) -> dict[str, Placed]:
    """Room for what a program needs while it runs: rings of two slots, two chunks of what is needed for a chunk, and sums.

    The two slots of a ring are far from each other: one thread writes the one while others read the other, and processors fetch
    neighbouring lines unasked.
    """

    def slots(buffer: Buffer) -> int:
        return {"chunk": extent.chunk_slots, "sum": extent.sum_slots}.get(buffer.role, 2)

    def rows(buffer: Buffer) -> int:
        return -(-extent.rows // SUM_ROWS) if buffer.role == "sum" else extent.rows

    return {
        b.name: place(arena, element, _features(b.dim, sizes), slots(b), rows(b), slots(b) - 1, b.role in ("cross", "state"))
        for b in program.buffers
        if b.role in ("chunk", "cross", "state", "sum") and b.name not in reserved
    }


class Scratch:
    """Memory that a call works in."""

    def __init__(self, bytes: int) -> None:
        self.bytes = bytes
        self.memory = aligned(bytes)
        self.address = self.memory.ctypes.data


class Packed(Scratch):
    """Memory that keeps packed weights from call to call of one network and dtype, once a call is `done`. The native code packs
    them anew when the numbers are not as before, unless it is told to trust.
    """

    def __init__(self, bytes: int) -> None:
        super().__init__(bytes)
        self.memory.fill(0)
        self.done = False
