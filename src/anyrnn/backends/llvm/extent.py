"""Which rows each step has, and where they stand in memory.

The rows of a call are its samples. A step has the first so many of them: all, or, where sequences end at different steps, those
that are so long; the longest come first. Kernels find the rows of step t through a table of words, one for each kind of buffer,
which says how many units (rows, or steps) before them there are:

    counts   the rows of each step, none before the first and after the last: no places, but how many there are
    steps    t: what keeps a few steps in turn, or the caller's arrays of any strides
    given    where a direction finds step t of the caller's arrays: t, or from the end; where steps have different rows, rows
    packed   the rows of the steps before
    saved    the same of what is kept for a backward pass; within a window if not all of it is kept, see `recompute`
    held     the same of what stands between steps: a state before step t has the rows of step t and those that ended just now
    chunk    the rows of the steps of a chunk before, in room for two chunks; where threads split rows that end at different
             steps, all rows of those steps, so that a place stays one thread's

Steps are those of a run, which in a reverse direction begins with the last of the sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn.backends.llvm.element import SUM_STEPS

CHUNK_ROWS = 1024
"""Rows of a chunk, about: enough for products at full speed, few enough for the cache."""
BLOCK_ROWS = 128
"""Rows of a block of a gradient's sum, at most: rounding errors of one chain of additions grow with its length. It fixes the
order of the sum, so it never depends on the machine.
"""
TABLES = ("counts", "steps", "given", "packed", "saved", "held", "chunk")
BEFORE = 1
"""Words of a table before that of step 0. Two follow that of the last step."""


@dataclass(frozen=True)
class Extent:
    """Steps and rows of a call, and the steps of a chunk and of a gradient's block, which follow from them."""

    steps: int
    rows: int
    counts: tuple[int, ...] | None = None
    """the rows of each step, never more than of the step before; None: all rows in every step"""
    whole: bool = False
    """what is kept for a chunk is kept for the whole sequence, so that all of it is still there afterwards"""

    @property
    def chunk(self) -> int:
        return _power_of_two_within(CHUNK_ROWS // max(1, self.rows))

    @property
    def block(self) -> int:
        return _power_of_two_within(BLOCK_ROWS // max(1, self.rows))

    @cached_property
    def total(self) -> int:
        """Rows of all steps."""
        return self.steps * self.rows if self.counts is None else sum(self.counts)

    @property
    def held(self) -> int:
        """Rows of what stands between steps."""
        return self.total + self.rows

    @property
    def chunks_kept(self) -> int:
        """How many chunks have room in turn; one where that is all there are."""
        return 1 if self.chunk >= self.steps else 2

    @property
    def chunk_rows(self) -> int:
        """Rows of what is kept for a chunk."""
        return self.total if self.whole else self.chunks_kept * min(self.chunk, self.steps) * self.rows

    @property
    def sum_slots(self) -> int:
        """Slots for what is added up over `SUM_STEPS` steps, a power of two."""
        steps = _power_of_two_within(2 * self.steps - 1) if self.whole else self.chunks_kept * self.chunk
        return max(1, steps // SUM_STEPS, self.chunks_kept)

    @property
    def words(self) -> int:
        """Of a table."""
        return BEFORE + self.steps + 2

    @cached_property
    def room(self) -> Extent:
        """What memory is laid out for, so that batches whose sequences end at different steps are calls of few kinds: as many
        rows, as many steps and rows of all steps or more. Steps are a power of two, as chunks are, so that there are as many
        chunks in turn; of its counts nothing else has a meaning. Where all samples have all steps, the extent itself.
        """
        return self if self.counts is None else _room(self.steps, self.rows, self.total)

    def tables(self, reverse: bool) -> npt.NDArray[np.int64]:
        """[table, word], for one direction."""
        found = np.zeros((len(TABLES), self.words), np.int64)
        run, steps, given, packed, saved, held, chunk = found[:, BEFORE:]  # views: of the steps, one behind them, and one more
        count = self.steps
        steps[: count + 1] = np.arange(count + 1)
        order = steps[:count][::-1] if reverse else steps[:count]
        if self.counts is None:
            run[:count] = self.rows
            given[:count] = order
        else:
            counts = np.array(self.counts, np.int64)
            begins = counts.cumsum() - counts
            run[:count], given[:count] = (counts[::-1], begins[::-1]) if reverse else (counts, begins)
        run[:count].cumsum(out=packed[1 : count + 1])
        saved[:] = packed
        np.maximum(run[:-1], found[0, : count + 1]).cumsum(out=held[1:])  # of a step and the one before it
        chunk[: count + 1] = self._in_chunks(packed[: count + 1])
        return found

    def chunk_table(self, run: npt.NDArray[np.int64], apart: bool) -> npt.NDArray[np.int64]:
        """The last of the tables, of steps with so many rows; `apart`: each has room for all."""
        return _word_for_each(self._in_chunks(np.arange(self.steps + 1) * self.rows if apart else _sums(run)), self.steps)

    def _in_chunks(self, before: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """From the rows before each step of all, those of its chunk, in room for two chunks."""
        if self.whole or self.chunk > self.steps:
            return before
        steps = np.arange(self.steps + 1)
        turns = steps // self.chunk % self.chunks_kept * (self.chunk * self.rows)
        found: npt.NDArray[Any] = before - before[steps // self.chunk * self.chunk] + turns
        return found


@lru_cache(maxsize=1024)
def _room(steps: int, rows: int, total: int) -> Extent:
    of_steps, eighth = 1 << max(0, steps - 1).bit_length(), max(1, _power_of_two_within(total) // 8)
    of_total = min(-(-total // eighth) * eighth, of_steps * rows)
    each, more = divmod(of_total, of_steps)
    return Extent(of_steps, rows, (each + 1,) * more + (each,) * (of_steps - more))


def _sums(counts: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Of all before each, and of all."""
    return np.append(0, np.cumsum(counts))


def _word_for_each(values: npt.NDArray[Any], steps: int) -> npt.NDArray[np.int64]:
    words = np.zeros(BEFORE + steps + 2, np.int64)
    words[BEFORE : BEFORE + len(values)] = values[: steps + 2]
    return words


def _power_of_two_within(n: int) -> int:
    """The largest that is no larger; 1 at least."""
    return 1 << max(0, n.bit_length() - 1)
