"""Packed rows and the caller's: taking the one from the other, and putting them back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from anyrnn.torch.memory import new_rows, paged
from anyrnn.torch.plain import direct, is_batch, is_transformed


@dataclass(frozen=True)
class Places:
    """Of packed rows among all of so many `rows` of the caller: packed row k is row `numbers[k]`."""

    numbers: npt.NDArray[np.int64]
    rows: int
    device: torch.device

    @cached_property
    def place(self) -> Tensor:
        """Of each packed row."""
        return self._tensor(self.numbers)

    @cached_property
    def element(self) -> Tensor:
        """Of each row the packed row, or any for those that are not there."""
        found = np.zeros(self.rows, np.int64)
        found[self.numbers] = np.arange(len(self.numbers))
        return self._tensor(found)

    @cached_property
    def others(self) -> Tensor:
        """The rows that are not there."""
        left = np.ones(self.rows, np.bool_)
        left[self.numbers] = False
        return self._tensor(np.flatnonzero(left))

    @cached_property
    def further(self) -> Tensor:
        """How many rows further than packed each stands, for kernels that put them there themselves."""
        return self._tensor(self.numbers - np.arange(len(self.numbers)))

    def _tensor(self, numbers: npt.NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(numbers).to(self.device)


@dataclass(frozen=True)
class Scatter:
    """How packed rows become the caller's rows: where they stand, and the number that the others hold."""

    places: Places
    padding: float

    def put(self, rows: Tensor) -> Tensor:
        return put(rows, self.places, self.padding)

    def taken(self, flat: Tensor) -> Tensor:
        return taken(flat, self.places)


def taken(flat: Tensor, places: Places) -> Tensor:
    """The packed rows of all rows."""
    if _directly(flat):
        rows: Tensor = Taken.apply(flat, places)
        return rows
    return flat.index_select(0, places.place)


def put(rows: Tensor, places: Places, padding: float) -> Tensor:
    """The adjoint; the other rows get a number."""
    if _directly(rows):
        flat: Tensor = Put.apply(rows, places, padding)
        return flat
    return rows.new_full((places.rows, rows.size(1)), padding).index_copy(0, places.place, rows)


def _directly(tensor: Tensor) -> bool:
    """Whether `Taken` and `Put` may be used."""
    if not (len(tensor) and tensor.is_cpu and direct(tensor)) or is_batch(tensor):
        return False
    return not is_transformed()


class Taken(torch.autograd.Function):
    """`taken` in recycled memory. What torch's own operators take beside copying (new pages, a copy that is zero before
    anything is added to it) is up to a twentieth of a training step; and of them `gather` copies whole rows in the least time.
    """

    @staticmethod
    def forward(ctx: Any, flat: Tensor, places: Places) -> Tensor:
        ctx.places = places
        rows = new_rows(len(places.numbers), flat.size(1), flat)
        return torch.gather(flat, 0, places.place[:, None].expand_as(rows), out=rows)

    @staticmethod
    def backward(ctx: Any, d_rows: Tensor) -> Any:
        return put(d_rows, ctx.places, 0.0), None


class Put(torch.autograd.Function):
    """`put`, likewise."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Places, padding: float) -> Tensor:
        ctx.places = places
        flat = paged(rows.new_empty(places.rows, rows.size(1)))
        return torch.gather(rows, 0, places.element[:, None].expand_as(flat), out=flat).index_fill_(0, places.others, padding)

    @staticmethod
    def backward(ctx: Any, d_flat: Tensor) -> Any:
        return taken(d_flat, ctx.places), None, None
