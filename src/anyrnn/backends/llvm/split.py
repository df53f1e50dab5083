"""How the work of a call is divided over threads, by a small model of how long it takes. The figures are rough: those of one core
that has AVX-512. They decide how fast a call is, how soon one can be interrupted, and whether it lets other Python threads run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

FLOPS = 1.25e10
"""A second on one core, for each lane of its vectors."""
READ, PACKED, MOVED = 1.1e11, 1e10, 3e10
"""Bytes a second on one core: of weights read from its second level of cache, of weights packed, of vectors."""
START, WAIT = 5e-6, 0.15e-6
"""Seconds to begin on other threads that still look for work, and to wait for each other once in a step."""
WAKE = 60e-6
"""Seconds to begin on threads that sleep."""
SHARED = 4e-5
"""A thread's part of a stage that takes so many seconds is worth being shared with others that are done with theirs."""
STAGES_OF_CHUNK = 8
"""There are about so many stages at the most that are done for a chunk at once."""
PIECE = 0.1
"""A call of more seconds is done in pieces of so many, between which it may be interrupted."""
LONG = 50e-6
"""A call of more seconds lets other Python threads run; giving the interpreter's lock back and forth beside busy ones takes far
longer than a shorter call.
"""
BALANCED = 1.05
"""How much more than its share of the work a thread may have where rows are split."""
ROWS_PER_THREAD = ((2**19, 12), (2**24, 48), (None, 128))
"""(Bytes of the weights that a stage reads at the most, samples a thread.) With fewer samples a thread, columns are split over
threads; with as many, samples are, for then no thread waits for another in a step. But then every thread reads all weights in
every step, and multiplies each of them by fewer samples: the larger they are, the more samples a thread they want.
"""
OWN_WEIGHTS = 2**19
"""A core should not read more bytes of a direction's weights in every step, where it could share them with others."""
ROWS_WITHOUT_STAGES = 48
"""The same at least where no thread waits for another in any case."""
REGISTER_BYTES = 64, 32
"""The numbers of samples are those of vector registers of so many bytes. With half of them a step takes longer, and waiting does
not: twice as many samples a thread are wanted. Of shorter ones nothing was measured: they are counted as half.
"""


def splits_columns(rows: float, recurrent_bytes: int, stages: int, threads: int, register_bytes: int) -> bool:
    """Whether columns are split over threads, rather than samples. `recurrent_bytes`: of the weights that every step reads;
    `stages`: of a step; `register_bytes`: of one vector register of the machine.
    """
    longest, shortest = REGISTER_BYTES
    bytes = recurrent_bytes / max(1, stages)
    least = next(samples for most, samples in ROWS_PER_THREAD if most is None or bytes <= most)
    least = least if stages else max(least, ROWS_WITHOUT_STAGES)
    return rows * max(register_bytes, shortest) < least * threads * longest


@dataclass(frozen=True)
class UnitWork:
    """What one layer in one direction does: the bytes of its packed weights, of those that every step reads, and of the vectors
    that a step moves for each sample; the stages of a step.
    """

    packed_bytes: int
    recurrent_bytes: int
    vector_bytes: int
    stages: int


@dataclass(frozen=True)
class Work:
    """A call; its units in the order in which they are run. `rows`: of a step, as a mean; `chunk`: of how many steps;
    `products`: how many products of the weights' size it makes for each sample and step; `counts`: the rows of each step, where
    they differ; `directions`: how many units in succession need nothing of each other.
    """

    steps: int
    rows: float
    chunk: int
    products: int
    element_bytes: int
    lanes: int
    units: tuple[UnitWork, ...]
    counts: tuple[int, ...] | None = None
    directions: int = 1

    def abreast(self, threads: int) -> int:
        """How many units are run at once, each by its share of the threads: the directions of a layer, where threads would have
        to split columns and wait for each other in every step. But each core then reads twice as many of its direction's weights.
        """
        columns = any(unit.stages and self.columns(unit, threads) for unit in self.units)
        return self.directions if columns and self.may_be_abreast(threads) else 1

    def may_be_abreast(self, threads: int) -> bool:
        """Whether they may be, however samples are divided."""
        count = self.directions
        return threads % count == 0 and all(u.recurrent_bytes * count <= OWN_WEIGHTS * threads for u in self.units)

    def columns(self, unit: UnitWork, threads: int) -> bool:
        """Whether columns are split. Where samples end at different steps, those of one thread may end before the others'."""
        register_bytes = self.lanes * self.element_bytes
        columns = splits_columns(self.rows, unit.recurrent_bytes, unit.stages, threads, register_bytes)
        return columns or not self._balanced(threads)

    def _balanced(self, threads: int) -> bool:
        """Whether threads that split rows have about the same work."""
        if self.counts is None:
            return True
        counts, rows = np.array(self.counts, np.int64), self.counts[0] if self.counts else 0
        ends = [rows * k // threads for k in range(threads + 1)]
        parts = [int(np.clip(counts - first, 0, last - first).sum()) for first, last in pairwise(ends)]
        return max(parts) * threads <= BALANCED * sum(parts)

    def alone(self, kept: bool) -> float:
        """Seconds on one thread. `kept`: the weights are packed already."""
        return sum(self._step(u) * self.steps + (0 if kept else u.packed_bytes / PACKED) for u in self.units)

    def pieces(self, threads: int) -> Iterator[tuple[int, int, int]]:
        """The call in pieces: which units are run at once, their first chunk and the end of their chunks."""
        chunks, abreast = -(-self.steps // self.chunk), self.abreast(threads)
        for number in range(len(self.units) // abreast):
            step = sum(self._step(unit) for unit in self.units[number * abreast : (number + 1) * abreast])
            some = max(1, int(PIECE / (step * self.chunk / threads)))
            for first in range(0, chunks, some):
                yield number, first, min(first + some, chunks)

    def shares(self, unit: UnitWork, threads: int) -> bool:
        """Whether threads that split columns should help each other in a stage."""
        return unit.stages > 0 and self._step(unit) >= SHARED * unit.stages * threads

    def shares_chunks(self, unit: UnitWork, threads: int) -> bool:
        """Whether threads should help each other in what is done for a chunk at once, which takes about as long as its steps."""
        return self._step(unit) * min(self.chunk, self.steps) >= STAGES_OF_CHUNK * SHARED * threads

    def _step(self, unit: UnitWork) -> float:
        once = unit.packed_bytes - unit.recurrent_bytes  # what is read for many steps at a time
        multiplied = 2 * unit.packed_bytes / self.element_bytes * self.rows * self.products / (FLOPS * self.lanes)
        read = (unit.recurrent_bytes + once / self.steps) * self.products / READ
        return max(multiplied, read) + unit.vector_bytes * self.rows / MOVED

    def threads(self, most: int, kept: bool, start: float | None = None) -> int:
        """How many threads the call is worth: one, or as many as there are. `start`: seconds to begin on others."""
        alone, abreast = self.alone(kept), self.abreast(most)
        each = most // abreast
        waits = sum(u.stages for u in self.units if self.columns(u, each)) / abreast if each > 1 else 0
        together = alone / most + (START if start is None else start) + WAIT * self.steps * waits
        return most if together < alone else 1
