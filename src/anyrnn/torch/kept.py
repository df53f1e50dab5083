"""What is made of parameters, kept for calls that nobody differentiates: it holds while they have the same numbers. Torch does
not count every change (`p.data`, fused optimisers), so the numbers are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from anyrnn._memory import same_bytes
from anyrnn.torch.packed_weights import VERSION

T = TypeVar("T")


@dataclass
class Kept(Generic[T]):
    """What was made, and of what."""

    made: T
    copies: list[Tensor]
    """of the parameters"""
    promise: int
    """under which the numbers were looked at last (see `freeze`), of these parameters with these versions:"""
    seen: list[tuple[Tensor, int]]

    def holds(self, parameters: Sequence[Tensor], promise: int) -> bool:
        """Whether these would give the same."""
        seen = _seen(parameters, promise)
        if promise and promise == self.promise and all(p is q and v == w for (p, v), (q, w) in zip(seen, self.seen, strict=True)):
            return True
        if not all(map(_same_bits, parameters, self.copies)):
            return False
        self.promise, self.seen = promise, seen
        return True


class Lasting(Generic[T]):
    """What was made of some parameters, by place."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Kept[T]] = {}

    def __reduce__(self) -> tuple[type[Lasting[T]], tuple[()]]:
        """A copy keeps nothing: what is kept is of the parameters that were copied. (Modules make theirs anew, but torch copies
        those with parametrisations whole.)
        """
        return Lasting, ()

    def forget(self) -> None:
        """Let go of all that is kept, and of the parameters."""
        self._kept.clear()

    def get(self, place: Hashable, parameters: Sequence[Tensor], promise: int, make: Callable[[list[Tensor]], T]) -> T | None:
        """What is made of plain tensors; None where it has to be made for each call. `promise`: that under which their numbers
        are looked at once; `make` makes it of copies.
        """
        if torch.is_grad_enabled() and any(p.requires_grad for p in parameters):
            self._kept.pop(place, None)  # training changes the parameters
            return None
        if not all(map(_has_bits, parameters)):
            return None
        kept = self._kept.get(place)
        if kept is None or not kept.holds(parameters, promise):
            seen = _seen(parameters, promise)  # before the copies, of which all is made: another thread may write meanwhile
            with torch.inference_mode(False), torch.no_grad():
                copies = [p.detach().clone() for p in parameters]
                kept = self._kept[place] = Kept(make(copies), copies, promise, seen)
        return kept.made


def as_parameter(tensor: Tensor) -> torch.nn.Parameter:
    """What is made, as packed weights know what lasts."""
    return torch.nn.Parameter(tensor.detach().contiguous(), requires_grad=False)


def _seen(parameters: Sequence[Tensor], promise: int) -> list[tuple[Tensor, int]]:
    """With their versions; none without a promise, so that parameters that are replaced are not kept."""
    return [(p, VERSION(p)) for p in parameters] if promise else []


def _has_bits(parameter: Tensor) -> bool:
    """Whether its numbers can be looked at, and torch counts changes of it."""
    if parameter.is_nested or parameter.is_inference():
        return False
    return parameter.is_cpu and parameter.is_floating_point() and parameter.is_contiguous()


def _same_bits(one: Tensor, other: Tensor) -> bool:
    """Of numbers that have bits."""
    alike = one.shape == other.shape and one.dtype is other.dtype
    return alike and same_bytes(one.data_ptr(), other.data_ptr(), other.nbytes)
