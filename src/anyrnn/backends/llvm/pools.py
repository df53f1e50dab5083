"""Frames and memory that rest between calls, for the next call of the same shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anyrnn.backends.llvm.call_shape import CallShape
from anyrnn.backends.llvm.frame import Frame
from anyrnn.backends.llvm.memory import Packed, Scratch
from anyrnn.ir.philox import Randomness
from anyrnn.sequence.network import Network

RESTING: list[Scratch] = []
"""What calls have worked in and others may; one for each call at a time."""
MOST_RESTING, LARGEST_RESTING = 4, 2**28
"""Blocks, as few threads call at once, and bytes of one, beside which a call takes longer than the system to give memory anew."""


class Pool:
    """Frames of one network and shape. Safe from many threads and in a forked child without a lock: a list's pop and append are
    atomic.
    """

    def __init__(self, make: Callable[[], Frame]) -> None:
        self.make = make
        self.rest: list[Frame] = []

    def call(
        self,
        addresses: Sequence[int],
        randomness: Randomness | None = None,
        keep: Callable[[int], Packed] | None = None,
        trusting: bool = False,
    ) -> None:
        """Run on arrays at these addresses, in the order that `CallShape` says. `keep` gives the memory, of at least so many
        bytes, in which weights stay packed; `trusting`: they have not changed since they were packed there.
        """
        try:
            frame = self.rest.pop()
        except IndexError:
            frame = self.make()
        try:
            scratch = RESTING.pop()
        except IndexError:
            scratch = None
        packed = keep(frame.packed_bytes) if keep and frame.packed_bytes else None
        needed = frame.own_bytes if packed else frame.own_bytes + frame.packed_bytes
        if scratch is None or scratch.bytes < needed:
            scratch = Scratch(needed)
        if randomness is not None:
            frame.random_choices(randomness)
        frame.call(addresses, scratch, packed, trusting)
        self.rest.append(frame)
        if len(RESTING) < MOST_RESTING and scratch.bytes <= LARGEST_RESTING:
            RESTING.append(scratch)


class Pools:
    """The pools of the last kinds of call, by any key that says network and shape."""

    def __init__(self, make: Callable[[Network, CallShape], Frame], limit: int = 256) -> None:
        self.make, self.limit = make, limit
        self.known: dict[Any, Pool] = {}
        self.get = self.known.get

    def add(self, key: Any, network: Network, shape: CallShape) -> Pool:
        """A new pool. The oldest one goes when there are many."""
        if len(self.known) >= self.limit:
            self.known.pop(list(self.known)[0], None)  # noqa: RUF015 (a list is made at once; an iterator minds other threads)
        pool = self.known[key] = Pool(lambda: self.make(network, shape))
        return pool
