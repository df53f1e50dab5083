"""What inference calls have packed of a module's weights, kept for the next call with the same weights.

Weights are the same when they are the same tensors, at the same addresses, with the same versions. What torch does not count
(`p.data`, some fused optimisers) the native code sees in a sample of the numbers.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from anyrnn.backends.llvm.frame import Packed

VERSION: Callable[[Tensor], int] = Tensor._version.__get__  # type: ignore[attr-defined]
Memory = Callable[[int], Packed]
"""Gives memory of at least so many bytes."""
MOST_BYTES = 2**30
"""Of all that is kept; the oldest goes first."""


class Weights:
    """The weights of one module, and their packed form. Gone as soon as one of the tensors is."""

    def __init__(self, key: tuple[int, int], sources: Sequence[Tensor], addresses: list[int]) -> None:
        self.state = [*addresses, *map(id, sources), *map(VERSION, sources)]
        self.packed: Packed | None = None
        self.alive = [weakref.ref(source, lambda _: KNOWN.pop(key, None)) for source in sources]

    def memory(self, bytes: int) -> Packed:
        """Room for the packed weights, with what was packed there before."""
        if self.packed is None:
            self.packed = Packed(bytes)
            make_room()
        return self.packed


KNOWN: dict[tuple[int, int], Weights] = {}
"""By the call's number and the address of the first source."""


def make_room() -> None:
    """Forget the oldest until little enough is kept."""
    while sum(w.packed.bytes for w in list(KNOWN.values()) if w.packed) > MOST_BYTES and len(KNOWN) > 1:
        KNOWN.pop(list(KNOWN)[0], None)  # noqa: RUF015 (a list is made at once; an iterator minds other threads)


def find(number: int, sources: Sequence[Tensor], addresses: list[int]) -> Memory | None:
    """What gives the memory in which these weights may be packed already; None when nothing is known of them."""
    if not sources:
        return None
    found = KNOWN.get((number, addresses[0]))
    if found is not None and found.state == [*addresses, *map(id, sources), *map(VERSION, sources)]:
        return found.memory
    return None


def remember(number: int, sources: Sequence[Tensor], addresses: list[int]) -> Memory | None:
    """The same for weights that are not known; None for tensors that are no module's parameters."""
    if not sources or not all(type(source) is torch.nn.Parameter and not source.is_inference() for source in sources):
        return None
    key = (number, addresses[0])
    found = KNOWN[key] = Weights(key, sources, addresses)
    return found.memory
