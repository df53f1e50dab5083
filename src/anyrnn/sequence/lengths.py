"""Batches of sequences that end at different steps, as kernels take them: the longest first, and of each step the rows of those
that are still going on, one step after the other. This is the layout of torch's PackedSequence.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
LAST = "last"
"""Of what outputs hold beyond a sample's last step: what they held in it."""


@dataclass(frozen=True)
class Packing:
    """Which rows each step has, and whose they are."""

    order: Integers
    """The samples that have steps, the longest first; of equal lengths in the order of the caller."""
    counts: tuple[int, ...]
    """How many of them each step has, up to the last step that any has."""

    @cached_property
    def total(self) -> int:
        return sum(self.counts)

    @cached_property
    def samples(self) -> tuple[int, ...]:
        """`order` as Python's numbers."""
        return tuple(self.order.tolist())

    @cached_property
    def begins(self) -> Integers:
        """Packed rows before each step."""
        return np.append(0, np.cumsum(self.counts)).astype(np.int64)[:-1]

    def places(self) -> tuple[Integers, Integers]:
        """The step and the sample of each packed row."""
        counts = np.array(self.counts, np.int64)
        step = np.repeat(np.arange(len(counts)), counts)
        return step, self.order[np.arange(len(step)) - self.begins[step]]

    def held(self, steps: int, samples: int) -> Integers:
        """For each of so many steps and samples its packed row, or beyond a sample's last step that of its last; of samples
        without steps `total`. [steps, samples]
        """
        rank = np.full(samples, -1)
        rank[self.order] = np.arange(len(self.order))
        of_rank = np.count_nonzero(np.arange(len(self.order)) < np.array(self.counts)[:, None], axis=0)
        last = np.minimum(np.arange(steps)[:, None], np.append(of_rank, 0)[rank] - 1)
        return np.where(rank < 0, self.total, np.append(self.begins, 0)[last] + rank)


def packing(lengths: Any, steps: int, samples: int, who: str = "lengths") -> Packing:
    """Of one length for each sample, from any integers: a list, an array, a tensor of any device.

    Raises: TypeError when they are no integers; ValueError for another count than `samples`, a negative length or one above
    `steps`.
    """
    found = checked(lengths, who)
    if len(found) != samples:
        raise ValueError(f"{who} should have one length for each of the {samples} samples, got {len(found)}")
    if len(found) and (found.min() < 0 or found.max() > steps):
        wrong = found[(found < 0) | (found > steps)][0]
        raise ValueError(f"{who} should be from 0 to the {steps} steps of the input, got {wrong}")
    order = np.argsort(-found, kind="stable")
    order = order[: np.count_nonzero(found)]
    longest = int(found.max(initial=0))
    counts = np.count_nonzero(found[order][None, :] > np.arange(longest)[:, None], axis=1)
    return Packing(order, tuple(counts.tolist()))


def check_padding(padding: Any) -> None:
    """Raises: TypeError unless it is a number or `LAST`."""
    if padding != LAST and (isinstance(padding, bool) or not isinstance(padding, (int, float))):
        raise TypeError(f"padding should be a number or {LAST!r}, got {padding!r}")


def lengths_between(offsets: Any, total: int, who: str = "cu_seqlens") -> Integers:
    """The lengths of samples that stand one after the other in `total` rows: sample n has those from offsets[n] up to
    offsets[n + 1].

    Raises: TypeError when they are no integers; ValueError unless they go from 0 to `total` and never back.
    """
    found = checked(offsets, who)
    if not len(found) or found[0] != 0 or found[-1] != total:
        ends = f"from {found[0]} to {found[-1]}" if len(found) else "nothing"
        raise ValueError(f"{who} should go from 0 to the {total} rows of the input, got {ends}")
    if np.any(np.diff(found) < 0):
        raise ValueError(f"{who} should never go back, got {found[1:][np.diff(found) < 0][0]} after a larger one")
    return np.diff(found)


def checked(lengths: Any, who: str) -> Integers:
    """A vector of integers."""
    if hasattr(lengths, "detach"):  # a tensor
        lengths = lengths.detach().cpu().numpy()
    if isinstance(lengths, np.ndarray):
        if lengths.ndim != 1 or lengths.dtype.kind not in "iu":
            raise TypeError(f"{who} should be a vector of integers, got {lengths.dtype} of shape {lengths.shape}")
        return lengths.astype(np.int64)
    if not isinstance(lengths, Iterable) or isinstance(lengths, (str, bytes)):
        raise TypeError(f"{who} should be a sequence of integers, got {type(lengths).__name__}")
    try:
        return np.array([operator.index(n) for n in lengths], np.int64)
    except TypeError as error:
        raise TypeError(f"{who} should be integers: {error}") from None
