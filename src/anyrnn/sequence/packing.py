"""Batches whose samples have different steps, as kernels take them.

A segment is what a state goes through without a break: the steps that a sample has, or between two resets. Segments are the rows
of a packed batch, the longest first; the rows of each step stand side by side, one step after the other. This is the layout of
torch's PackedSequence. Whatever a caller gives becomes such a batch by indices alone, so that nothing is computed for steps that
are not there, and each segment has the bits that it has alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, reduce
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
LAST = "last"
"""Of what outputs hold where a sample has no step: what they held in the last step that it had."""


@dataclass(frozen=True)
class Packing:
    """A packed batch: the segments of each step. `make_places` gives `places`, which few calls need."""

    counts: tuple[int, ...]
    make_places: Callable[[], tuple[Integers, Integers]]

    @cached_property
    def places(self) -> tuple[Integers, Integers]:
        """Of each packed row the caller's sample and step."""
        return self.make_places()

    @property
    def sample(self) -> Integers:
        return self.places[0]

    @property
    def step(self) -> Integers:
        return self.places[1]

    @property
    def rows(self) -> int:
        """Segments."""
        return self.counts[0] if self.counts else 0

    @cached_property
    def total(self) -> int:
        """Packed rows."""
        return sum(self.counts)


@dataclass(frozen=True)
class Segments:
    """What a batch of [T, N] steps becomes. `enter` and `leave` have an array for each of the two directions; `make_element`
    gives `element`.
    """

    packing: Packing
    there: Booleans
    """[T, N], whether a sample has a step"""
    enter: tuple[Integers, Integers]
    """The first state of each segment: of those given for the N samples, then the cell's own."""
    leave: tuple[Integers, Integers]
    """The last state of each sample: of those of the segments, then those given for the N samples."""
    make_element: Callable[[], Integers]

    @property
    def samples(self) -> int:
        return int(self.there.shape[1])

    @cached_property
    def element(self) -> Integers:
        """Of each packed row, its place among the steps that are there, sample after sample."""
        return self.make_element()

    def held(self) -> Integers:
        """For each step of each sample [T, N] the packed row of the latest step that is there; the number of packed rows if there
        is none.
        """
        total = self.packing.total
        row = np.empty(total + 1, np.int64)
        row[self.element], row[total] = np.arange(total), total
        seen, of_sample = np.cumsum(self.there, 0), self.there.sum(0)
        return np.where(seen == 0, total, row[np.cumsum(of_sample) - of_sample + seen - 1])

    def ends(self, direction: int) -> Integers:
        """Of each sample the packed row of the last step that a direction takes; the number of packed rows if there is none."""
        counts, segment = np.array(self.packing.counts, np.int64), np.arange(self.packing.rows)
        last = segment
        if not direction:
            lengths = len(counts) - np.searchsorted(counts[::-1], segment, side="right")
            last = (np.cumsum(counts) - counts)[lengths - 1] + segment
        return np.append(last, self.packing.total)[np.minimum(self.leave[direction], len(segment))]


def first_steps(lengths: Integers, steps: int) -> Booleans:
    """[T, N], the first so many steps of each sample."""
    return np.arange(steps)[:, None] < lengths


def beginnings(lengths: Integers, there: Booleans, order: Integers | None = None) -> Segments:
    """Of samples whose steps that are there are so many, and the first: the same as `segments`, in less time. Those of equal
    lengths are in the order of the samples, or all that have a step in a given `order`.
    """
    samples = len(lengths)
    if order is None:
        order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
    segment, longest = np.arange(len(order)), lengths[order]
    counts = len(order) - np.searchsorted(longest[::-1], np.arange(longest.max(initial=0)), side="right")
    leave = np.arange(len(order), len(order) + samples)
    leave[order] = segment

    def places() -> tuple[Integers, Integers]:
        step = np.repeat(np.arange(len(counts)), counts)
        return order[np.arange(len(step)) - (np.cumsum(counts) - counts)[step]], step

    packing = Packing(tuple(counts.tolist()), places)

    def element() -> Integers:
        found: Integers = (np.cumsum(lengths) - lengths)[packing.sample] + packing.step
        return found

    return Segments(packing, there, (order, order), (leave, leave), element)


def segments(there: Booleans, resets: Booleans | None = None) -> Segments:
    """Of the steps that are there and those before which states begin anew, both [T, N]; a reset at a step that is not there is
    one at the next that is. Segments of equal lengths are in the order of the samples.
    """
    steps, samples = there.shape
    place = np.flatnonzero(there.T.ravel())  # of sample * steps + step
    of_sample = np.count_nonzero(there, 0)
    if resets is None:
        whose = np.flatnonzero(of_sample)
        lengths = of_sample[whose]
        first = np.cumsum(lengths) - lengths
        is_new = np.zeros(len(whose), np.bool_)
    else:
        sample = np.repeat(np.arange(samples), of_sample)
        part = np.cumsum(resets, 0).T.ravel()[place]
        begins = np.ones(len(place), np.bool_)
        begins[1:] = (sample[1:] != sample[:-1]) | (part[1:] != part[:-1])
        first = np.flatnonzero(begins)
        lengths = np.diff(np.append(first, len(place)))
        whose, is_new = sample[first], part[first] > 0
    order = np.argsort(-lengths, kind="stable")
    is_first, is_last = np.diff(whose, prepend=-1)[order] != 0, np.diff(whose, append=-1)[order] != 0
    longest = lengths[order]
    counts = len(order) - np.searchsorted(longest[::-1], np.arange(longest.max(initial=0)), side="right")
    before = np.cumsum(counts) - counts
    rank = np.arange(len(place)) - np.repeat(before, counts)
    element = first[order][rank] + np.repeat(np.arange(len(counts)), counts)
    whose = whose[order]
    of_row = whose[rank]
    packing = Packing(tuple(counts.tolist()), lambda: (of_row, place[element] - of_row * steps))

    def leaving(of_its_sample: Booleans) -> Integers:
        """The last state of each sample is that of this segment of its own."""
        found = np.arange(len(order), len(order) + samples)
        found[whose[of_its_sample]] = np.flatnonzero(of_its_sample)
        return found

    enter = np.where(is_new[order], samples, whose), np.where(is_last, whose, samples)
    return Segments(packing, there, enter, (leaving(is_last), leaving(is_first)), lambda: element)


class Steps(NamedTuple):
    """The steps of a batch that are there and those before which states begin anew, if any; [T, N] both. `lengths`: how many each
    sample has, where these are its first and none is reset.
    """

    there: Booleans
    resets: Booleans | None
    lengths: Integers | None

    @property
    def are_all(self) -> bool:
        """All steps are there, and none is reset."""
        return self.resets is None and bool(self.there.all())

    def segments(self) -> Segments:
        return segments(self.there, self.resets) if self.lengths is None else beginnings(self.lengths, self.there)


@dataclass(frozen=True)
class StepsGiven:
    """What a call says of the steps that its samples have; a layer's documentation tells of each."""

    lengths: Any
    cu_seqlens: Any
    mask: Any
    mask_value: Any
    reset: Any
    padding: Any
    filled: Booleans | None = None
    """Where the input is not `mask_value`, once a front-end has looked."""

    def steps(self, sides: tuple[int, ...], batch_first: bool) -> Steps:
        """Of a batch. Masks are of these sides: [T, N], [N, T] with `batch_first`, or [T] without a batch.

        Raises: TypeError for what is of another kind; ValueError for another shape, or lengths that cannot be.
        """

        def by_step(mask: Booleans) -> Booleans:
            return mask.T if batch_first and mask.ndim > 1 else mask.reshape(len(mask), -1)

        count, samples = (*sides, 1)[:2] if len(sides) == 1 or not batch_first else sides[::-1]
        lengths = None if self.lengths is None else checked_lengths(self.lengths, count, samples)
        resets = None if self.reset is None else by_step(checked_mask(self.reset, "reset", sides))
        resets = resets if resets is not None and resets.any() else None
        masks = list(map(by_step, self._masks(sides)))
        if lengths is not None:
            masks.append(first_steps(lengths, count))
        there = reduce(np.logical_and, masks[1:], masks[0].copy()) if masks else np.ones((count, samples), np.bool_)
        return Steps(there, resets, lengths if len(masks) == 1 and resets is None else None)

    def joined(self, rows: int) -> tuple[Segments, Integers, Integers | None]:
        """Of samples one after the other in so many rows, with masks [rows]; the row of each packed row; and if outputs are held,
        the packed row that each row shows, as `Segments.held`.

        Raises: TypeError and ValueError for what cannot be.
        """
        offsets = checked_offsets(self.cu_seqlens, rows)
        lengths = np.diff(offsets)
        there = first_steps(lengths, lengths.max(initial=0))
        sample, step = np.nonzero(there.T)
        resets = None
        if self.reset is not None:
            resets = np.zeros_like(there)
            resets[step, sample] = checked_mask(self.reset, "reset", (rows,))
        for mask in self._masks((rows,)):
            there[step, sample] &= mask
        found = segments(there, resets)
        place = offsets[found.packing.sample] + found.packing.step
        return found, place, found.held()[step, sample] if self.holds else None

    @property
    def holds(self) -> bool:
        """Whether outputs hold what they held in the last step."""
        return isinstance(self.padding, str)

    @property
    def number(self) -> float:
        """What outputs hold otherwise."""
        return 0.0 if self.holds else float(self.padding)

    def _masks(self, sides: tuple[int, ...]) -> list[Booleans]:
        given = [] if self.mask is None else [checked_mask(self.mask, "mask", sides)]
        return given if self.filled is None else [*given, self.filled]

    def check(self, dtype: Any, largest: float) -> None:
        """Raises: TypeError and ValueError for what does not go together, or is beyond the largest number of the dtype."""
        if not isinstance(self.padding, str) or self.padding != LAST:
            check_number(self.padding, "padding", f"a number or {LAST!r}", dtype, largest)
        if self.lengths is not None and self.cu_seqlens is not None:
            raise ValueError("give lengths or cu_seqlens, not both")
        value = self.mask_value
        if value is not None:
            check_number(value, "mask_value", "a number", dtype, largest)
            if value != value:
                raise ValueError("mask_value should be a number, got nan, which equals nothing")
        if self.padding != 0.0 and all(one is None for one in (self.lengths, self.cu_seqlens, self.mask, value)):
            sides = "is for outputs where there is no step, and there are no lengths and no mask"
            raise ValueError(f"padding={self.padding!r} {sides}")


def steps_given(lengths: Any, cu_seqlens: Any, mask: Any, mask_value: Any, reset: Any, padding: Any) -> StepsGiven | None:
    """What a call says; None if nothing."""
    if lengths is cu_seqlens is mask is mask_value is reset is None and isinstance(padding, float) and padding == 0.0:
        return None
    return StepsGiven(lengths, cu_seqlens, mask, mask_value, reset, padding)


def checked_lengths(lengths: Any, steps: int, samples: int) -> Integers:
    """[N], from 0 to `steps`."""
    found = integers(lengths, "lengths")
    if len(found) != samples:
        raise ValueError(f"lengths should have one length for each of the {samples} samples, got {len(found)}")
    if len(found) and (found.min() < 0 or found.max() > steps):
        wrong = found[(found < 0) | (found > steps)][0]
        raise ValueError(f"lengths should be from 0 to the {steps} steps of the input, got {wrong}")
    return found


def checked_mask(mask: Any, who: str, sides: tuple[int, ...]) -> Booleans:
    found = as_array(mask)
    if not isinstance(found, np.ndarray) or found.dtype != np.bool_:
        kind = found.dtype if isinstance(found, np.ndarray) else type(mask).__name__
        example = f": {who}.bool()" if hasattr(mask, "bool") else f": {who}.astype(bool)" if hasattr(mask, "astype") else ""
        raise TypeError(f"{who} should be an array of bool, got {kind}{example}")
    check_unmasked(found, who)
    if found.shape != tuple(sides):
        raise ValueError(f"{who} should have shape {tuple(sides)}, one for each step of the input, got {found.shape}")
    return found


def checked_offsets(offsets: Any, total: int) -> Integers:
    """[N + 1], from 0 to `total` and never back."""
    found = integers(offsets, "cu_seqlens")
    if not len(found) or found[0] != 0 or found[-1] != total:
        ends = f"from {found[0]} to {found[-1]}" if len(found) else "nothing"
        raise ValueError(f"cu_seqlens should go from 0 to the {total} rows of the input, got {ends}")
    if np.any(np.diff(found) < 0):
        raise ValueError(f"cu_seqlens should never go back, got {found[1:][np.diff(found) < 0][0]} after a larger one")
    return found


def check_number(value: Any, who: str, expected: str, dtype: Any, largest: float) -> None:
    """Raises: TypeError unless it is a real number, ValueError when it is finite and beyond the largest of a dtype."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{who} should be {expected}, got {value!r}")
    try:
        beyond = largest < abs(float(value)) < float("inf")
    except OverflowError:
        beyond = True
    if beyond:
        raise ValueError(f"{who} should be a number that {dtype} has, up to {largest:.3g}, got one beyond")


def no_array(who: str, given: object, wanted: object) -> TypeError:
    """Of what is no array of the numbers that are wanted, a dtype or `integers`."""
    fixes: list[str] = []
    if hasattr(given, "detach"):
        fixes = [f"{who}.numpy() is one, and layers of `anyrnn.torch` take tensors"]
    elif isinstance(given, (list, tuple)):
        fixes = [f"np.asarray({who}, {str(wanted)!r}) makes one of it"] * isinstance(wanted, np.dtype)
    elif isinstance(given, np.ndarray):
        fixes = [f"{who}.astype({str(wanted)!r}) makes it so"] * (given.dtype.kind in "fiub" and isinstance(wanted, np.dtype))
    kind = given.dtype if isinstance(given, np.ndarray) else type(given).__name__
    return TypeError("; ".join([f"{who} should be a NumPy array of {wanted}, got {kind}", *fixes]))


def check_unmasked(array: npt.NDArray[Any], who: str) -> None:
    """Raises: TypeError for an array of numpy.ma, which few have imported."""
    if type(array) is not np.ndarray and isinstance(array, np.ndarray) and hasattr(array, "mask"):
        raise TypeError(f"{who} is a masked array, and its mask would be ignored; give its data and, for steps of x, mask=")


def as_array(given: Any) -> Any:
    """A tensor as an array, anything else as it is. Raises: ValueError for one without numbers."""
    if not hasattr(given, "detach"):
        return given
    if given.is_meta:
        raise ValueError("a tensor on the meta device has no numbers: give lengths, masks and resets on another one")
    with suppress(RuntimeError):  # under torch's transforms of functions a tensor has no memory of its own
        return (given if given.is_cpu else given.cpu()).numpy()
    with suppress(RuntimeError):  # which torch 2.9 has to have for a list
        return np.array(given.tolist())
    return np.array([number.item() for number in given.flatten()]).reshape(given.shape)


def integers(given: Any, who: str) -> Integers:
    """A vector of integers."""
    found = as_array(given)
    if isinstance(found, np.ndarray):
        check_unmasked(found, who)
        if found.ndim != 1 or found.dtype.kind not in "iu":
            raise TypeError(f"{who} should be a vector of integers, got {found.dtype} of shape {found.shape}")
        if found.dtype != np.uint64:
            return found.astype(np.int64)
        found = found.tolist()
    if not isinstance(found, Sequence) or isinstance(found, (str, bytes)):
        raise TypeError(f"{who} should be a sequence of integers, got {type(found).__name__}")
    try:
        numbers = [operator.index(n) for n in found]
    except TypeError as error:
        raise TypeError(f"{who} should be integers: {error}") from None
    if any(isinstance(n, bool) for n in found):
        raise TypeError(f"{who} should be integers, got a bool")
    if any(abs(n) >= 2**63 for n in numbers):
        raise ValueError(f"{who} should be numbers of steps, got {max(numbers, key=abs)}")
    return np.array(numbers, np.int64)
