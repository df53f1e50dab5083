"""Step after step of sequences that go on: as they come from a microphone, a sensor, or the network itself."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from anyrnn import backends
from anyrnn._memory import addresses
from anyrnn.numpy.arguments import strides
from anyrnn.numpy.parameters import own_states
from anyrnn.sequence.network import check_size
from anyrnn.sequence.packing import check_unmasked, no_array

if TYPE_CHECKING:
    from anyrnn.numpy.recurrent import Recurrent

Array = npt.NDArray[Any]


class Uncopied:
    """What works in memory of its own, whose addresses native code knows."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a stream cannot be copied or pickled: make another one, and write the states of this one into its `states`"
        )


def interrupted() -> RuntimeError:
    """What to raise in the place of a further step."""
    return RuntimeError(
        "a call of this stream was interrupted: its states are not those of any step; reset() it, and write the states to go on "
        "with, if not the first ones, into its `states`"
    )


class Stream(Uncopied):
    """A layer with its parameters as they are now, called with one step after the other; it keeps the states between the calls.

    Made by `Recurrent.stream`. It works in memory of its own, so a call costs little more than the step itself, and its results
    have the bits of one call of the layer with the whole sequence. One thread at a time may call a stream; make one for each.

    `states` maps each state's name to its array [layers, N, H], which may be read, and written in place, between calls. After an
    interrupted call they are not those of any step, and calls raise RuntimeError until `reset`.

    Example:
        >>> import numpy as np, anyrnn
        >>> layer = anyrnn.Recurrent("gru", 3, 5, seed=0)
        >>> stream = layer.stream()
        >>> x = np.ones((7, 1, 3), np.float32)
        >>> outputs = [stream(step) for step in x]
        >>> bool((outputs == layer(x)[0]).all())
        True
    """

    def __init__(self, layer: Recurrent, batch_size: int) -> None:
        """`layer` is the stream's own from now on."""
        network = layer.network
        if network.ways != (0,):
            raise ValueError("a layer that reads backwards needs whole sequences: it cannot be called step after step")
        check_size("batch_size", batch_size)
        self._layer, self.batch_size = layer, batch_size
        sizes = [(name, shape[0].evaluate(dict(network.sizes))) for name, shape in network.graph.inputs]
        self._inputs = {name: np.zeros((batch_size, size), layer.dtype) for name, size in sizes}
        self._output = np.empty((batch_size, network.output_size), layer.dtype)
        layer.sources()  # which looks whether all parameters are there
        self._own = own_states(network, layer.parameters, layer.dtype)
        states = {s.name: np.repeat(own, batch_size, 1) for s, own in zip(network.graph.states, self._own, strict=True)}
        self.states: Mapping[str, Array] = MappingProxyType(states)  # the native code knows where these very arrays are
        native = self._layer.backend_name != "reference" and network.is_one_call
        self._native = self._make_native() if native else None
        self._interrupted = False
        self._first, *self._further = self._inputs
        self.inputs: Mapping[str, Array] = MappingProxyType(self._inputs)
        self._place = self._inputs[self._first]
        self._shape, self._dtype = self._place.shape, self._place.dtype

    def _make_native(self) -> Any:
        native, network = backends.native(), self._layer.network
        inputs, output = [x[None] for x in self._inputs.values()], self._output[None]
        states = list(self.states.values())
        self._sources = self._layer.sources()

        shape = native.CallShape(
            "inference", self._layer.native_dtype, native.Extent(1, self.batch_size), strides(inputs), strides([output])[0],
            strides(states), strides(states), packed=True,
        )  # fmt: skip
        arrays = [*inputs, output, *states, *states, *self._sources]
        return native.Repeated(network, shape, addresses(arrays))

    def __repr__(self) -> str:
        return f"Stream(batch_size={self.batch_size}) of {self._layer!r}"

    def reset(self) -> None:
        """Begin new sequences: the states get the cell's first values."""
        for array, own in zip(self.states.values(), self._own, strict=True):
            array[...] = own
        self._interrupted = False

    def __call__(self, x: Array, **steps: Array) -> Array:
        """The next step.

        Args:
            x: [N, D], of the layer's dtype.
            steps: the cell's further per-step inputs, by name, [N, size].

        Returns: the output [N, H].

        Raises: ValueError for wrong shapes, TypeError for wrong dtypes or inputs, before any work; RuntimeError after a call that
            was interrupted.
        """
        if type(x) is np.ndarray and x.dtype is self._dtype and x.shape == self._shape:
            self._place[...] = x
        else:
            self._take(self._first, x)
        if steps or self._further:
            self._take_further(steps)
        return self.next()

    step = __call__
    """As a network's stream is called."""

    def next(self) -> Array:
        """The next step, of what has been written into `inputs`, [N, size] each by name. Returns: the output [N, H]."""
        if self._interrupted:
            raise interrupted()
        try:
            if self._native is not None:
                self._native()
            else:
                self._interpret()
            return self._output.copy()
        except BaseException:
            self._interrupted = True
            raise

    def _take(self, name: str, value: Array) -> None:
        place = self._inputs[name]
        if not isinstance(value, np.ndarray) or value.dtype != place.dtype:
            raise no_array(name, value, place.dtype)
        check_unmasked(value, name)
        if value.shape != place.shape:
            hint = "; stream(batch_size=N) is of N samples" if value.shape[1:] == place.shape[1:] else ""
            raise ValueError(f"{name} should have shape {place.shape}, got {value.shape}{hint}")
        place[...] = value

    def _take_further(self, steps: Mapping[str, Array]) -> None:
        if steps.keys() != set(self._further):
            known = ", ".join(self._further) or "none"
            raise TypeError(f"the per-step inputs should be {known}, got {', '.join(steps) or 'none'}")
        for name, value in steps.items():
            self._take(name, value)

    def _interpret(self) -> None:
        further: dict[str, Any] = {name: value[None] for name, value in self._inputs.items()}
        x = further.pop(self._first)
        output, last = self._layer(x, tuple(self.states.values()), **further)
        self._output[...] = output[0]
        for array, value in zip(self.states.values(), last if isinstance(last, tuple) else (last,), strict=True):
            array[...] = value
