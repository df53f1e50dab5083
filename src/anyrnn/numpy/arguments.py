"""What a layer is given and gives: checked, and seen as sequences [T, N, features] and states [units, N, size]."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn._memory import empty
from anyrnn.numpy.state import RecurrentState
from anyrnn.sequence.network import Network
from anyrnn.sequence.packing import check_unmasked, no_array
from anyrnn.trace.signature import no_such_input

Array = npt.NDArray[Any]
States = Array | Sequence[Array] | RecurrentState
SHARING_WORK = 10_000
"""The most that is tried to find out whether arrays whose bounds overlap have a number in common."""


@dataclass(frozen=True)
class Arguments:
    """Checks what calls are given, and sees it as the kernels do: of one network, dtype and layout."""

    network: Network
    dtype: np.dtype[Any]
    batch_first: bool

    def sequence(self, x: Array, who: str, features: int) -> tuple[Array, bool]:
        """A [T, N, features] view and whether there was a batch."""
        if not isinstance(x, np.ndarray) or x.dtype != self.dtype:
            raise no_array(who, x, self.dtype)
        check_unmasked(x, who)
        x = np.asarray(x)  # not a matrix, whose parts have two dimensions
        if x.ndim not in (2, 3):
            raise ValueError(f"{who} should be 2-D [T, {features}] or 3-D, got {x.ndim}-D")
        if x.shape[-1] != features:
            raise ValueError(f"{who} should have {features} features, got {x.shape[-1]}")
        return x[:, None] if x.ndim == 2 else x.swapaxes(0, 1) if self.batch_first else x, x.ndim == 3

    def further(self, given: Mapping[str, Array], x: Array, batched: bool) -> list[Array]:
        """The cell's further per-step inputs, [T, N, size]."""
        names, cell = dict(self.network.further_inputs), self.network.graph.name
        unknown = given.keys() - names.keys()
        if unknown:
            raise no_such_input(f"cell {cell!r}", unknown, [*names], "state")
        found = []
        for name, size in names.items():
            if name not in given:
                raise TypeError(f"cell {cell!r} needs the per-step input {name} as keyword argument")
            view, has_batch = self.sequence(given[name], name, size)
            if has_batch != batched or view.shape[:2] != x.shape[:2]:
                raise ValueError(f"{name} should have as many steps and samples as x, got shape {given[name].shape}")
            found.append(view)
        return found

    def states(self, state: States | None, rows: int, batched: bool, who: str) -> list[Array] | None:
        """One [units, N, size] array for each state."""
        if state is None:
            return None
        given = self._of_states(state, (rows,) if batched else (), who)
        return [readable(array if batched else array[:, None]) for array in given]

    def _of_states(self, given: States, sides: tuple[int, ...], who: str) -> list[Array]:
        """One array [units, *sides, size] for each state."""
        specs, units = self.network.graph.states, len(self.network.units)
        if isinstance(given, RecurrentState):
            given = given.given_to(self.network.graph.state_names, who)
        if not isinstance(given, (np.ndarray, list, tuple)):
            raise TypeError(f"{who} should be an array, a tuple of them or a RecurrentState, got {type(given).__name__}")
        arrays = [given] if isinstance(given, np.ndarray) else list(given)
        if len(arrays) != len(specs):
            names = ", ".join(s.name for s in specs)
            raise ValueError(f"{who} should be {len(specs)} arrays ({names}), got {len(arrays)}")
        for spec, size, array in zip(specs, self.network.state_sizes, arrays, strict=True):
            if not isinstance(array, np.ndarray):
                raise TypeError(f"{who} {spec.name} should be a NumPy array, got {type(array).__name__}")
            if array.shape != (units, *sides, size):
                raise ValueError(f"{who} {spec.name} should have shape {(units, *sides, size)}, got {array.shape}")
            if array.dtype != self.dtype:
                raise TypeError(f"{who} {spec.name} should be {self.dtype}, got {array.dtype}")
            check_unmasked(array, f"{who} {spec.name}")
        return arrays

    def new_sequence(self, steps: int, rows: int, features: int) -> Array:
        """A new [T, N, features] view, in the layer's layout."""
        if self.batch_first:
            return empty((rows, steps, features), self.dtype).swapaxes(0, 1)
        return empty((steps, rows, features), self.dtype)

    def new_states(self, rows: int) -> list[Array]:
        """A new [units, N, size] array for each state."""
        return [empty((len(self.network.units), rows, size), self.dtype) for size in self.network.state_sizes]

    def new_sequences(self, sides: Sequence[int]) -> list[Array]:
        """For each state, a new view [units, *sides, size] of its values after all steps: T, N in the layer's layout, or rows."""
        units, sizes = len(self.network.units), self.network.state_sizes
        if self.batch_first and len(sides) == 2:
            return [empty((units, sides[1], sides[0], size), self.dtype).swapaxes(1, 2) for size in sizes]
        return [empty((units, *sides, size), self.dtype) for size in sizes]

    def all_given_back(self, states: Sequence[Array], batched: bool) -> Any:
        """States after all steps [units, T, N, size] as the layer gives them: alone, or as a tuple of several."""
        shaped = [a[:, :, 0] if not batched else a.swapaxes(1, 2) if self.batch_first else a for a in states]
        return shaped[0] if len(shaped) == 1 else tuple(shaped)

    def all_cotangents(self, d_state: States | None, steps: int, rows: int, batched: bool) -> list[Array]:
        """Of states after all steps, [units, T, N, size]; zeros where there are none."""
        units = len(self.network.units)
        if d_state is None:
            return [np.zeros((units, steps, rows, size), self.dtype) for size in self.network.state_sizes]
        sides = (steps,) if not batched else (rows, steps) if self.batch_first else (steps, rows)
        given = self._of_states(d_state, sides, "d_state")
        if not batched:
            return [readable(array[:, :, None]) for array in given]
        return [readable(array.swapaxes(1, 2) if self.batch_first else array) for array in given]

    def in_layout(self, view: Array, batched: bool) -> Array:
        """A sequence as the layer gives it."""
        return view[:, 0] if not batched else view.swapaxes(0, 1) if self.batch_first else view

    def output(self, out: Array | None, x: Array, batched: bool, taken: Sequence[Array], samples: int | None) -> Array:
        """Where to put the output, [T, N, width], or of so many `samples` the last ones, [N, width]: the caller's `out`, which
        shares no memory with `taken`, or a new array.
        """
        network, (steps, rows, _) = self.network, x.shape
        width = network.width
        if out is None and samples is not None:
            return empty((samples, width), self.dtype)
        if out is None:
            return self.new_sequence(steps, rows, width) if batched else empty((steps, 1, width), self.dtype)
        if samples is None:
            sides: tuple[int, ...] = self.in_layout(x, batched).shape[:-1]
        else:
            sides = (samples,) if batched else ()
        if not isinstance(out, np.ndarray) or out.dtype != self.dtype:
            raise no_array("out", out, self.dtype.name)  # a copy of it would not be filled
        if out.shape != (*sides, width):
            raise ValueError(f"out should have shape {(*sides, width)}, got {out.shape}")
        output = out.reshape(samples, width) if samples is not None else self.sequence(out, "out", width)[0]
        if not out.flags.writeable:
            raise ValueError("out should be writable")
        if readable(output) is not output or overlaps_itself(output):
            raise ValueError(f"out should have its features next to each other and nothing twice, got strides {out.strides}")
        if any(share(out, a) for a in taken):
            raise ValueError("out should not share memory with x, the initial states, the parameters or memory")
        return output

    def output_cotangent(self, d_output: Array, steps: int, rows: int) -> Array:
        """[T, N, width]"""
        width = self.network.width
        view, _ = self.sequence(d_output, "d_output", width)
        if view.shape != (steps, rows, width):
            raise ValueError(f"d_output should have the output's shape, got {d_output.shape}")
        return view

    def last_cotangent(self, d_last: Array, rows: int, batched: bool, who: str) -> Array:
        """[N, width]"""
        width = self.network.width
        if not isinstance(d_last, np.ndarray):
            raise TypeError(f"{who} should be a NumPy array, got {type(d_last).__name__}")
        check_unmasked(d_last, who)
        last = d_last if batched else d_last[None]
        if last.shape != (rows, width) or last.dtype != self.dtype:
            raise ValueError(f"{who} should be {self.dtype} {(rows, width)}, got {last.dtype} {last.shape}")
        return last


def given_back(states: Sequence[Array], batched: bool) -> Any:
    """One [units, N, size] array for each state, without N if there was no batch: alone, or as a tuple of several."""
    shaped = [a if batched else a[:, 0] for a in states]
    return shaped[0] if len(shaped) == 1 else tuple(shaped)


def readable(array: Array) -> Array:
    """The array itself when its features lie next to each other, else a copy."""
    return array if array.strides[-1] == array.itemsize or array.shape[-1] <= 1 else np.ascontiguousarray(array)


def may_change(array: Array) -> bool:
    """Whether somebody may write to it, or to an array that it is a view of."""
    below: Any = array
    while isinstance(below, np.ndarray):
        if below.flags.writeable:
            return True
        below = below.base
    return below is not None and not memoryview(below).readonly


def share(a: Array, b: Array) -> bool:
    """Whether two arrays have a number in common; where that takes long to find out, whether they may."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=SHARING_WORK)  # type: ignore[arg-type]  # the stubs know two numbers
    except np.exceptions.TooHardError:
        return True


def neighbours(arrays: Mapping[str, Array]) -> Iterator[tuple[str, str]]:
    """The names of arrays whose bounds overlap, in pairs; quicker than looking at each pair."""
    spans = []
    for name, array in arrays.items():
        first = array.__array_interface__["data"][0]
        if array.flags.c_contiguous:
            spans.append((first, first + array.nbytes, name))
            continue
        reach = [stride * (count - 1) for stride, count in zip(array.strides, array.shape, strict=True)]
        last = first + sum(r for r in reach if r > 0) + array.itemsize
        spans.append((first + sum(r for r in reach if r < 0), last if array.size else first, name))
    open: list[tuple[int, str]] = []
    for first, last, name in sorted(spans):
        open = [(end, other) for end, other in open if end > first]
        yield from ((other, name) for _, other in open)
        open.append((last, name))


def overlaps_itself(array: Array) -> bool:
    """Whether two places of an array may have the same memory: each stride must go beyond all that shorter ones cover."""
    if array.flags.c_contiguous:
        return False
    covered = array.itemsize
    for stride, count in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
        if stride < covered:
            return True
        covered = stride * (count - 1) + covered
    return False


def strides_of_units(arrays: Sequence[Array]) -> tuple[tuple[int, int, int], ...]:
    """Of each, bytes along the first three dimensions; of packed rows from row to row, twice."""
    return tuple((a.strides[0], a.strides[1], a.strides[a.ndim - 2]) for a in arrays)


def strides(arrays: Sequence[Array]) -> tuple[tuple[int, int], ...]:
    """Of each, bytes along the first two dimensions; of packed rows from row to row, twice."""
    return tuple((a.strides[0], a.strides[a.ndim - 2]) for a in arrays)
