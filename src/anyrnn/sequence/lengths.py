"""Batches of sequences that end at different steps, as kernels take them: the longest first, and of each step the rows of those
that are still going on, one step after the other. This is the layout of torch's PackedSequence.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Packing:
    """Which rows each step has, and whose they are."""

    order: Integers
    """The samples that have steps, the longest first; of equal lengths in the order of the caller."""
    counts: tuple[int, ...]
    """How many of them each step has, up to the last step that any has."""

    @property
    def total(self) -> int:
        return sum(self.counts)

    def places(self) -> tuple[Integers, Integers]:
        """The step and the sample of each packed row."""
        counts = np.array(self.counts, np.int64)
        step = np.repeat(np.arange(len(counts)), counts)
        begins = np.append(0, np.cumsum(counts))[:-1]
        return step, self.order[np.arange(len(step)) - np.repeat(begins, counts)]


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
