"""Batches whose samples have different steps: what a module is given, as packed rows for the operators, and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from anyrnn.sequence.network import Network
from anyrnn.sequence.packing import Integers, Segments, StepsGiven, as_array, beginnings, first_steps
from anyrnn.torch import plain
from anyrnn.torch.rows import Places, Scatter, taken

HELD_FROM = 0.97
"""The share of steps that are there from which on a batch is not packed."""


@dataclass(frozen=True)
class StatesOfSegments:
    """The states of a batch, of the caller's samples and of the segments."""

    network: Network
    segments: Segments
    own: Callable[[], Sequence[Tensor]]
    """Gives the first values where none are given, [units, 1, size]."""

    def entering(self, given: Sequence[Tensor]) -> Sequence[Tensor]:
        """The first states of the segments; none where all are the cell's own."""
        if not given and not self.network.learned_state:
            return ()
        return self._taken(self._given(given), self.own, self.segments.enter)

    def leaving(self, last: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
        """The last states of the samples."""
        return self._taken(last, lambda: self._given(given), self.segments.leave)

    def _given(self, given: Sequence[Tensor]) -> Sequence[Tensor]:
        return given or [own.expand(-1, self.segments.samples, -1) for own in self.own()]

    def _taken(
        self, of_states: Sequence[Tensor], others: Callable[[], Sequence[Tensor]], index: tuple[Integers, Integers]
    ) -> list[Tensor]:
        """Of each state [units, samples, size], from all samples that it has and then those that others have, by direction."""
        used = [index[direction] for direction in self.network.ways]
        if max(int(i.max(initial=-1)) for i in used) >= of_states[0].size(1):
            of_states = [torch.cat(parts, 1) for parts in zip(of_states, others(), strict=True)]
        samples = of_states[0].size(1)
        if all(i is used[0] or np.array_equal(i, used[0]) for i in used):
            if np.array_equal(used[0], np.arange(samples)):
                return list(of_states)
            place = on_device_of(of_states[0], used[0])
            return [state.index_select(1, place) for state in of_states]
        places = [on_device_of(of_states[0], i) for i in used] * self.network.layers
        by_unit = [zip(state, places, strict=True) for state in of_states]
        return [torch.stack([of_unit.index_select(0, place) for of_unit, place in pairs]) for pairs in by_unit]


@dataclass(frozen=True)
class InTensor:
    """Sequences in one tensor of leading sizes `sides`. Other rows of the output than those that are there hold a number, or show
    the packed row that `held` has for them.
    """

    segments: Segments
    sides: tuple[int, ...]
    scatter: Scatter
    held: Tensor | None

    def rows(self, sequence: Tensor) -> Tensor:
        return taken(sequence.flatten(0, len(self.sides) - 1), self.scatter.places)

    def unpacked(self, name: str, value: Any, label: str) -> Any:
        """A further per-step input as the input is."""
        return value

    @property
    def scatter_of_output(self) -> Scatter | None:
        """How rows of an output become all rows; None where others show what they held."""
        return self.scatter if self.held is None else None

    def sequence(self, rows: Tensor, scattered: bool = False) -> Tensor:
        """Of packed rows, or `scattered` already to where the caller has them."""
        if scattered:
            return rows.view(*self.sides, rows.size(1))
        if self.held is not None:
            nothing = rows.new_zeros(1, rows.size(1))  # where there was no step yet
            flat = torch.cat([rows, nothing]).index_select(0, self.held)
        else:
            flat = self.scatter.put(rows)
        return flat.view(*self.sides, rows.size(1))


@dataclass(frozen=True)
class InPackedSequence:
    """torch's own form, in which rows stand as the kernels take them."""

    segments: Segments
    given: PackedSequence
    scatter_of_output = None

    def rows(self, sequence: Tensor) -> Tensor:
        return sequence

    def unpacked(self, name: str, value: Any, label: str) -> Any:
        """The rows of a further per-step input, which has to be packed as the input is."""
        if not isinstance(value, PackedSequence):
            raise TypeError(f"{label}: {name} should be a PackedSequence as the input is, got {type(value).__name__}")
        theirs, ours = (None if p.sorted_indices is None else p.sorted_indices.tolist() for p in (value, self.given))
        if not value.batch_sizes.equal(self.given.batch_sizes) or theirs != ours:
            raise ValueError(f"{label}: {name} should have the batch_sizes and sorted_indices of the input")
        return value.data

    def sequence(self, rows: Tensor, scattered: bool = False) -> PackedSequence:
        return PackedSequence(rows, self.given.batch_sizes, self.given.sorted_indices, self.given.unsorted_indices)


Batch = InTensor | InPackedSequence


@dataclass(frozen=True)
class Held:
    """Sequences with marks [T, N, 1] of the steps that are there, for a network that is `held`."""

    sequence: Tensor
    there: Tensor


def in_tensor(input: Tensor, given: StepsGiven, batch_first: bool, may_hold: bool) -> InTensor | Held | None:
    """Of sequences [T, N, D], [N, T, D] with `batch_first`, or [T, D]. None when all samples have all steps, without a reset. If
    states `may_hold` and nearly all steps are there, they are not packed: the others take less time than packing.

    Raises: TypeError and ValueError for what cannot be.
    """
    sides = tuple(input.shape[:-1])
    steps = _looked_at(given, input).steps(sides, batch_first)
    if steps.are_all:
        return None
    there = steps.there
    nearly_all = may_hold and steps.resets is None and np.count_nonzero(there) >= HELD_FROM * there.size
    if nearly_all and plain.direct(input) and there.any(0).all():  # or a state that is no number may never be read
        gone = ~there.T if batch_first and len(sides) > 1 else ~there.reshape(sides)
        numbers = input.detach().numpy()
        if not np.isfinite(numbers[gone]).all():  # products would spread it
            input = input.masked_fill(torch.from_numpy(gone)[..., None], 0.0)
        return Held(input, torch.from_numpy(there[..., None].astype(numbers.dtype)))
    found = steps.segments()
    step, sample = found.packing.step, found.packing.sample
    steps_first = len(sides) == 1 or not batch_first
    place = step * there.shape[1] + sample if steps_first else sample * there.shape[0] + step
    held = (found.held() if steps_first else found.held().T).reshape(-1) if given.holds else None
    return _in_tensor(input, given, found, place, held)


def in_joined_rows(input: Tensor, given: StepsGiven) -> InTensor:
    """Of sequences one after the other, [sum of lengths, D]. Raises: TypeError and ValueError for what cannot be."""
    return _in_tensor(input, given, *_looked_at(given, input).joined(len(input)))


def _looked_at(given: StepsGiven, input: Tensor) -> StepsGiven:
    """With the steps that hold something else than the `mask_value`."""
    if given.mask_value is None:
        return given
    if input.is_meta:
        raise ValueError("mask_value looks at the input's numbers, and a tensor on the meta device has none")
    return replace(given, filled=as_array((input.detach() != float(given.mask_value)).any(-1)))


def _in_tensor(input: Tensor, given: StepsGiven, found: Segments, place: Integers, held: Integers | None) -> InTensor:
    sides = tuple(input.shape[:-1])
    scatter = Scatter(Places(place, math.prod(sides), input.device), given.number)
    return InTensor(found, sides, scatter, None if held is None else on_device_of(input, held))


def in_packed_sequence(given: PackedSequence, label: str) -> InPackedSequence:
    """Raises: ValueError for one that torch would not have made."""
    counts, order = given.batch_sizes.tolist(), given.sorted_indices
    if sum(counts) != len(given.data) or not counts or counts[-1] < 1 or counts != sorted(counts, reverse=True):
        raise ValueError(
            f"{label}: batch_sizes of a PackedSequence should never grow, be at least 1 and add up to its "
            f"{len(given.data)} rows, got {counts}"
        )
    samples, segment = counts[0], np.arange(counts[0])
    numbers = segment if order is None else np.array(as_array(order))
    if not np.array_equal(np.sort(numbers), segment):
        raise ValueError(f"{label}: sorted_indices of a PackedSequence should name each of its {samples} samples once")
    lengths = np.empty(samples, np.int64)
    lengths[numbers] = len(counts) - np.searchsorted(counts[::-1], segment, side="right")
    return InPackedSequence(beginnings(lengths, first_steps(lengths, len(counts)), numbers), given)


def ends(network: Network, segments: Segments, rows: Tensor) -> Tensor:
    """Of packed rows, those of the last step that each direction takes of each sample [N, width]; zero where there is none."""
    found = torch.cat([rows, rows.new_zeros(1, rows.size(1))])
    parts = zip(network.ways, network.by_way(found), strict=True)
    return torch.cat([part.index_select(0, on_device_of(rows, segments.ends(way))) for way, (_, part) in parts], -1)


def padded_ends(network: Network, segments: Segments, output: Tensor, padding: float) -> Tensor:
    """With a number in samples that have no step."""
    if not padding:
        return output
    nowhere = np.all([segments.ends(way) == segments.packing.total for way in network.ways], 0)
    return output.masked_fill(on_device_of(output, nowhere)[:, None], padding)


def of_units(batch: Batch, rows: Tensor) -> Any:
    """Sequences of each unit [units, *sides, size], from the packed rows of each [units, rows, size]."""
    units, count, size = rows.shape
    together = batch.sequence(rows.transpose(0, 1).reshape(count, units * size))
    if isinstance(together, PackedSequence):
        return together._replace(data=together.data.view(count, units, size))
    return together.view(*together.shape[:-1], units, size).movedim(-2, 0)


def nothing(
    network: Network, inputs: Sequence[Tensor], first: Sequence[Tensor], sources: Sequence[Tensor], rows: int
) -> tuple[Tensor, list[Tensor]]:
    """Output and last states where no sample has a step: so many rows of zeros, and none. Gradients are zero, as of sums of
    nothing.
    """
    zero = sum(t.flatten()[:0].sum() for t in (*inputs, *first, *sources))
    like = inputs[0]
    output = like.new_zeros(rows, network.width) + zero
    return output, [like.new_empty(len(network.units), 0, size) + zero for size in network.state_sizes]


def on_device_of(input: Tensor, numbers: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(numbers)).to(input.device)
