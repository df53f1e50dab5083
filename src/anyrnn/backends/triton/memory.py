"""What a call works in, as tensors: which rows each step has, and what is kept of a training call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from math import prod

import torch
from torch import Tensor

from anyrnn.sequence.network import Network

ALIGNMENT = 256
CHUNK_ROWS = 16384
"""Rows of a chunk, about: what is multiplied at once beside the steps."""
SAME_BITS = (torch.float32, torch.float64)


def of_states(dtype: torch.dtype) -> torch.dtype:
    """In which dtype states stand between steps: rounding them to 16 bits would make bits depend on where chunks end."""
    return dtype if dtype in SAME_BITS else torch.float32


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

    @property
    def slots(self) -> tuple[int, int]:
        """Of what stands between steps, the slot before step s is the first number and s times the second."""
        return (self.extent.steps, -1) if self.reverse else (0, 1)

    @cached_property
    def tables(self) -> tuple[Tensor, Tensor]:
        """By step: its rows, and the units before it. A word stands before and behind them."""
        steps = range(self.extent.steps)
        counts = [0, *(self.count(s) for s in steps), 0]
        given = [0, *(self.extent.begins[self.caller(s)] for s in steps), 0]
        both = torch.tensor([counts, given], dtype=torch.int64).to(self.device)
        return both[0, 1:], both[1, 1:]

    def chunks(self, reverse: bool) -> tuple[Chunk, ...]:
        """Pieces of steps, in the order of a loop."""
        return _chunks(self, reverse, max(1, CHUNK_ROWS // max(1, self.extent.rows)))

    @cached_property
    def place_of_rows(self) -> tuple[Tensor, Tensor]:
        """Of each packed row the caller's step, and which row of the step it is."""
        counts = torch.tensor(self.extent.counts)
        step = torch.repeat_interleave(torch.arange(len(counts)), counts)
        row = torch.arange(len(step)) - (torch.cumsum(counts, 0) - counts)[step]
        return step.to(self.device), row.to(self.device)


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
        run, begins = self.run, self.run.extent.begins
        ends = sorted((run.caller(self.begin), run.caller(self.end - 1)))
        return begins[ends[0]], begins[ends[1] + 1]

    @property
    def rows(self) -> slice:
        """Of all rows one after the other."""
        size, (begin, end) = self.run.extent.unit_rows, self.units
        return slice(begin * size, end * size)

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
        return torch.tensor(found, dtype=torch.int64).to(self.run.device)

    def history(self, states: Tensor, later: int) -> Tensor:
        """The rows of these steps [rows, size], in the caller's order, of what stands between steps [T + 1, N, size]."""
        run, size = self.run, states.shape[-1]
        if run.extent.counts is None:
            first = run.extent.steps - self.end + 1 - later if run.reverse else self.begin + later
            return states[first : first + self.end - self.begin].reshape(-1, size)
        step, row = (place[self.rows] for place in run.place_of_rows)
        slot = step + 1 - later if run.reverse else step + later
        found: Tensor = states.view(-1, size).index_select(0, slot * run.extent.rows + row)
        return found


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

    key: tuple[int, str]
    """the unit and the buffer; the layer and `y` for what passes from layer to layer"""
    shape: tuple[int, ...]
    dtype: torch.dtype
    begin: int

    @property
    def bytes(self) -> int:
        size: int = self.dtype.itemsize
        return prod(self.shape) * size

    def of(self, reserve: Tensor) -> Tensor:
        return reserve[self.begin : self.begin + self.bytes].view(self.dtype).view(self.shape)


def kept(network: Network, dtype: torch.dtype, steps: int, total: int, rows: int) -> tuple[list[Kept], int]:
    """All of it, and the bytes that it takes."""
    found: list[Kept] = []
    end = 0

    def keep(key: tuple[int, str], shape: Sequence[int], of: torch.dtype) -> None:
        nonlocal end
        found.append(Kept(key, tuple(shape), of, end))
        end += -(-found[-1].bytes // ALIGNMENT) * ALIGNMENT

    for unit, (layer, _) in enumerate(network.units):
        sizes = network.layer_sizes(layer)
        for buffer in network.plan.training.buffers:
            size = 1 if buffer.dim is None else buffer.dim.evaluate(sizes)
            if buffer.role == "state":
                keep((unit, buffer.name), (steps + 1, rows, size), of_states(dtype))
            elif buffer.role == "saved":
                keep((unit, buffer.name), (total, size), dtype if buffer.dim is not None else of_states(dtype))
    for layer in range(network.layers - 1):
        keep((layer, "y of layer"), (total, network.width), dtype)
    return found, end
