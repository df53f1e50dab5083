"""Batches whose sequences end at different steps: what a layer is given, as packed rows for the kernels, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anyrnn.numpy.arrays import Array
from anyrnn.sequence.lengths import LAST, Integers, Packing, check_padding, lengths_between, packing


@dataclass(frozen=True)
class Uneven:
    """Of sequences seen as [T, N, features], or, `joined`, one after the other as [rows, 1, features]: `index` gives the places
    of the packed rows. Other places of the output hold `padding`, or show the packed row that `held` has for them.
    """

    packing: Packing
    samples: int
    sides: tuple[int, int]
    index: tuple[Integers, Integers]
    padding: float = 0.0
    held: Integers | None = None
    joined: bool = False

    def rows(self, sequence: Array) -> Array:
        """[packed rows, features]"""
        return np.ascontiguousarray(sequence[self.index])

    def put(self, rows: Array, sequence: Array) -> None:
        """An output's rows to where the caller wants them."""
        if self.held is not None:
            sequence[...] = np.append(rows, np.zeros_like(rows, shape=(1, rows.shape[1])), 0)[self.held]
        else:
            sequence[...] = self.padding
            sequence[self.index] = rows

    def rows_of_cotangent(self, d_sequence: Array) -> Array:
        """Of an output that `put` has filled."""
        if self.held is None:
            return self.rows(d_sequence)
        d_rows = np.zeros((self.packing.total + 1, d_sequence.shape[-1]), d_sequence.dtype)
        np.add.at(d_rows, self.held, d_sequence)
        return d_rows[:-1]

    def rows_of_last(self, d_last: Array) -> Array:
        """Of a cotangent [N, features] of each sample's last output."""
        d_rows = np.zeros((self.packing.total, d_last.shape[-1]), d_last.dtype)
        d_rows[self.packing.held(len(self.packing.counts), self.samples)[-1, self.packing.order]] = d_last[self.packing.order]
        return d_rows

    def taken(self, states: Sequence[Array] | None) -> list[Array] | None:
        """The states [units, N, size] of the samples that have steps, in the kernels' order."""
        return None if states is None else [np.ascontiguousarray(s[:, self.packing.order]) for s in states]

    def put_states(self, taken: Sequence[Array], others: Sequence[Array | float], states: Sequence[Array]) -> None:
        """Fill `states`; those of samples without steps with `others`."""
        for mine, other, array in zip(taken, others, states, strict=True):
            array[...] = other
            array[:, self.packing.order] = mine


def with_lengths(x: Array, lengths: Any, padding: float | str) -> Uneven | None:
    """Of sequences [T, N, D]. None when all samples have all steps. Raises: TypeError and ValueError for what cannot be."""
    check_padding(padding)
    steps, samples, _ = x.shape
    packed = packing(lengths, steps, samples)
    if packed.counts == (samples,) * steps:
        return None
    held = packed.held(steps, samples) if padding == LAST else None
    number = 0.0 if isinstance(padding, str) else padding
    return Uneven(packed, samples, (steps, samples), packed.places(), number, held)


def with_offsets(x: Array, offsets: Any) -> Uneven:
    """Of rows one after the other [rows, 1, D]. Raises: TypeError and ValueError for what cannot be."""
    lengths = lengths_between(offsets, len(x))
    packed = packing(lengths, int(lengths.max(initial=0)), len(lengths))
    step, sample = packed.places()
    index = (np.cumsum(lengths) - lengths)[sample] + step, np.zeros_like(step)
    return Uneven(packed, len(lengths), (len(x), 1), index, joined=True)
