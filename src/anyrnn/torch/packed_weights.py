"""What inference calls, and loops of cells of many samples, have packed of a module's weights, kept for the next call with the
same ones.

They are found by their addresses. Torch does not count every change (`p.data`, fused optimisers), so the native code looks at the
numbers: reading them is far less work than packing them. It does not look at those of a module that is frozen, once it has
looked since the promise: then they have to be the same tensors, with the same versions.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor

from anyrnn.backends.llvm.memory import Packed
from anyrnn.backends.llvm.pools import Packs

VERSION: Callable[[Tensor], int] = Tensor._version.__get__  # type: ignore[attr-defined]
PROMISES = itertools.count(1)
"""Numbers for promises that weights stay as they are."""
MOST_BYTES = 2**30
"""Of all that is kept; the oldest goes first."""


class Lent(Packs):
    """Memory for packed weights that calls look at, within the limit of all."""

    def lent(self, bytes: int) -> Packed:
        if not self.rest:
            make_room(bytes)
        return super().lent(bytes)


class Weights:
    """The weights of one module, and their packed form. Gone as soon as one of the tensors is."""

    def __init__(self, key: Key, sources: Sequence[Tensor], addresses: list[int]) -> None:
        self.addresses, self.tensors, self.versions = addresses, list(map(id, sources)), list(map(VERSION, sources))
        self.lent = Lent()
        """what calls that look have packed, which may be other numbers at the same time"""
        self.packed: Packed | None = None
        """what those of a frozen module have, all the same"""
        self.looked = 0
        """the last promise under which the numbers were looked at"""
        gone = partial(_gone, KNOWN, key, weakref.ref(self))  # no cycle: what is forgotten is freed at once
        self.alive = [weakref.ref(source, gone) for source in sources]

    def memory(self, bytes: int) -> Packed:
        """Room for the packed weights of a frozen module, with what was packed there before."""
        if self.packed is None or self.packed.bytes < bytes:
            self.packed = self.lent.lent(bytes)
        return self.packed

    @property
    def resting(self) -> list[Packed]:
        """All that no call has lent now."""
        return [*self.lent.rest, *([] if self.packed is None else [self.packed])]

    @property
    def bytes(self) -> int:
        return sum(packed.bytes for packed in self.resting)


Key = tuple[object, torch.dtype, int]
KNOWN: dict[Key, Weights] = {}
"""By the kind of call, such that weights are packed alike, the dtype, and the identity of the first source."""


def _gone(known: dict[Key, Weights], key: Key, weights: weakref.ref[Weights], source: object) -> None:
    """One of the tensors is. (When Python ends, this module's names may be too.)"""
    if known.get(key) is weights():
        known.pop(key, None)


def make_room(bytes: int) -> None:
    """For so many: forget the oldest until little enough is kept."""
    while len(KNOWN) > 1 and sum(weights.bytes for weights in list(KNOWN.values())) + bytes > MOST_BYTES:
        KNOWN.pop(list(KNOWN)[0], None)  # noqa: RUF015 (a list is made at once; an iterator minds other threads)


def find(kind: object, sources: Sequence[Tensor], addresses: list[int], frozen: int) -> Weights | None:
    """The weights that may be packed already; None when nothing is known of them. `frozen`: the number of a promise, under which
    their numbers are looked at once.
    """
    if not sources:
        return None
    found = KNOWN.get((kind, sources[0].dtype, id(sources[0])))
    if found is None or found.addresses != addresses:
        return None
    if frozen and (found.tensors != list(map(id, sources)) or found.versions != list(map(VERSION, sources))):
        return None
    return found


def forget(parameters: Iterable[Tensor]) -> None:
    """Let go of all that is known of weights among these, and of the references to them that go with it."""
    gone = set(map(id, parameters))
    for key, weights in list(KNOWN.items()):
        if not gone.isdisjoint(weights.tensors):
            KNOWN.pop(key, None)
            weights.alive.clear()


def remember(kind: object, sources: Sequence[Tensor], addresses: list[int]) -> Weights | None:
    """Begin to know these weights; None for tensors that are no module's parameters."""
    if not sources or not all(type(source) is torch.nn.Parameter and not source.is_inference() for source in sources):
        return None
    key = (kind, sources[0].dtype, id(sources[0]))
    KNOWN.pop(key, None)  # the new one comes last
    found = KNOWN[key] = Weights(key, sources, addresses)
    return found
