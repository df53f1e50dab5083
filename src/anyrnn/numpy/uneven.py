"""Batches whose samples have different steps: what a layer is given, as packed rows for the kernels, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from anyrnn.numpy.arguments import Array
from anyrnn.sequence.network import Network
from anyrnn.sequence.packing import Integers, Packing, Segments, StepsGiven


@dataclass(frozen=True)
class Batch:
    """Sequences seen as [T, N, features], or, `joined`, one after the other as [rows, 1, features]: `index` gives the places of
    the packed rows. Other places of the output hold `padding`, or show the packed row that `held` has for them.
    """

    network: Network
    segments: Segments
    sides: tuple[int, int]
    index: tuple[Integers, Integers]
    padding: float
    held: Integers | None
    own: Sequence[Array]
    """First values of states where none are given, [units, 1, size]."""
    joined: bool = False

    @property
    def packing(self) -> Packing:
        return self.segments.packing

    @property
    def samples(self) -> int:
        return self.segments.samples

    # sequences

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
        return self.rows(d_sequence) if self.held is None else self._sum_at(self.held, d_sequence)

    def rows_of_last(self, d_last: Array) -> Array:
        """Of a cotangent [N, features] of the output of each sample's last step."""
        steps = self.segments.there.sum(0)
        rows = np.append(self.segments.element.argsort(), self.packing.total)
        return self._sum_at(rows[np.where(steps, np.cumsum(steps) - 1, -1)], d_last)

    def ends(self, rows: Array) -> Array:
        """Of outputs, those of the last step that each direction takes of each sample [N, width]; zero where there is
        none.
        """
        found = np.append(rows, np.zeros_like(rows, shape=(1, rows.shape[1])), 0)
        return np.concatenate([part[i] for i, (_, part) in zip(self._ends, self.network.by_way(found), strict=True)], -1)

    def at_ends(self, d_ends: Array) -> Array:
        """The adjoint."""
        parts = zip(self._ends, self.network.by_way(d_ends), strict=True)
        return np.concatenate([self._sum_at(i, d) for i, (_, d) in parts], -1)

    @cached_property
    def _ends(self) -> list[Integers]:
        return [self.segments.ends(way) for way in self.network.ways]

    def pad_ends(self, output: Array) -> None:
        """Samples without a step get what outputs hold there."""
        output[np.all([i == self.packing.total for i in self._ends], 0)] = self.padding

    def _sum_at(self, rows: Integers, values: Array) -> Array:
        """[packed rows, features], the sums of values that go to each; those of row `total` to none."""
        sums = np.zeros((self.packing.total + 1, values.shape[-1]), values.dtype)
        np.add.at(sums, rows, values)
        return sums[:-1]

    # states, of units, samples and features

    def entering(self, given: Sequence[Array] | None) -> list[Array] | None:
        """The first states of the segments; None where all are the cell's own."""
        return None if given is None else self._taken([given, self.own], self.segments.enter)

    def leaving(self, last: Sequence[Array], given: Sequence[Array] | None) -> list[Array]:
        """The last states of the samples."""
        given = given or [np.repeat(own, self.samples, 1) for own in self.own]
        return self._taken([last, given], self.segments.leave)

    def cotangents_leaving(self, d_last: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        """From those of the samples' last states, those of the segments', and those of the given first ones."""
        rows = self.packing.rows
        d_parts = self._given_back(d_last, self.segments.leave, rows + self.samples)
        return [np.ascontiguousarray(d[:, :rows]) for d in d_parts], [d[:, rows:] for d in d_parts]

    def cotangents_entering(self, d_first: Sequence[Array]) -> list[Array]:
        """From those of the segments' first states, those of the given ones and behind them of `own`."""
        return self._given_back(d_first, self.segments.enter, self.samples + 1)

    def _taken(self, parts: Sequence[Sequence[Array]], index: tuple[Integers, Integers]) -> list[Array]:
        """Of each state, from all samples of the parts, by direction."""
        dtype = parts[0][0].dtype
        sources = [np.concatenate(of_state, 1, dtype=dtype) for of_state in zip(*parts, strict=True)]
        units = self.network.units
        return [np.stack([source[u, index[d]] for u, (_, d) in enumerate(units)]) for source in sources]

    def _given_back(self, taken: Sequence[Array], index: tuple[Integers, Integers], samples: int) -> list[Array]:
        """The adjoint of `_taken`, of parts with so many samples."""
        sums = [np.zeros((d.shape[0], samples, d.shape[2]), d.dtype) for d in taken]
        for total, d in zip(sums, taken, strict=True):
            for u, (_, direction) in enumerate(self.network.units):
                np.add.at(total[u], index[direction], d[u])
        return sums


def batch_of(
    network: Network, x: Array, sides: tuple[int, ...], batch_first: bool, given: StepsGiven, own: Sequence[Array]
) -> Batch | None:
    """Of sequences x [T, N, D], whose masks are of these `sides`, or one after the other [rows, 1, D] as cu_seqlens say. None
    when all samples have all steps, without a reset. Raises: TypeError and ValueError for what cannot be.
    """
    given.check(x.dtype, float(np.finfo(x.dtype).max))
    if given.mask_value is not None:
        filled = (x != float(given.mask_value)).any(-1)  # [T, N], or [rows, 1]
        given = replace(given, filled=filled.reshape(sides) if len(sides) == 1 else filled.T if batch_first else filled)
    if given.cu_seqlens is None:
        steps = given.steps(sides, batch_first)
        if steps.are_all:
            return None
        found = steps.segments()
        held = found.held() if given.holds else None
        return Batch(network, found, x.shape[:2], (found.packing.step, found.packing.sample), given.number, held, own)
    if len(sides) > 1:
        raise ValueError(f"with cu_seqlens, x should be 2-D [rows, {x.shape[-1]}], got 3-D")
    found, place, held = given.joined(len(x))
    shown = None if held is None else held[:, None]
    return Batch(network, found, (len(x), 1), (place, np.zeros_like(place)), given.number, shown, own, joined=True)
