"""What a call works in, as tensors: which rows each step has, and what is kept of a training call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from math import prod

import torch
from torch import Tensor

from anyrnn.backends.triton.names import power_of_two
from anyrnn.backends.triton.tape_watching import unwatched
from anyrnn.errors import UnsupportedError
from anyrnn.sequence.network import Network
from anyrnn.sequence.windows import Windows, choose_windows

ALIGNMENT = 256
"""Bytes: a block of CUDA's begins at such a multiple, and so does each part of one of ours."""
CHUNK_ROWS = 16384
"""Rows of a chunk, about: what is multiplied at once beside the steps."""
CAPTURED: list[object] = []
"""What graphs of launches read that caches may forget, see `keep`."""
SAME_BITS = (torch.float32, torch.float64)


def of_states(dtype: torch.dtype) -> torch.dtype:
    """In which dtype states stand between steps: rounding them to 16 bits would make bits depend on where chunks end."""
    return dtype if dtype in SAME_BITS else torch.float32


def keep(device: torch.device, thing: object, *tensors: Tensor) -> None:
    """What a cache may forget, with its tensors: until the current stream has read them; for good while a graph of launches is
    captured, which reads them again whenever it is run.
    """
    if device.type != "cuda":
        return
    if torch.cuda.is_current_stream_capturing():
        CAPTURED.append(thing)
        return
    for tensor in tensors:
        tensor.record_stream(torch.cuda.current_stream(device))


def brought(table: Tensor, device: torch.device) -> Tensor:
    """A table of the CPU's on a device. Raises: UnsupportedError while a graph of launches is captured."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        what = "tables of its steps are brought to the device by the first call of a shape"
        raise UnsupportedError(f"{what}: make such a call before it is captured in a CUDA graph")
    return table.to(device)


def span(tensor: Tensor) -> int:
    """Bytes from the first number to behind the last."""
    if not tensor.numel():
        return 0
    return (1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))) * tensor.element_size()


LEAST_COUNTERS = 1024
COUNTERS: dict[tuple[int | None, int, int], Tensor] = {}
"""By index of the device, stream and size."""


def counters(device: torch.device, count: int) -> Tensor:
    """Zeros, at least so many, at which programs wait for each other; they set them back. A graph of launches has its own: it may
    run beside what the stream runs that it was captured on.
    """
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return torch.zeros(count, dtype=torch.int32, device=device)
    return counters_of_stream(device, current_stream(device), max(LEAST_COUNTERS, power_of_two(count)))


def current_stream(device: torch.device) -> int:
    """Its handle; zero without a CUDA device."""
    handle: int = torch._C._cuda_getCurrentRawStream(device.index) if device.type == "cuda" else 0
    return handle


def counters_of_stream(device: torch.device, stream: int, size: int) -> Tensor:
    """Those of a stream that are so many."""
    key = device.index, stream, size
    found = COUNTERS.get(key)
    if found is None:
        with unwatched():
            found = COUNTERS.setdefault(key, torch.zeros(size, dtype=torch.int32, device=device))
    return found


def are_counters(tensor: Tensor) -> bool:
    """Whether a tensor is what `counters_of_stream` gives."""
    return any(tensor is one for one in tuple(COUNTERS.values()))  # to which another thread may add


@dataclass(frozen=True)
class Extent:
    """Steps and rows of a call; `counts` are the rows of each step, never more than of the step before; None: always all."""

    steps: int
    rows: int
    counts: tuple[int, ...] | None = None

    @property
    def total(self) -> int:
        """Rows of all steps."""
        return self.steps * self.rows if self.counts is None else sum(self.counts)

    @cached_property
    def begins(self) -> list[int]:
        """Units before each step of the caller's, and before the end: steps, or where they have different rows, rows."""
        return list(range(self.steps + 1)) if self.counts is None else list(accumulate(self.counts, initial=0))

    @property
    def unit_rows(self) -> int:
        """Rows of a unit."""
        return self.rows if self.counts is None else 1


@dataclass(frozen=True)
class Run:
    """How a direction goes through an extent. Steps are those of the run, which in a reverse direction begins with the last."""

    extent: Extent
    reverse: bool
    device: torch.device

    def caller(self, step: int) -> int:
        """The caller's step."""
        return self.extent.steps - 1 - step if self.reverse else step

    def count(self, step: int) -> int:
        """Rows of a step."""
        counts = self.extent.counts
        return self.extent.rows if counts is None else counts[self.caller(step)]

    @cached_property
    def tables(self) -> tuple[Tensor, Tensor]:
        """By step: its rows, and the units before it. A word stands before and behind them."""
        steps = range(self.extent.steps)
        counts = [0, *(self.count(s) for s in steps), 0]
        given = [0, *(self.extent.begins[self.caller(s)] for s in steps), 0]
        both = brought(torch.tensor([counts, given], dtype=torch.int64, device="cpu"), self.device)
        return both[0, 1:], both[1, 1:]

    def units(self, begin: int, end: int) -> tuple[int, int]:
        """From which unit to which the steps from one to before another are."""
        begins, ends = self.extent.begins, sorted((self.caller(begin), self.caller(end - 1)))
        return begins[ends[0]], begins[ends[1] + 1]

    def windows(self, windows: Windows | None) -> tuple[Window, ...]:
        """All steps, or the parts of them whose states and saved values stand together."""
        size = self.extent.steps if windows is None else windows.steps
        starts = range(0, self.extent.steps, size) if size else (0,)
        return tuple(Window(self, begin, min(begin + size, self.extent.steps)) for begin in starts)

    @cached_property
    def place_of_rows(self) -> tuple[Tensor, Tensor]:
        """Of each packed row the caller's step, and which row of the step it is."""
        counts = torch.tensor(self.extent.counts, device="cpu")
        step = torch.repeat_interleave(torch.arange(len(counts), device="cpu"), counts)
        row = torch.arange(len(step), device="cpu") - (torch.cumsum(counts, 0) - counts)[step]
        return brought(step, self.device), brought(row, self.device)


@dataclass(frozen=True)
class Window:
    """Steps of a run whose states and saved values stand together, from the first place of their memory on."""

    run: Run
    begin: int
    end: int

    @property
    def slots(self) -> tuple[int, int]:
        """Of what stands between steps, the slot before step s is the first number and s times the second."""
        return (self.end, -1) if self.run.reverse else (-self.begin, 1)

    @cached_property
    def first_unit(self) -> int:
        """Where saved values begin."""
        return self.run.units(self.begin, self.end)[0] if self.begin < self.end else 0

    def chunks(self, reverse: bool) -> tuple[Chunk, ...]:
        """Pieces of its steps, in the order of a loop."""
        chunks = _chunks(self.run, reverse, chunk_steps(self.run.extent.rows))
        return tuple(chunk for chunk in chunks if self.begin <= chunk.begin < self.end)

    def border(self, first: bool, reverse: bool) -> int | Tensor:
        """Before which step of the window each row has its first state in a loop, or after which its last, as a slot: one for
        all, or the slot of each. Rows whose steps are all outside have theirs where the loop enters, or leaves.
        """
        if self.run.extent.counts is not None:
            found = _borders(self, first != reverse)
            keep(self.run.device, found, found)
            return found
        slot, sign = self.slots
        return slot + sign * (self.begin if first != reverse else self.end)


@dataclass(frozen=True)
class Chunk:
    """Some steps of a run that follow each other."""

    run: Run
    begin: int
    end: int
    backwards: bool
    """whether the loop goes from the last step to the first"""

    @cached_property
    def units(self) -> tuple[int, int]:
        """From which unit to which they are."""
        return self.run.units(self.begin, self.end)

    def rows(self, first_unit: int = 0) -> slice:
        """Of all rows one after the other from a unit on."""
        size, (begin, end) = self.run.extent.unit_rows, self.units
        return slice((begin - first_unit) * size, (end - first_unit) * size)

    @property
    def total(self) -> int:
        """Rows."""
        begin, end = self.units
        return (end - begin) * self.run.extent.unit_rows

    @cached_property
    def table(self) -> Tensor:
        """Of segments of steps with equally many rows: the first step in the order of the loop, how many steps, their rows."""
        steps = range(self.begin, self.end)
        found: list[tuple[int, int, int]] = []
        for step in reversed(steps) if self.backwards else steps:
            count = self.run.count(step)
            if found and found[-1][2] == count:
                found[-1] = (found[-1][0], found[-1][1] + 1, count)
            else:
                found.append((step, 1, count))
        return brought(torch.tensor(found, dtype=torch.int64, device="cpu"), self.run.device)

    def history(self, states: Tensor, later: int, window: Window) -> Tensor:
        """The rows of these steps [rows, size], in the caller's order, of what stands between a window's [slots, N, size]."""
        run, size, (slot, sign) = self.run, states.shape[-1], window.slots
        if run.extent.counts is None:
            first = slot + sign * ((self.end - 1 if run.reverse else self.begin) + later)
            return states[first : first + self.end - self.begin].reshape(-1, size)
        step, row = (place[self.rows()] for place in run.place_of_rows)
        slots = slot + sign * ((run.extent.steps - 1 - step if run.reverse else step) + later)
        found: Tensor = states.view(-1, size).index_select(0, slots * run.extent.rows + row)
        return found


@lru_cache(maxsize=256)
def _borders(window: Window, begins: bool) -> Tensor:
    """The slot of each row before its first step of a window, or else after its last; brought to a device once."""
    run, (slot, sign) = window.run, window.slots
    counts, rows = torch.tensor(run.extent.counts, device="cpu"), torch.arange(run.extent.rows, device="cpu")
    lengths = (counts[:, None] > rows).sum(0)
    first, end = (run.extent.steps - lengths, rows * 0 + run.extent.steps) if run.reverse else (rows * 0, lengths)
    steps = (first if begins else end).clamp(window.begin, window.end)
    return brought(slot + sign * steps, run.device)


def chunk_steps(rows: int) -> int:
    """Steps of a chunk, of so many rows."""
    return max(1, CHUNK_ROWS // max(1, rows))


@lru_cache(maxsize=256)
def _chunks(run: Run, reverse: bool, length: int) -> tuple[Chunk, ...]:
    """With their tables, which are brought to a device once: while a graph of launches is captured nothing can be."""
    steps = run.extent.steps
    starts = range(0, steps, length)
    order = reversed(starts) if reverse else starts
    return tuple(Chunk(run, first, min(first + length, steps), reverse) for first in order)


@lru_cache(maxsize=64)
def run_of(extent: Extent, reverse: bool, device: torch.device) -> Run:
    """Its tables are made once."""
    return Run(extent, reverse, device)


@dataclass(frozen=True)
class Kept:
    """Where one thing that a training call keeps stands in the reserve."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    begin: int

    @property
    def bytes(self) -> int:
        size: int = self.dtype.itemsize
        return prod(self.shape) * size

    def of(self, reserve: Tensor) -> Tensor:
        return reserve[self.begin : self.begin + self.bytes].view(self.dtype).view(self.shape)


@dataclass(frozen=True)
class Layout:
    """What a training call keeps, and where it stands in the reserve."""

    windows: Windows | None
    kept: dict[tuple[int, str], Kept]
    """by unit and buffer, the states before every step and after the last, and the saved values: of each window that is kept, and
    of one more for all others"""
    before: dict[tuple[int, str], Kept]
    """the states before each of the windows"""
    between: tuple[Kept, ...]
    """what passes from layer to layer"""
    bytes: int

    def of_window(self, reserve: Tensor, unit: int, window: int) -> dict[str, Tensor]:
        """By buffer, states [slots, N, F] and saved values [rows, F]."""
        area = 0 if self.windows is None else self.windows.area(window)
        return {name: one.of(reserve)[area] for (of, name), one in self.kept.items() if of == unit}

    def before_window(self, reserve: Tensor, unit: int, window: int) -> dict[str, Tensor]:
        """The states of each row, [N, F]; of windows that are all steps none are needed."""
        return {name: one.of(reserve)[window] for (of, name), one in self.before.items() if of == unit}


@lru_cache(maxsize=256)
def layout_of(network: Network, dtype: torch.dtype, steps: int, total: int, rows: int, windows: Windows | None = None) -> Layout:
    """Of a call with so many steps, and rows in all steps and in the widest."""
    kept: dict[tuple[int, str], Kept] = {}
    before: dict[tuple[int, str], Kept] = {}
    areas, long, saved = (1, steps, total) if windows is None else (windows.areas, windows.steps, windows.steps * rows)
    end = 0

    def room(shape: Sequence[int], of: torch.dtype) -> Kept:
        nonlocal end
        found = Kept(tuple(shape), of, end)
        end += -(-found.bytes // ALIGNMENT) * ALIGNMENT
        return found

    for unit, (layer, _) in enumerate(network.units):
        sizes = network.layer_sizes(layer)
        for buffer in network.plan.training.buffers:
            size = 1 if buffer.dim is None else buffer.dim.evaluate(sizes)
            if buffer.role == "state":
                kept[unit, buffer.name] = room((areas, long + 1, rows, size), of_states(dtype))
                if windows is not None:
                    before[unit, buffer.name] = room((windows.count, rows, size), of_states(dtype))
            elif buffer.role == "saved":
                kept[unit, buffer.name] = room((areas, saved, size), dtype if buffer.dim is not None else of_states(dtype))
    between = tuple(room((total, network.width), dtype) for _ in range(network.layers - 1))
    return Layout(windows, kept, before, between, end)


def windows_of(network: Network, dtype: torch.dtype, extent: Extent, budget: int | None) -> Windows | None:
    """What a training call keeps, if not everything. Raises: UnsupportedError when a budget is too small."""
    return None if budget is None else _windows(network, dtype, extent, budget, chunk_steps(extent.rows))


@lru_cache(maxsize=256)
def _windows(network: Network, dtype: torch.dtype, extent: Extent, budget: int, chunk: int) -> Windows | None:
    def bytes_of(windows: Windows | None) -> int:
        return layout_of(network, dtype, extent.steps, extent.total, extent.rows, windows).bytes

    return choose_windows(network, extent.steps, extent.rows, chunk, budget, bytes_of)


def reserve_bytes(network: Network, dtype: torch.dtype, steps: int, total: int, rows: int, budget: int | None) -> int:
    """What a training call keeps for its backward call, within a budget if there is one, and then a multiple of `ALIGNMENT`, so
    that it can be viewed in any dtype. The numbers may be symbolic, as where a program is compiled for any of them; such ones are
    no keys of a cache.
    """
    known = all(isinstance(number, int) for number in (steps, total, rows))
    needed = (layout_of if known else layout_of.__wrapped__)(network, dtype, steps, total, rows).bytes
    return needed if budget is None else min(needed, budget // ALIGNMENT * ALIGNMENT)
