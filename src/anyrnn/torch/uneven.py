"""Batches whose sequences end at different steps: what a module is given, as packed rows for the operators, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from anyrnn.sequence.lengths import LAST, Integers, Packing, check_padding, lengths_between, packing
from anyrnn.sequence.network import Network
from anyrnn.torch.operators import first_values


@dataclass(frozen=True)
class Samples:
    """Which of the caller's `count` samples the kernels have, in their order: `order`, or all in the caller's (None)."""

    count: int
    order: Tensor | None

    def taken(self, states: Sequence[Tensor]) -> list[Tensor]:
        """The states [units, N, size] of the kernels' samples."""
        return list(states) if self.order is None else [s.index_select(1, self.order) for s in states]

    def given_back(self, last: Sequence[Tensor], first: Sequence[Tensor], network: Network) -> list[Tensor]:
        """The last states of the caller's samples; of those without steps the first ones, the cell's own unless given."""
        if self.order is None:
            return list(last)
        if len(self.order) == self.count:
            return [s.index_select(1, self.order.argsort()) for s in last]
        if not first:
            own = first_values(network, last[0], self.count)
            first = [state.expand(len(network.units), -1, -1) for state in own]
        return [before.index_copy(1, self.order, after) for before, after in zip(first, last, strict=True)]


@dataclass(frozen=True)
class InTensor:
    """Sequences in one tensor of leading sizes `sides`, whose row `place[k]` is packed row k. Other rows of the output hold
    `padding`, or show the packed row that `held` has for them.
    """

    packing: Packing
    samples: Samples
    sides: tuple[int, ...]
    place: Tensor
    padding: float = 0.0
    held: Tensor | None = None

    def rows(self, sequence: Tensor) -> Tensor:
        return sequence.flatten(0, len(self.sides) - 1).index_select(0, self.place)

    def unpacked(self, name: str, value: Any, label: str) -> Any:
        """A further per-step input as the input is."""
        return value

    def sequence(self, rows: Tensor) -> Tensor:
        if self.held is not None:
            nothing = rows.new_zeros(1, rows.size(1))  # of samples without steps
            flat = torch.cat([rows, nothing]).index_select(0, self.held)
        else:
            flat = rows.new_full((math.prod(self.sides), rows.size(1)), self.padding).index_copy(0, self.place, rows)
        return flat.view(*self.sides, -1)


@dataclass(frozen=True)
class InPackedSequence:
    """torch's own form, in which rows stand as the kernels take them."""

    packing: Packing
    samples: Samples
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


def with_lengths(input: Tensor, lengths: Any, batch_first: bool, padding: float | str) -> InTensor | None:
    """Of sequences [T, N, D], or [N, T, D] with `batch_first`, or one [T, D]. None when all samples have all steps.

    Raises: TypeError and ValueError for wrong lengths or padding.
    """
    check_padding(padding)
    steps_first = input.dim() == 2 or not batch_first
    sides = (*input.shape[:2],) if input.dim() == 3 else (input.shape[0], 1)
    steps, samples = sides if steps_first else sides[::-1]
    packed = packing(lengths, steps, samples)
    if packed.counts == (samples,) * steps:
        return None
    step, sample = packed.places()
    place = step * samples + sample if steps_first else sample * steps + step
    held = None
    if padding == LAST:
        shown = packed.held(steps, samples)
        held = _on(input, (shown if steps_first else shown.T).reshape(-1))
    number = 0.0 if isinstance(padding, str) else float(padding)
    return InTensor(packed, _samples(input, packed, samples), input.shape[:-1], _on(input, place), number, held)


def with_offsets(input: Tensor, offsets: Any) -> InTensor:
    """Of sequences one after the other, [sum of lengths, D]. Raises: TypeError and ValueError for wrong offsets."""
    lengths = lengths_between(offsets, len(input))
    samples = len(lengths)
    packed = packing(lengths, int(lengths.max(initial=0)), samples)
    step, sample = packed.places()
    place = (np.cumsum(lengths) - lengths)[sample] + step
    return InTensor(packed, _samples(input, packed, samples), input.shape[:-1], _on(input, place))


def in_packed_sequence(given: PackedSequence, label: str) -> InPackedSequence:
    """Raises: ValueError for one that torch would not have made."""
    counts, order = tuple(given.batch_sizes.tolist()), given.sorted_indices
    if sum(counts) != len(given.data) or not counts or counts[-1] < 1 or list(counts) != sorted(counts, reverse=True):
        raise ValueError(
            f"{label}: batch_sizes of a PackedSequence should never grow, be at least 1 and add up to its "
            f"{len(given.data)} rows, got {list(counts)}"
        )
    numbers = np.arange(counts[0]) if order is None else np.array(order.tolist(), np.int64)
    if sorted(numbers.tolist()) != list(range(counts[0])):
        raise ValueError(f"{label}: sorted_indices of a PackedSequence should name each of its {counts[0]} samples once")
    return InPackedSequence(Packing(numbers, counts), Samples(counts[0], order), given)


def nothing(
    network: Network, inputs: Sequence[Tensor], first: Sequence[Tensor], sources: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """Output and last states where no sample has a step: none. Gradients are zero, as of sums of nothing."""
    zero = sum(t.flatten()[:0].sum() for t in (*inputs, *first, *sources))
    like = inputs[0]
    output = like.new_empty(0, network.directions * network.output_size) + zero
    return output, [like.new_empty(len(network.units), 0, size) + zero for size in network.state_sizes]


def _samples(input: Tensor, packed: Packing, count: int) -> Samples:
    as_they_are = packed.samples == tuple(range(count))
    return Samples(count, None if as_they_are else _on(input, packed.order))


def _on(input: Tensor, numbers: Integers) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(numbers)).to(input.device)
