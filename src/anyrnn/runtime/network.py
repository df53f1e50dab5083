"""A trained network as it runs where no framework is: layers in order, for sequences and for streams."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from anyrnn.errors import UnsupportedError
from anyrnn.numpy.state import RecurrentState
from anyrnn.runtime.layers import Call, Layer, Recurrent, Spec
from anyrnn.runtime.recurrent import OfCells
from anyrnn.runtime.tables import with_tables
from anyrnn.sequence.network import check_size
from anyrnn.sequence.packing import check_unmasked, checked_lengths, no_array

if TYPE_CHECKING:
    from anyrnn.runtime.stream import Stream

Array = npt.NDArray[Any]
Given = Array | Mapping[str, Array]
"""The only input, or all of them by name."""


@dataclass(frozen=True)
class Input:
    """An input of a network, with steps: `size` features, or None for the number of a class.

    Raises: TypeError, ValueError for what is no size.
    """

    name: str
    size: int | None

    def __post_init__(self) -> None:
        if self.size is not None:
            check_size(f"input {self.name!r}: size", self.size)


class Network:
    """Layers around recurrent ones, for calls that do not train.

    Args:
        inputs: what a call is given; or how many features a single input `x` has, None for classes.
        layers: in an order in which each comes after those whose results it gets.
        outputs: the names of the layers whose results a call gives; by default the last one. None at all for calls that are made
            for the states alone, as of an encoder.
        batch_first: whether sequences are [N, T, features] for the caller, and not [T, N, features]. By default as the layers
            that `Recurrent.of` was given have it, or False.

    Raises: ValueError when a layer cannot have what it is to get, or the parameters are of different dtypes.

    Example:
        >>> import numpy as np, anyrnn
        >>> from anyrnn import runtime
        >>> layer = anyrnn.Recurrent("gru", 3, 5, seed=0)
        >>> gru = runtime.Recurrent("gru", ["x"], layer.network, layer.parameters)
        >>> network = runtime.Network(3, [gru, runtime.Last("last", ["gru"])])
        >>> output, state = network.run(np.zeros((7, 2, 3), np.float32))
        >>> output.shape, state["gru"].h.shape
        ((2, 5), (1, 2, 5))
    """

    def __init__(
        self,
        inputs: Sequence[Input] | int | None,
        layers: Sequence[Layer],
        outputs: Sequence[str] | str | None = None,
        *,
        batch_first: bool | None = None,
    ) -> None:
        self.inputs = tuple(inputs) if isinstance(inputs, Sequence) else (Input("x", inputs),)
        self.layers = tuple(layers)
        orders = {layer.batch_first for layer in self.layers if isinstance(layer, Recurrent) and layer.batch_first is not None}
        if batch_first is None and len(orders) > 1:
            raise ValueError("some of the layers were made with batch_first and some without; say batch_first for the network")
        self.batch_first = orders == {True} if batch_first is None else batch_first
        self.specs: dict[str, Spec] = {given.name: Spec(given.size) for given in self.inputs}
        """What every input and layer gives, by name."""
        if len(self.specs) != len(self.inputs) or not self.inputs or not self.layers:
            raise ValueError(
                f"expected inputs of different names and at least one layer, got {self.inputs} and {len(layers)} layers"
            )
        for layer in self.layers:
            if layer.name in self.specs:
                raise ValueError(f"two layers or inputs have the name {layer.name!r}")
            for name in layer.inputs:
                if name not in self.specs:
                    raise ValueError(f"{layer.name}: its input {name!r} is no input of the network and no layer before it")
            self.specs[layer.name] = layer.gives(*[self.specs[name] for name in layer.inputs])
        self.outputs = (self.layers[-1].name,) if outputs is None else (outputs,) if isinstance(outputs, str) else tuple(outputs)
        unknown = [name for name in self.outputs if name not in self.specs]
        if unknown or len(set(self.outputs)) != len(self.outputs):
            raise ValueError(f"the outputs should be names of layers, each once, got {list(self.outputs)}")
        dtypes = {array.dtype for layer in self.layers for array in layer.arrays.values()}
        self.dtype = next(iter(dtypes), np.dtype(np.float32))
        if len(dtypes) > 1 or self.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"the parameters should be float32 or float64, got {', '.join(sorted(map(str, dtypes)))}")
        self.layers = tuple(map(self._of_dtype, self.layers))

    def _of_dtype(self, layer: Layer) -> Layer:
        """The layer, or where it has no parameters one of this network's dtype: it may be in others too."""
        if not isinstance(layer, OfCells) or layer.arrays or layer.runner.dtype == self.dtype:
            return layer
        own = copy.copy(layer)
        own.runner = copy.copy(layer.runner)
        own.runner.dtype = self.dtype
        return own

    def __repr__(self) -> str:
        shown = {name: spec.shown(self.batch_first) for name, spec in self.specs.items()}
        given = ", ".join(f"{i.name} {shown[i.name]}" for i in self.inputs)
        lines = [f"  {layer.name} = {layer.as_code}({', '.join(layer.inputs)})  {shown[layer.name]}" for layer in self.layers]
        return "\n".join([f"Network: {given} -> {', '.join(self.outputs)}", *lines])

    @cached_property
    def running(self) -> list[Layer]:
        """The layers as calls run them."""
        return with_tables(self.layers, self.outputs)

    @cached_property
    def recurrent(self) -> dict[str, Recurrent]:
        """The layers that have states, by name."""
        return {layer.name: layer for layer in self.layers if isinstance(layer, Recurrent)}

    @property
    def int8(self) -> bool:
        """Whether a layer multiplies matrices as integers of eight bits."""
        return any(layer.runner.int8 for layer in self.layers if isinstance(layer, OfCells))

    @property
    def parameters(self) -> dict[str, Array]:
        """All of them: `name of the layer.name of the parameter`."""
        return {f"{layer.name}.{name}": array for layer in self.layers for name, array in layer.arrays.items()}

    def initial_state(self, batch_size: int = 1) -> dict[str, RecurrentState]:
        """The states that sequences begin with, by layer; each array is [layers * directions, N, size]."""
        return {name: layer.runner.initial_state(batch_size) for name, layer in self.recurrent.items()}

    def run(
        self, x: Given, state: Mapping[str, RecurrentState] | None = None, *, lengths: Any = None
    ) -> tuple[Any, dict[str, RecurrentState]]:
        """Run over sequences.

        Args:
            x: [T, N, features] of the network's dtype, [T, N] integers for classes; [N, T, ..] with `batch_first`. Several inputs
                by name.
            state: states by layer, as a call gives them; of layers that are not there, their first ones.
            lengths: how many steps each sample has, N integers from 0 to T. Nothing beyond is looked at; outputs there are zero.

        Returns: the output [T, N, features], or [N, features] of a layer that has one for each sample; those of several outputs
            by name; None where there are none. And the states after each sample's last step, by layer.

        Raises: ValueError for wrong shapes, unknown names and classes, TypeError for wrong dtypes.
        """
        given = {name: array.swapaxes(0, 1) if self.batch_first else array for name, array in self.named(x, 1).items()}
        values = {name: np.ascontiguousarray(array) for name, array in given.items()}  # the bits of sums depend on it
        shapes = {name: array.shape[:2] for name, array in values.items()}
        if len(set(shapes.values())) > 1:
            raise ValueError(f"the inputs should have as many steps and samples as each other, got {shapes}")
        steps, rows = next(iter(shapes.values()))
        lengths = None if lengths is None else checked_lengths(lengths, steps, rows)
        call = Call(lengths, self._states(state, rows), self._unread)
        values = {name: call.masked(array) for name, array in values.items()}
        for layer in self.running:
            values[layer.name] = layer.run(call, *[values[name] for name in layer.inputs])
        return self.given_back({name: self._laid_out(values[name], self.specs[name], call) for name in self.outputs}), call.after

    def step(self, x: Given, state: Mapping[str, RecurrentState] | None = None) -> tuple[Any, dict[str, RecurrentState]]:
        """One step: as `run`, with inputs [N, features] or [N] and outputs [N, features]. `stream` is the quicker way.

        Raises: as `run`; ValueError for networks that need whole sequences.
        """
        self.check_steps()
        given = {name: array[:, None] if self.batch_first else array[None] for name, array in self.named(x, 0).items()}
        output, after = self.run(given, state)
        found = output if isinstance(output, dict) else dict.fromkeys(self.outputs, output)
        for name in (name for name in found if self.specs[name].steps):
            found[name] = found[name][:, 0] if self.batch_first else found[name][0]
        return self.given_back(found), after

    def stream(self, batch_size: int = 1) -> Stream:
        """The network with its parameters as they are now, to be called step after step. It keeps the states between the calls.
        Each result is that of the steps so far, also of layers that give the last step alone.

        Args: batch_size: how many sequences go on side by side, N.

        Raises: ValueError for networks that need whole sequences, naming the layer.
        """
        from anyrnn.runtime.stream import Stream

        return Stream(self, batch_size)

    def in_int8(self) -> Network:
        """The network whose layers multiply matrices as integers of eight bits, see `anyrnn.Recurrent.in_int8`: those of cells
        and of products. A quarter of the memory is read for them, and `save` writes them so, each row with the scales of its
        blocks. Where a file is read that has such matrices and no kernels can run, products are those of the rounded matrices in
        float32.

        Raises: UnsupportedError, naming the layer, where no native kernels run it, and for float64.
        """
        layers = list(self.layers)
        for place, layer in enumerate(layers):
            if isinstance(layer, OfCells) and any(array.ndim == 2 for array in layer.arrays.values()):
                try:
                    layers[place] = layer.in_int8()
                except UnsupportedError as error:
                    raise UnsupportedError(f"{layer.name}: {error}") from None
        return Network(self.inputs, layers, self.outputs, batch_first=self.batch_first)

    def check_steps(self) -> None:
        """Raises ValueError, naming the layer, when the network cannot go step after step."""
        for layer in self.layers:
            if layer.why_whole:
                raise ValueError(f"{layer.name} needs whole sequences, as {layer.why_whole}: it cannot be called step after step")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a safetensors file, with what it is in the file's metadata; `anyrnn.runtime.load` reads it.

        Raises: OSError; ValueError for a path of another kind of file, more than 1000 layers, and layers that are none of
            `anyrnn.runtime`'s own.
        """
        from anyrnn.runtime import saved

        saved.save(self, path)

    # what a call is given and gives

    def named(self, x: Given, more: int) -> dict[str, Array]:
        """The inputs by name, each looked at; `more` dimensions before samples and features."""
        given = x if isinstance(x, Mapping) else {self.inputs[0].name: x}
        wanted = [i.name for i in self.inputs]
        if sorted(given) != sorted(wanted):
            raise ValueError(f"expected the inputs {', '.join(wanted)}, got {', '.join(map(str, given)) or 'none'}")
        for name, size in ((i.name, i.size) for i in self.inputs):
            array = given[name]
            integers = size is None
            fits = isinstance(array, np.ndarray) and (array.dtype.kind in "iu" if integers else array.dtype == self.dtype)
            if not fits:
                raise no_array(name, array, "integers" if integers else self.dtype)
            check_unmasked(array, name)
            if array.ndim != more + (1 if integers else 2) or (not integers and array.shape[-1] != size):
                order = ["N", "T"] if self.batch_first else ["T", "N"]
                sides = [*(order if more else ["N"]), *([] if integers else [str(size)])]
                raise ValueError(f"{name} should have shape [{', '.join(sides)}], got {array.shape}")
        if more and not min(given[name].shape[1 if self.batch_first else 0] for name in wanted):
            raise ValueError("the inputs have no steps; a sequence needs at least one")
        return {name: given[name] for name in wanted}

    def _states(self, state: Mapping[str, RecurrentState] | None, rows: int) -> Mapping[str, RecurrentState]:
        if state is not None and not isinstance(state, Mapping):
            raise self._no_states(state)
        found = dict(state or {})
        unknown = [name for name in found if name not in self.recurrent]
        if unknown:
            raise ValueError(f"state: {unknown[0]!r} is no recurrent layer; these are {', '.join(self.recurrent) or 'none'}")
        for name, of_layer in found.items():
            self.recurrent[name].check_state(of_layer, rows)
        return found

    def _no_states(self, given: object) -> TypeError:
        by_layer = ", ".join(f"{name!r}: .." for name in self.recurrent)
        return TypeError(f"state should be {{{by_layer}}}, states by layer as a call gives them, got a {type(given).__name__}")

    @staticmethod
    def given_back(outputs: dict[str, Array]) -> Any:
        """The only output, several by name, or None."""
        return outputs if len(outputs) > 1 else next(iter(outputs.values()), None)

    def _laid_out(self, array: Array, spec: Spec, call: Call) -> Array:
        if not spec.steps:
            return array
        array = call.masked(array)
        return array.swapaxes(0, 1) if self.batch_first else array

    @cached_property
    def _unread(self) -> frozenset[str]:
        """The layers whose results nobody wants."""
        return frozenset(self.specs) - set(self.outputs) - {name for layer in self.layers for name in layer.inputs}
