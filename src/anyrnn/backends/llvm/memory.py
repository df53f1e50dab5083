"""Where the buffers of a program, and the bits of its random choices, lie: in the reserve (from forward to backward), in scratch,
or with the caller. And the memory that calls work in.

A buffer of vectors is [panel][row][lane] with the rows of all its steps one after the other, see `extent`; one that keeps two
steps is [step][panel][row][lane]. One of scalars is [row]. Panels are rounded up to a multiple of four, so that a kernel may
touch whole groups. Every buffer begins at a multiple of 64 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from anyrnn._memory import ALIGNMENT, aligned
from anyrnn.backends.llvm.block import masks_of
from anyrnn.backends.llvm.element import SUM_ROWS, Element
from anyrnn.backends.llvm.extent import Extent
from anyrnn.backends.llvm.mask_bits import row_bytes
from anyrnn.backends.llvm.shapes import TILE_VECTORS
from anyrnn.ir.dims import Dim
from anyrnn.ir.philox import kind_of
from anyrnn.passes.plan import Program
from anyrnn.sequence.network import Network
from anyrnn.sequence.windows import Windows


def padded_panels(features: int, lanes: int) -> int:
    """Panels of so many features, with those that a group may touch beyond them."""
    return -(-features // (TILE_VECTORS * lanes)) * TILE_VECTORS


@dataclass(frozen=True)
class Placed:
    """A buffer of ours: offset in its memory, mask of steps, bytes for each unit of its table, from row to row, from panel to
    panel, and in all; the table, see `extent`.
    """

    offset: int
    mask: int
    unit_bytes: int
    row_bytes: int
    panel_bytes: int
    bytes: int
    table: str

    @property
    def words(self) -> tuple[int, int, int, int, int]:
        return self.offset, self.mask, self.unit_bytes, self.row_bytes, self.panel_bytes


@dataclass
class Arena:
    """Hands out offsets."""

    bytes: int = 0

    def take(self, bytes: int) -> int:
        offset = self.bytes
        self.bytes += max(-(-bytes // ALIGNMENT), 1) * ALIGNMENT
        return offset


def place(arena: Arena, element: Element, features: int | None, rows: int, table: str) -> Placed:
    """Room for so many rows of all steps together; `features` is None for scalars."""
    row, panels = _row_and_panels(element, features)
    return Placed(arena.take(panels * rows * row), -1, row, row, rows * row, panels * rows * row, table)


def place_packed_rows(arena: Arena, bytes: int, rows: int, table: str) -> Placed:
    """Room for so many rows of so many bytes of all steps together."""
    return Placed(arena.take(rows * bytes), -1, bytes, bytes, rows * bytes, rows * bytes, table)


def place_slots(arena: Arena, element: Element, features: int | None, slots: int, rows: int, apart: bool) -> Placed:
    """Room for `slots` steps (a power of two), of up to `rows` rows each, in turn. `apart`: whole steps follow each other."""
    row, panels = _row_and_panels(element, features)
    slot = rows * row
    bytes = panels * slots * slot
    if apart:
        return Placed(arena.take(bytes), slots - 1, panels * slot, row, slot, bytes, "steps")
    return Placed(arena.take(bytes), slots - 1, slot, row, slots * slot, bytes, "steps")


def _row_and_panels(element: Element, features: int | None) -> tuple[int, int]:
    return (element.bytes, 1) if features is None else (element.panel_row, padded_panels(features, element.lanes))


def _features(dim: Dim | None, sizes: Mapping[str, int]) -> int | None:
    return None if dim is None else dim.evaluate(sizes)


def area_rows(windows: Windows, extent: Extent, table: str) -> int:
    """Rows of an area: of a window's steps and of the one after it; of what stands between steps one more."""
    return (windows.steps + 1 + (table == "held")) * extent.rows


class ReserveLayout:
    """What the forward pass of one layer and direction keeps: the states before every step and after the last, and the saved
    values. With `windows` only those of some, and behind them the states before each window.
    """

    def __init__(
        self, network: Network, element: Element, layer: int, extent: Extent, arena: Arena, windows: Windows | None = None
    ) -> None:
        held, saved = extent.held, extent.total
        if windows:
            held, saved = (windows.areas * area_rows(windows, extent, table) for table in ("held", "saved"))
            held += windows.count * extent.rows
        sizes = network.layer_sizes(layer)
        self.buffers: dict[str, Placed] = {}
        for buffer in network.plan.training.buffers:
            features = _features(buffer.dim, sizes)
            if buffer.role == "state":
                self.buffers[buffer.name] = place(arena, element, features, held, "held")
            elif buffer.role == "saved":
                self.buffers[buffer.name] = place(arena, element, features, saved, "saved")
        for choice, dim in network.plan.training.choices.items():
            if kind_of(choice).each_step:
                bytes = row_bytes(dim.evaluate(sizes), element.lanes)
                self.buffers[masks_of(choice)] = place_packed_rows(arena, bytes, saved, "saved")


def place_scratch(
    program: Program, element: Element, sizes: Mapping[str, int], extent: Extent, arena: Arena, reserved: Mapping[str, Placed]
) -> dict[str, Placed]:
    """Room for what a program needs while it runs: the last two steps of states, two chunks of what is needed for a chunk, and
    sums.

    The two steps are far from each other: one thread writes the one while others read the other, and processors fetch
    neighbouring lines unasked.
    """
    placed = {}
    for buffer in program.buffers:
        if buffer.name in reserved:
            continue
        features = _features(buffer.dim, sizes)
        if buffer.role == "chunk":
            placed[buffer.name] = place(arena, element, features, extent.chunk_rows, "chunk")
        elif buffer.role == "sum":
            rows = -(-extent.rows // SUM_ROWS)
            placed[buffer.name] = place_slots(arena, element, features, extent.sum_slots, rows, apart=False)
        elif buffer.role in ("cross", "state"):
            placed[buffer.name] = place_slots(arena, element, features, 2, extent.rows, apart=True)
    return placed


def place_masks(
    program: Program, element: Element, sizes: Mapping[str, int], extent: Extent, arena: Arena, reserved: Mapping[str, Placed]
) -> dict[str, Placed]:
    """Room for the masks of random choices: of all samples, or of each step for two chunks."""
    placed = {}
    for choice, dim in program.choices.items():
        name, bytes = masks_of(choice), row_bytes(dim.evaluate(sizes), element.lanes)
        if not kind_of(choice).each_step:
            placed[name] = replace(place_packed_rows(arena, bytes, extent.rows, "steps"), mask=0, unit_bytes=0)
        elif name not in reserved:
            placed[name] = place_packed_rows(arena, bytes, extent.chunk_rows, "chunk")
    return placed


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

    def __init__(self, bytes: int, looked_at: bool = True) -> None:
        """`looked_at`: it may look whether they are as before."""
        super().__init__(bytes)
        if looked_at:
            self.memory.fill(0)
        self.done = False
