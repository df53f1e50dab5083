"""Frames and memory that rest between calls, for the next call of the same shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from anyrnn.backends.llvm.call_shape import CallShape
from anyrnn.backends.llvm.extent import Extent
from anyrnn.backends.llvm.frame import Frame
from anyrnn.backends.llvm.memory import Packed, Scratch
from anyrnn.ir.philox import Randomness
from anyrnn.sequence.network import Network

T = TypeVar("T")
RESTING: list[Scratch] = []
"""What calls have worked in and others may; one for each call at a time."""
MOST_RESTING, LARGEST_RESTING = 4, 2**28
"""Blocks, as few threads call at once, and bytes of one, beside which a call takes longer than the system to give memory anew."""


def taken(rest: list[T]) -> T | None:
    """One of some, which is nobody else's then."""
    try:
        return rest.pop()
    except IndexError:
        return None


def lent(bytes: int) -> Scratch:
    """Memory to work in that has at least so many bytes."""
    scratch = taken(RESTING)
    return scratch if scratch is not None and scratch.bytes >= bytes else Scratch(bytes)


def given_back(scratch: Scratch) -> None:
    if len(RESTING) < MOST_RESTING and scratch.bytes <= LARGEST_RESTING:
        RESTING.append(scratch)


class Packs:
    """Memory in which weights stay packed for the next call. Each call has some to itself: in another, at the same time, weights
    may be others.
    """

    def __init__(self) -> None:
        self.rest: list[Packed] = []

    def lent(self, bytes: int) -> Packed:
        packed = taken(self.rest)
        return packed if packed is not None and packed.bytes >= bytes else Packed(bytes)

    @property
    def bytes(self) -> int:
        return sum(packed.bytes for packed in list(self.rest))


class Pool:
    """Frames of one network and shape. Safe from many threads and in a forked child without a lock: a list's pop and append are
    atomic.
    """

    def __init__(self, make: Callable[[Network, CallShape], Frame], network: Network, shape: CallShape) -> None:
        self.make, self.network, self.shape = make, network, shape
        self.rest: list[Frame] = []

    def frame(self) -> Frame:
        """One that nobody else uses, to be put back into `rest`."""
        return taken(self.rest) or self.make(self.network, self.shape)

    def call(
        self,
        addresses: Sequence[int],
        randomness: Randomness | None = None,
        keep: Callable[[int], Packed] | None = None,
        trusting: bool = False,
        extent: Extent | None = None,
        packs: Packs | None = None,
    ) -> None:
        """Run on arrays at these addresses, in the order that `CallShape` says. `keep` gives the memory, of at least so many
        bytes, in which weights stay packed; `trusting`: they have not changed since they were packed there; or `packs` lend
        some. `extent`: of the call, if that of the shape is only room for it.
        """
        frame = self.frame()
        if extent is not None and extent != frame.extent:
            frame.fit(extent)
        if keep is None and packs is not None:
            keep = packs.lent
        packed = keep(frame.packed_bytes) if keep and frame.packed_bytes else None
        scratch = lent(frame.own_bytes if packed else frame.own_bytes + frame.packed_bytes)
        if randomness is not None:
            frame.random_choices(randomness)
        frame.call(addresses, scratch, packed, trusting)
        self.rest.append(frame)
        given_back(scratch)
        if packs is not None and packed is not None:
            packs.rest.append(packed)


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
        pool = self.known[key] = Pool(self.make, network, shape)
        return pool
