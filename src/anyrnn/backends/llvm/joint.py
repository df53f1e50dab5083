"""Backward calls of one step that share their weights, as a loop of cells has them: the weights are packed once for all of them,
and where that can be the gradients of weights are summed for many at once, so that they are read and written in the second cache.

Each call then leaves what these sums read: what it has made itself in memory of its own, and where the caller's arrays and the
reserve are. A frame of as many steps finds these places, which stand anywhere, by tables of its own. Each step is a block of the
sums: they have the bits that the calls' own gradients have when they are added up one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anyrnn.backends.llvm.call_shape import CallShape
from anyrnn.backends.llvm.extent import BEFORE, BLOCK_ROWS, Extent
from anyrnn.backends.llvm.frame import Frame
from anyrnn.backends.llvm.memory import Packed, Scratch
from anyrnn.backends.llvm.pools import Pool, given_back, lent, taken
from anyrnn.sequence.network import Network

LEFT = ("stream", "saved", "chunk")
"""Roles of buffers that are there after a call."""


def may_join(network: Network, shape: CallShape) -> bool:
    """Whether backward calls of a shape are of one step, and all that they read stands where the call before had it."""
    one = shape.extent.steps == 1 and len(network.units) == len(shape.inputs) == 1
    return one and shape.windows is None and not shape.anywhere and not shape.more


def may_sum(network: Network, rows: int) -> bool:
    """Whether sums for several steps of so many rows read nothing but what each call leaves for its own step (a sum that is begun
    in the steps is of several, and what stands behind a step is another call's), and add one term of a gradient for each.
    """
    program = network.plan.backward
    read = [(program.buffer(name).role, later) for name, later in program.read_by_gradients]
    return rows <= BLOCK_ROWS and not network.plan.summed and all(role in LEFT and not later for role, later in read)


@dataclass(frozen=True)
class Left:
    """What a call leaves: the address of each buffer that sums read. What it has made stands in `scratch`."""

    scratch: Scratch
    places: tuple[int, ...]


class Joint:
    """Calls whose buffers stand alike, whatever cotangents and first states they have. Safe from many threads, as pools are."""

    def __init__(self, make: Callable[[Network, CallShape], Frame], network: Network, shape: CallShape) -> None:
        """`shape`: of one of them, with the gradients of its weights."""
        self.make, self.network, self.shape = make, network, shape
        rows = shape.extent.rows
        self.most = Extent(1, rows).chunk if may_sum(network, rows) else 0
        """Of how many calls sums are made at once. None: each makes its own gradients."""
        self.buffers = tuple(dict.fromkeys(buffer for buffer, _ in network.plan.backward.read_by_gradients))
        self.pools: dict[CallShape, tuple[Pool, Pool]] = {}
        self.sums: list[Sums] = []
        self.scratch: list[Scratch] = []

    def pools_of(self, shape: CallShape) -> tuple[Pool, Pool]:
        """For calls of a shape: those that pack the weights, and those that find them packed."""
        shape = replace(shape, gradients=not self.most, shares=True)
        pools = Pool(self.make, self.network, shape), Pool(self.make, self.network, shape)
        return self.pools.setdefault(shape, pools)

    def call(self, pools: tuple[Pool, Pool], addresses: Sequence[int], packed: Packed | None) -> tuple[Left, Packed]:
        """A call of one of the shapes, which says in which order the addresses come. What it leaves is to be given to `add_up`,
        or, if it has made the gradients of weights, to `done`. And the weights as they are packed, for calls with the same
        weights: those that want gradients of first states, or those that do not, which pack less.
        """
        pool = pools[packed is not None]
        frame, scratch = pool.frame(), taken(self.scratch)
        if scratch is None or scratch.bytes < frame.own_bytes:
            scratch = Scratch(frame.own_bytes)
        packed = packed or Packed(frame.packed_bytes, looked_at=False)
        frame.call(addresses, scratch, packed, trusting=True)
        places = tuple([frame.stands_at(0, buffer) for buffer in self.buffers]) if self.most else ()
        pool.rest.append(frame)
        return Left(scratch, places), packed

    def add_up(self, some: Sequence[Left], d_sources: Sequence[int], adds: bool) -> None:
        """Write the gradients of the sources, to these addresses, of some calls together, the latest step first; `adds`: to what
        is there.
        """
        sums = taken(self.sums) or Sums(self)
        sums(some, d_sources, adds)
        self.sums.append(sums)
        self.done(some)

    def done(self, some: Sequence[Left]) -> None:
        """What some calls have left is not needed any more."""
        self.scratch += [left.scratch for left in some]


class Sums:
    """The gradients of sources alone, of up to as many calls as are worth it."""

    def __init__(self, joint: Joint) -> None:
        shape, states = joint.shape, (None,) * len(joint.shape.first)
        extent, inputs = Extent(joint.most, shape.extent.rows), (None,) * len(shape.inputs)
        several = replace(
            shape, extent=extent, output=None, first=states, last=states, d_inputs=inputs, gradients=True, no_first=False
        )
        one, self.frame = (joint.make(joint.network, each) for each in (shape, several))
        self.tables = np.zeros((len(joint.buffers), BEFORE + joint.most), np.int64)
        for buffer, table in zip(joint.buffers, self.tables, strict=True):
            self.frame.stand_anywhere(0, buffer, one, table[BEFORE:].ctypes.data)
        self.frame.phases(steps=False, gradients=True)
        self.frame.set_header(0, "block_steps", 1)

    def __call__(self, some: Sequence[Left], d_sources: Sequence[int], adds: bool) -> None:
        frame = self.frame
        self.tables[:, BEFORE : BEFORE + len(some)] = np.array([left.places for left in reversed(some)], np.int64).T
        frame.set_header(0, "steps", len(some))
        frame.set_header(0, "adds", int(adds))
        scratch = lent(frame.own_bytes + frame.packed_bytes)
        frame.call([*[0] * frame.d_sources, *d_sources, 0], scratch)  # nothing else is read
        given_back(scratch)
