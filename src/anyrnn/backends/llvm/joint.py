"""Backward calls of one step that share their weights, as a loop of cells has them: the weights are packed once for all of them,
and the gradients of weights are summed for many at once, so that they are read and written in the second cache.

Each call leaves what these sums read: what it has made itself in memory of its own, and where the caller's arrays and the reserve
are. A frame of as many steps finds these places, which stand anywhere, by tables of its own. Each step is a block of the sums:
they have the bits that the calls' own gradients have when they are added up one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from anyrnn.backends.llvm.call_shape import CallShape
from anyrnn.backends.llvm.extent import BEFORE, BLOCK_ROWS, CHUNK_ROWS, Extent
from anyrnn.backends.llvm.frame import Frame
from anyrnn.backends.llvm.memory import Packed, Scratch
from anyrnn.backends.llvm.pools import Pool, given_back, lent
from anyrnn.sequence.network import Network

T = TypeVar("T")
LEFT = ("stream", "saved", "chunk")
"""Roles of buffers that are there after a call."""
MOST_COUNTS = 32
"""Of how many steps frames are kept."""


def may_join(network: Network) -> bool:
    """Whether sums for several steps read nothing but what each call leaves for its own step (a sum that is begun in the steps is
    of several, and what stands behind a step is another call's), and add a gradient's only term step by step.
    """
    program = network.plan.backward
    read = [(program.buffer(name).role, later) for name, later in program.read_by_gradients]
    return len(network.units) == 1 and not network.plan.summed and all(role in LEFT and not later for role, later in read)


@dataclass(frozen=True)
class Left:
    """What a call leaves: the address of each buffer that sums read. What it has made stands in `scratch`."""

    scratch: Scratch
    places: tuple[int, ...]


class Steps:
    """Calls whose buffers stand alike, whatever cotangents and first states they have. Safe from many threads, as pools are."""

    def __init__(self, make: Callable[[Network, CallShape], Frame], network: Network, shape: CallShape) -> None:
        """`shape`: of one of them, with the gradients of its weights."""
        self.make, self.network, self.shape = make, network, shape
        self.buffers = tuple(dict.fromkeys(buffer for buffer, _ in network.plan.backward.read_by_gradients))
        rows = shape.extent.rows
        self.adds = rows <= BLOCK_ROWS
        """whether sums may go on from earlier ones; a call of more rows has several blocks"""
        self.most = CHUNK_ROWS // max(1, rows) if self.adds else 1
        """of how many calls sums are made at once"""
        self.kinds: dict[CallShape, Pool] = {}
        self.sums: dict[int, list[Sums]] = {}
        self.scratch: list[Scratch] = []
        self.packed: list[Packed] = []

    def kind(self, shape: CallShape) -> Pool:
        """Of such calls without the gradients of weights."""
        shape = replace(shape, gradients=False)
        return self.kinds.setdefault(shape, Pool(self.make, self.network, shape))

    def pack(self, pool: Pool) -> Packed:
        """Room for packed weights, for some calls in succession, the first of which packs them; to be put back into `packed`."""
        frame = pool.frame()
        pool.rest.append(frame)
        packed = taken(self.packed) or Packed(frame.packed_bytes)
        packed.done = False
        return packed

    def call(self, pool: Pool, addresses: Sequence[int], packed: Packed) -> Left:
        """The gradients of the input and the first states, of a call of one of the kinds; `CallShape` says in which order the
        addresses come. What is left is to be given to `add_up`.
        """
        frame = pool.frame()
        scratch = taken(self.scratch)
        if scratch is None or scratch.bytes < frame.own_bytes:
            scratch = Scratch(frame.own_bytes)
        frame.call(addresses, scratch, packed, trusting=True)
        start, layout = frame.starts[0], frame.units[0].layout
        places = (frame.table[start + layout.buffer(buffer)] for buffer in self.buffers)
        left = Left(scratch, tuple([frame.bases[base] + offset for base, offset in places]))
        pool.rest.append(frame)
        return left

    def add_up(self, some: Sequence[Left], d_sources: Sequence[int], adds: bool) -> None:
        """Write the gradients of the sources, to these addresses, of some calls together, the latest step first; `adds`: to what
        is there.
        """
        known = self.sums.get(len(some))
        if known is None:
            if len(self.sums) >= MOST_COUNTS:
                self.sums.clear()
            known = self.sums[len(some)] = []
        sums = taken(known) or Sums(self, len(some))
        sums(some, d_sources, adds)
        known.append(sums)
        self.scratch += [left.scratch for left in some]


class Sums:
    """The gradients of sources alone, of so many calls."""

    def __init__(self, steps: Steps, count: int) -> None:
        shape, states = steps.shape, (None,) * len(steps.shape.first)
        extent, inputs = Extent(count, shape.extent.rows), (None,) * len(shape.inputs)
        several = replace(
            shape, extent=extent, output=None, first=states, last=states, d_inputs=inputs, gradients=True, no_first=False
        )
        one, frame = (steps.make(steps.network, each) for each in (shape, several))
        self.tables = np.zeros((len(steps.buffers), BEFORE + count + 2), np.int64)
        for buffer, table in zip(steps.buffers, self.tables, strict=True):
            there, here = (each.starts[0] + each.units[0].layout.buffer(buffer) for each in (one, frame))
            frame.table.pop(here, None)
            first = table.ctypes.data + BEFORE * table.itemsize
            words = (0, -1, frame.element.bytes, one.view[there + 3], one.view[there + 4], first)
            for k, value in enumerate(words):
                frame.view[here + k] = value
        frame.flat_after[0] = False
        frame._finish()
        frame.phases(steps=False, gradients=True)
        frame.set_header(0, "block_steps", 1)
        self.frame = frame

    def __call__(self, some: Sequence[Left], d_sources: Sequence[int], adds: bool) -> None:
        frame = self.frame
        places = np.array([left.places for left in reversed(some)], np.int64)
        self.tables[:, BEFORE : BEFORE + len(some)] = places.T // frame.element.bytes
        frame.set_header(0, "adds", int(adds))
        scratch = lent(frame.own_bytes + frame.packed_bytes)
        frame.call([*[0] * frame.d_sources, *d_sources, 0], scratch)  # nothing else is read
        given_back(scratch)


def taken(some: list[T]) -> T | None:
    try:
        return some.pop()
    except IndexError:
        return None
