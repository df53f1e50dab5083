"""Layers that run as cells do: recurrent ones, and equations of one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from anyrnn.ir.graph import Graph
from anyrnn.ir.symbol import Symbol
from anyrnn.numpy.arguments import Arguments
from anyrnn.numpy.parameters import taken
from anyrnn.numpy.recurrent import Recurrent as Runner
from anyrnn.numpy.state import RecurrentState
from anyrnn.numpy.stream import Stream
from anyrnn.runtime.layer import Array, Call, Layer, Spec, kept
from anyrnn.sequence.network import Network, check_wanted
from anyrnn.trace import Scalar, State, cell
from anyrnn.trace.language import affine, vector

if TYPE_CHECKING:
    from typing_extensions import Self


class OfCells(Layer):
    """What runs as cells do: by its `runner`."""

    runner: Runner

    @property
    def arrays(self) -> Mapping[str, Array]:
        return self.runner.parameters

    @property
    def does(self) -> str:
        return self.kind + " in int8" * self.runner.int8

    def streamed(self, batch_size: int) -> Callable[..., Array]:
        return _streamed(self.runner, batch_size)

    def in_int8(self) -> Self:
        """The same with products of int8, see `anyrnn.Recurrent.in_int8`."""
        found = copy(self)
        found.runner = self.runner.in_int8()
        return found


class Recurrent(OfCells):
    """Layers and directions of a cell.

    Args:
        network: what runs, see `anyrnn.sequence.network`; that of a layer is its `network`.
        parameters: by the names that the layer has, `weight_ih_l0` and so on.
        last: give the output of the last step that each direction takes of a sample, [N, features], and not all. Called step
            after step it is the last so far, each.
        backend: as of `anyrnn.Recurrent`.
    """

    kind = "recurrent"

    def __init__(
        self,
        name: str,
        inputs: Sequence[str] | str,
        network: Network,
        parameters: Mapping[str, Array],
        *,
        last: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__(name, inputs)
        if network.merge == "separate":
            raise ValueError(f"{name}: merge='separate' gives a pair; two layers give two results")
        if last:
            check_wanted(network, f"{name}: ", "last", "last")
        self.network, self.last = network, last
        self.batch_first: bool | None = None
        """Of the layer that it was made of."""
        own = {name: kept(array) for name, array in parameters.items()}
        self.runner = Runner.of_network(network, own, backend=backend, constant=True)

    @classmethod
    def of(cls, name: str, inputs: Sequence[str] | str, layer: Any, **options: Any) -> Recurrent:
        """A layer that has been made or trained: `anyrnn.Recurrent`, or a module of `anyrnn.torch`; with its parameters as they
        are now. A network takes on whether the batch comes first in it.

        Args: options: `last`, `backend`.

        Raises: TypeError for what is no such layer, and for dtypes other than float32 and float64.
        """
        found = cls(name, inputs, *taken(layer), **options)
        found = found.in_int8() if layer.int8 else found
        found.batch_first = bool(layer.batch_first)
        return found

    def gives(self, *given: Spec) -> Spec:
        wanted = [self.network.input_size, *(size for _, size in self.network.further_inputs)]
        found = [self._sequence((spec,)) for spec in given]
        if found != wanted:
            raise ValueError(f"{self.name}: expected inputs of {wanted} features, got {found}")
        return Spec(self.network.width, not self.last)

    def run(self, call: Call, *given: Array) -> Array:
        result: Array = self._called(call, given, lengths=call.lengths)
        return result

    def _called(self, call: Call, given: Sequence[Array], **which: Any) -> Any:
        outputs: Any = "none" if self.name in call.unread else "last" if self.last else "all"
        further, state = _further(self.network, given), call.before.get(self.name)
        output, after = self.runner(given[0], state, return_outputs=outputs, **which, **further)
        if state is None:
            after = RecurrentState(self.network.graph.state_names, after if isinstance(after, tuple) else (after,))
        call.after[self.name] = after
        return output

    @property
    def why_whole(self) -> str:
        return "" if self.network.ways == (0,) else "it reads backwards"

    def check_state(self, state: Any, batch_size: int) -> None:
        """Raises: TypeError, ValueError for states that are not those of so many samples."""
        if not isinstance(state, RecurrentState):
            wanted = "its state should be a RecurrentState, as `initial_state` gives"
            raise TypeError(f"{self.name}: {wanted}, got a {type(state).__name__}")
        Arguments(self.network, self.runner.dtype, False).states(state, batch_size, True, f"{self.name}: its state")


class Formula(OfCells):
    """Equations of the features of one step, as those of a cell that remembers nothing; they run as cells do.

    Args:
        network: of such a cell, whose inputs are those of the layer in order. `elementwise` makes one of a function.
        parameters: by the names that they have in a layer, `.._l0`.
        backend: as of `anyrnn.Recurrent`.
    """

    kind = "formula"

    def __init__(
        self, name: str, inputs: Sequence[str] | str, network: Network, parameters: Mapping[str, Array], *, backend: str = "auto"
    ) -> None:
        super().__init__(name, inputs)
        if network.layers > 1 or network.ways != (0,) or any(state.shape for state in network.graph.states):
            raise ValueError(f"{name}: a formula is of one layer that goes forwards and has no states that are vectors")
        self.network = network
        own = {name: kept(array) for name, array in parameters.items()}
        self.runner = Runner.of_network(network, own, backend=backend, constant=True)

    def gives(self, *given: Spec) -> Spec:
        wanted = [self.network.input_size, *(size for _, size in self.network.further_inputs)]
        found = [self._one((spec,)) for spec in given]
        if [size for size, _ in found] != wanted or len({steps for _, steps in found}) > 1:
            raise ValueError(f"{self.name}: expected inputs of {wanted} features, got {', '.join(map(str, given))}")
        return Spec(self.network.width, given[0].steps)

    def run(self, call: Call, *given: Array) -> Array:
        if given[0].ndim == 3:
            return np.asarray(self.runner(given[0], lengths=call.lengths, **_further(self.network, given))[0])
        steps = [x[None] for x in given]
        return np.asarray(self.runner(steps[0], **_further(self.network, steps))[0][0])


def elementwise(
    name: str, given: str, size: int, function: Callable[..., Symbol], *, backend: str = "auto", **parameters: Array
) -> Formula:
    """A function of each feature of a layer, in the language of cells.

    Args:
        given: the layer's name.
        size: its features.
        function: of a vector, and of the parameters in order.
        parameters: arrays [features].
    """

    @cell
    def formula(x, unused: Scalar()):  # type: ignore[no-untyped-def,valid-type]
        return function(x, *[vector(name, "input") for name in parameters]), State(unused=unused)

    arrays = {f"{name}_l0": array for name, array in parameters.items()}
    sizes = (("hidden", size), ("input", size))
    return Formula(name, [given], Network(formula.trace(), sizes), arrays, backend=backend)


@lru_cache(maxsize=2)
def _dense(bias: bool) -> Graph:
    """A product is a cell that remembers nothing, so that it has the kernels of cells, and their bits: the same for a step by
    itself as for a step of a sequence.
    """

    @cell
    def dense(x, unused: Scalar()):  # type: ignore[no-untyped-def,valid-type]
        return affine("y", x), State(unused=unused)

    graph: Graph = dense.trace(bias)
    return graph


class Dense(Formula):
    """A product: weight @ x + bias.

    Args:
        weight: [features out, features in].
        bias: [features out], or None.
        backend: as of `anyrnn.Recurrent`.
    """

    kind = "dense"

    def __init__(
        self, name: str, inputs: Sequence[str] | str, weight: Array, bias: Array | None = None, *, backend: str = "auto"
    ) -> None:
        weight, bias = kept(weight), None if bias is None else kept(bias)
        if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
            sides = f"weight {weight.shape}" + ("" if bias is None else f" and bias {bias.shape}")
            raise ValueError(f"{name}: expected a weight [out, in] and a bias [out], got {sides}")
        network = Network(_dense(bias is not None), (("hidden", weight.shape[0]), ("input", weight.shape[1])))
        parameters = {"weight_ih_l0": weight} if bias is None else {"weight_ih_l0": weight, "bias_ih_l0": bias}
        super().__init__(name, inputs, network, parameters, backend=backend)
        self.weight, self.bias = weight, bias

    @property
    def arrays(self) -> Mapping[str, Array]:
        return {"weight": self.weight} if self.bias is None else {"weight": self.weight, "bias": self.bias}


def _further(network: Network, given: Sequence[Array]) -> dict[str, Any]:
    """The further inputs of a cell by name."""
    return dict(zip(network.further_names, given[1:], strict=True))


def _streamed(runner: Runner, batch_size: int) -> Callable[..., Array]:
    further = runner.network.further_names
    stream = runner.stream(batch_size)
    return _Steps(stream, further) if further else stream


class _Steps:
    """A stream that is given its further inputs one after the other."""

    def __init__(self, stream: Stream, further: Sequence[str]) -> None:
        self.stream, self.further = stream, further

    def __call__(self, x: Array, *further: Array) -> Array:
        return self.stream(x, **dict(zip(self.further, further, strict=True)))
