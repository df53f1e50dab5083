"""Batches whose samples have different steps: what a module is given, as packed rows for the operators, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as are_functorch_transforms_active
from torch.autograd import forward_ad
from torch.nn.utils.rnn import PackedSequence

from anyrnn.sequence.network import Network
from anyrnn.sequence.packing import Integers, Segments, StepsGiven, as_array, segments
from anyrnn.torch.autograd import direct, is_batch
from anyrnn.torch.operators import new_rows, paged


@dataclass(frozen=True)
class StatesOfSegments:
    """The states of a batch, of the caller's samples and of the segments."""

    network: Network
    segments: Segments
    own: Sequence[Tensor]
    """First values where none are given, [units, 1, size]."""

    def entering(self, given: Sequence[Tensor]) -> Sequence[Tensor]:
        """The first states of the segments; none where all are the cell's own."""
        if not given and not self.network.learned_state:
            return ()
        return [self._taken(parts, self.segments.enter) for parts in zip(self._given(given), self.own, strict=True)]

    def leaving(self, last: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
        """The last states of the samples."""
        return [self._taken(parts, self.segments.leave) for parts in zip(last, self._given(given), self.own, strict=True)]

    def _given(self, given: Sequence[Tensor]) -> Sequence[Tensor]:
        return given or [own.expand(-1, self.segments.samples, -1) for own in self.own]

    def _taken(self, parts: Sequence[Tensor], index: tuple[Integers, Integers]) -> Tensor:
        """[units, samples, size], from all samples of the parts, by direction."""
        used = [index[direction] for direction in self.network.ways]
        several = max(int(i.max(initial=-1)) for i in used) >= parts[0].size(1)
        source = torch.cat(list(parts), 1) if several else parts[0]
        if all(np.array_equal(i, used[0]) for i in used):
            plain = np.array_equal(used[0], np.arange(source.size(1)))
            return source if plain else source.index_select(1, on_device_of(source, used[0]))
        places = [on_device_of(source, i) for i in used] * self.network.layers
        return torch.stack([of_unit.index_select(0, place) for of_unit, place in zip(source, places, strict=True)])


@dataclass(frozen=True)
class Places:
    """Of packed rows among all rows of the caller: packed row k is row `place[k]`, and row i is packed row `element[i]`, or any
    if it is one of the `others`, which are not there.
    """

    place: Tensor
    element: Tensor
    others: Tensor


@dataclass(frozen=True)
class InTensor:
    """Sequences in one tensor of leading sizes `sides`. Other rows of the output than those that are there hold `padding`, or
    show the packed row that `held` has for them.
    """

    segments: Segments
    sides: tuple[int, ...]
    places: Places
    padding: float
    held: Tensor | None

    def rows(self, sequence: Tensor) -> Tensor:
        return taken(sequence.flatten(0, len(self.sides) - 1), self.places)

    def unpacked(self, name: str, value: Any, label: str) -> Any:
        """A further per-step input as the input is."""
        return value

    def sequence(self, rows: Tensor) -> Tensor:
        if self.held is not None:
            nothing = rows.new_zeros(1, rows.size(1))  # where there was no step yet
            flat = torch.cat([rows, nothing]).index_select(0, self.held)
        else:
            flat = put(rows, self.places, self.padding)
        return flat.view(*self.sides, rows.size(1))


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
    return rows.new_full((len(places.element), rows.size(1)), padding).index_copy(0, places.place, rows)


def _directly(tensor: Tensor) -> bool:
    """Whether `Taken` and `Put` may be used."""
    if not (len(tensor) and tensor.is_cpu and direct(tensor)) or is_batch(tensor):
        return False
    return not are_functorch_transforms_active() and forward_ad._current_level < 0


class Taken(torch.autograd.Function):
    """`taken` in recycled memory. What torch's own operators take beside copying (new pages, a copy that is zero before
    anything is added to it) is up to a twentieth of a training step; and of them `gather` copies whole rows in the least time.
    """

    @staticmethod
    def forward(ctx: Any, flat: Tensor, places: Places) -> Tensor:
        ctx.places = places
        rows = new_rows(len(places.place), flat.size(1), flat)
        return torch.gather(flat, 0, places.place[:, None].expand_as(rows), out=rows)

    @staticmethod
    def backward(ctx: Any, d_rows: Tensor) -> Any:
        return put(d_rows, ctx.places, 0.0), None


class Put(torch.autograd.Function):
    """`put`, likewise."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Places, padding: float) -> Tensor:
        ctx.places = places
        flat = paged(rows.new_empty(len(places.element), rows.size(1)))
        return torch.gather(rows, 0, places.element[:, None].expand_as(flat), out=flat).index_fill_(0, places.others, padding)

    @staticmethod
    def backward(ctx: Any, d_flat: Tensor) -> Any:
        return taken(d_flat, ctx.places), None, None


@dataclass(frozen=True)
class InPackedSequence:
    """torch's own form, in which rows stand as the kernels take them."""

    segments: Segments
    given: PackedSequence

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

    def sequence(self, rows: Tensor) -> PackedSequence:
        return PackedSequence(rows, self.given.batch_sizes, self.given.sorted_indices, self.given.unsorted_indices)


Batch = InTensor | InPackedSequence


def in_tensor(input: Tensor, given: StepsGiven, batch_first: bool) -> InTensor | None:
    """Of sequences [T, N, D], [N, T, D] with `batch_first`, or [T, D]. None when all samples have all steps, without a reset.

    Raises: TypeError and ValueError for what cannot be.
    """
    sides = tuple(input.shape[:-1])
    found = _looked_at(given, input).segments(sides, batch_first)
    if found is None:
        return None
    steps, samples = found.there.shape
    step, sample = found.packing.step, found.packing.sample
    steps_first = len(sides) == 1 or not batch_first
    place = step * samples + sample if steps_first else sample * steps + step
    held = (found.held() if steps_first else found.held().T).reshape(-1) if given.holds else None
    return _in_tensor(input, given, found, place, held)


def in_joined_rows(input: Tensor, given: StepsGiven) -> InTensor:
    """Of sequences one after the other, [sum of lengths, D]. Raises: TypeError and ValueError for what cannot be."""
    return _in_tensor(input, given, *_looked_at(given, input).joined(len(input)))


def _looked_at(given: StepsGiven, input: Tensor) -> StepsGiven:
    """With the steps that hold something else than the `mask_value`."""
    if given.mask_value is None:
        return given
    return replace(given, filled=as_array((input.detach() != float(given.mask_value)).any(-1)))


def _in_tensor(input: Tensor, given: StepsGiven, found: Segments, place: Integers, held: Integers | None) -> InTensor:
    sides = tuple(input.shape[:-1])
    element = np.full(math.prod(sides), -1)
    element[place] = np.arange(len(place))
    others = np.flatnonzero(element < 0)
    element[others] = 0
    places = Places(*(on_device_of(input, numbers) for numbers in (place, element, others)))
    return InTensor(found, sides, places, given.number, None if held is None else on_device_of(input, held))


def in_packed_sequence(given: PackedSequence, label: str) -> InPackedSequence:
    """Raises: ValueError for one that torch would not have made."""
    counts, order = given.batch_sizes.tolist(), given.sorted_indices
    if sum(counts) != len(given.data) or not counts or counts[-1] < 1 or counts != sorted(counts, reverse=True):
        raise ValueError(
            f"{label}: batch_sizes of a PackedSequence should never grow, be at least 1 and add up to its "
            f"{len(given.data)} rows, got {counts}"
        )
    samples = counts[0]
    numbers = np.arange(samples) if order is None else np.array(order.tolist())
    if not np.array_equal(np.sort(numbers), np.arange(samples)):
        raise ValueError(f"{label}: sorted_indices of a PackedSequence should name each of its {samples} samples once")
    there = np.empty((len(counts), samples), np.bool_)
    there[:, numbers] = np.arange(samples) < np.array(counts)[:, None]
    return InPackedSequence(segments(there, order=numbers), given)


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
