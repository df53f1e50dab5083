"""Inference calls like one that was made before: nothing is looked at again but what may have changed, which leaves an eighth of
what a small call costs.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from anyrnn import backends
from anyrnn._memory import addresses, empty
from anyrnn.numpy.arguments import Array, readable
from anyrnn.numpy.calls import Reserve, shape_of
from anyrnn.numpy.state import RecurrentState

if TYPE_CHECKING:
    from anyrnn.numpy.recurrent import Recurrent

MOST = 16
"""Calls that a layer remembers. Where there are more kinds of them, the oldest is forgotten."""
Key = tuple[Any, ...]
"""What a call has that others may have too: of which steps outputs are wanted, and how its arrays are laid out."""


def _settings(layer: Recurrent) -> tuple[Any, ...]:
    """What may be another in a later call."""
    return layer._dtype, layer._batch_first, layer._backend, layer._int8, layer._kept


@dataclass(frozen=True)
class Repeated:
    """A call of samples that have all steps.

    Args:
        settings: of the layer.
        pool: of the frames that run it, as long as it is known.
        parameters: the name and the shape of each, those first that steps read, which are so many `sources`.
        fixed: the addresses of what steps read, where that stays as it is.
        keep, packs: memory for packed weights, where these stay as they are, and elsewhere.
        inputs: how many of the arrays that the caller gives are inputs; the others are states.
        output, states: shapes of what he gets, or of an output that is not `wanted`.
    """

    settings: tuple[Any, ...]
    pool: weakref.ref[Any]
    parameters: tuple[tuple[str, tuple[int, ...]], ...]
    sources: int
    fixed: list[int] | None
    keep: Callable[[int], Any] | None
    packs: Any
    inputs: int
    wanted: bool
    output: tuple[int, ...]
    states: tuple[tuple[int, ...], ...]

    def __call__(self, layer: Recurrent, arrays: Sequence[Array]) -> tuple[Array | None, list[Array]] | None:
        """The output and the last states, of arrays that are laid out as they were; None where the layer is not what it was."""
        pool, settings = self.pool(), _settings(layer)
        if pool is None or not all(map(operator.is_, settings, self.settings)):
            return None
        sources = self._sources(layer)
        if sources is None:
            return None
        output, last = empty(self.output, layer._dtype), [empty(shape, layer._dtype) for shape in self.states]
        at = addresses([*arrays[: self.inputs], output, *arrays[self.inputs :], *last, *sources])
        if self.fixed is None:
            pool.call(at, packs=self.packs)
        else:
            pool.call(at + self.fixed, keep=self.keep, trusting=True)
        return output if self.wanted else None, last

    def _sources(self, layer: Recurrent) -> list[Array] | None:
        """What steps read, where that is not fixed; None if the parameters are not what they should be."""
        parameters = layer.parameters
        if self.fixed is not None:
            kept: Any = layer._kept
            return [] if not layer._int8 or kept.holds(list(parameters.values())) else None
        if len(parameters) != len(self.parameters):
            return None
        dtype, found = layer._dtype, []
        for name, shape in self.parameters:
            array: Any = parameters.get(name)
            if type(array) is not np.ndarray or array.shape != shape or array.dtype is not dtype or not array.flags.c_contiguous:
                return None
            found.append(array)
        return found[: self.sources]


class Earlier:
    """The calls that a layer remembers."""

    def __init__(self) -> None:
        self.known: dict[Key, Repeated] = {}

    def __reduce__(self) -> tuple[type[Earlier], tuple[()]]:
        """A copy remembers nothing."""
        return Earlier, ()

    def result(self, layer: Recurrent, x: Any, further: Mapping[str, Any], state: Any, outputs: str) -> tuple[Any, Any] | None:
        """The output and the last states of a call like an earlier one, as the caller gets them; None where it is like none."""
        arrays = _arrays(layer, x, further, state)
        if arrays is None:
            return None
        repeated = self.known.get(_key(arrays, outputs))
        found = None if repeated is None else repeated(layer, arrays)
        if found is None:
            return None
        output, last = found
        if type(state) is RecurrentState:
            return output, RecurrentState(state.names, tuple(last))
        return output, last[0] if len(last) == 1 else tuple(last)

    def note(
        self,
        layer: Recurrent,
        given: tuple[Any, Mapping[str, Any], Any],
        reserve: Reserve,
        run: tuple[Array, Sequence[Array]],
        shown: Array | None,
    ) -> None:
        """A call that was just made: its input, further inputs and state; the output and last states that were written; what the
        caller gets of the output.
        """
        network, kept = reserve.network, reserve.kept
        assert reserve.packs is not None
        if reserve.randomness is not None or reserve.learned or not network.is_one_call or network.merge == "separate":
            return
        arrays = _arrays(layer, *given)
        if arrays is None or layer._why_not_native() or (network.plan.phase.computed and kept is None):
            return
        if not all(array.size and readable(array) is array for array in arrays):
            return
        pool = backends.native().POOLS.get((network, shape_of(reserve, *run, keep=False)))
        if pool is None:
            return
        output, last = run
        read = [name + network.suffix(*unit) for unit in network.units for name in network.sources]
        names = [] if kept is not None else [*read, *(name for name in reserve.parameters if name not in read)]
        repeated = Repeated(
            settings=_settings(layer),
            pool=weakref.ref(pool),
            parameters=tuple((name, reserve.parameters[name].shape) for name in names),
            sources=len(read),
            fixed=None if kept is None else addresses(reserve.sources),
            keep=None if kept is None else kept.memory(network),
            packs=reserve.packs.of(network, reserve.native_dtype),
            inputs=len(reserve.inputs),
            wanted=shown is not None,
            output=output.shape if shown is None else shown.shape,
            states=tuple(array.shape if reserve.several else (array.shape[0], array.shape[2]) for array in last),
        )
        if len(self.known) >= MOST:
            self.known.pop(list(self.known)[0], None)  # noqa: RUF015 (a list is made at once; an iterator minds other threads)
        self.known[_key(arrays, reserve.outputs)] = repeated


def _arrays(layer: Recurrent, x: Any, further: Mapping[str, Any], state: Any) -> list[Array] | None:
    """The inputs and states of a call; None where they are no arrays of the layer's dtype."""
    names = layer._further
    if len(further) != len(names):
        return None
    if state is None:
        first: Sequence[Any] = ()
    elif type(state) is RecurrentState:
        if state.names != layer.network.graph.state_names:
            return None
        first = state.arrays
    else:
        first = state if isinstance(state, (tuple, list)) else (state,)
    arrays, dtype = [x, *map(further.get, names), *first], layer._dtype
    return arrays if all(type(array) is np.ndarray and array.dtype is dtype for array in arrays) else None


def _key(arrays: Sequence[Array], outputs: str) -> Key:
    return outputs, *[(array.shape, array.strides) for array in arrays]
