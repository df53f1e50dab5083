"""A network called step after step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn.numpy.stream import Stream as CellStream
from anyrnn.numpy.stream import Uncopied, interrupted
from anyrnn.runtime.network import Given, Network

Array = npt.NDArray[Any]


class Stream(Uncopied):
    """A network with its parameters as they are now, which keeps the states between the calls; made by `Network.stream`.

    Its results have the bits of one call of the network with the whole sequences. One thread at a time may call a stream.

    `states` maps the names of recurrent layers to their states' arrays [layers, N, size] by name, which may be read, and written
    in place, between calls: `stream.states["rnn"]["h"][...] = state["rnn"].h` goes on where a call of the network ended. After
    an interrupted call they are not those of any step, and calls raise RuntimeError until `reset`.
    """

    def __init__(self, network: Network, batch_size: int) -> None:
        network.check_steps()
        self._network, self.batch_size = network, batch_size
        layers: dict[str, Any] = {layer.name: layer.streamed(batch_size) for layer in network.running}
        streams = {name: getattr(layer, "stream", layer) for name, layer in layers.items()}
        self._streams = [stream for stream in streams.values() if isinstance(stream, CellStream)]
        """Of recurrent layers, and of formulas, which have no states but may be interrupted too."""
        self.states: Mapping[str, Mapping[str, Array]] = MappingProxyType({n: streams[n].states for n in network.recurrent})
        names = [*(given.name for given in network.inputs), *layers]
        places = {name: i for i, name in enumerate(names)}
        """Of results in the list that a step makes: the inputs, then each layer's."""
        self._layers: list[tuple[Callable[..., Array], tuple[int, ...]]]
        self._layers = [(layers[layer.name], tuple(places[name] for name in layer.inputs)) for layer in network.running]
        self._outputs = [places[name] for name in network.outputs]
        self._changed = min([places[name] for name in network.recurrent], default=len(names))
        """The place of the first result of a layer that has states."""
        self._interrupted = False
        only, alone = self._layers[0][0], len(self._layers) == len(self._outputs) == len(network.inputs) == 1
        self._only = only.__call__ if alone and isinstance(only, CellStream) and network.outputs[0] in layers else None
        """The only layer, which looks at its input itself."""
        (first, *more) = network.inputs
        self._shape = None if more else (batch_size,) if first.size is None else (batch_size, first.size)
        self._dtypes = [np.dtype(code) for code in "bBhHiIlLqQ"] if first.size is None else [network.dtype]

    def __repr__(self) -> str:
        return f"Stream(batch_size={self.batch_size}) of {self._network!r}"

    def step(self, x: Given) -> Any:
        """The next step.

        Args: x: [N, features] of the network's dtype, or N integers for classes; several inputs by name.

        Returns: the output [N, features]; those of several outputs by name.

        Raises: ValueError for wrong shapes and classes, TypeError for wrong dtypes; RuntimeError after a call that was
            interrupted.
        """
        if self._only is not None and type(x) is np.ndarray:
            return self._only(x)
        network = self._network
        if type(x) is np.ndarray and x.shape == self._shape and x.dtype in self._dtypes:
            values = [np.ascontiguousarray(x)]  # as in `Network.run`
        else:
            values = [np.ascontiguousarray(array) for array in network.named(x, 0).values()]
            if any(len(array) != self.batch_size for array in values):
                found = [len(array) for array in values]
                raise ValueError(
                    f"the inputs should have {self.batch_size} samples, got {found}: stream(batch_size=N) says how many"
                )
        if self._interrupted:
            raise interrupted()
        try:
            for layer, inputs in self._layers:
                values.append(layer(*[values[i] for i in inputs]))
        except BaseException as error:
            refused = isinstance(error, (TypeError, ValueError)) and len(values) == self._changed  # before it did anything
            self._interrupted = len(values) >= self._changed and not refused
            raise
        if len(self._outputs) == 1:
            return values[self._outputs[0]]
        return network.given_back({name: values[place] for name, place in zip(network.outputs, self._outputs, strict=True)})

    __call__ = step

    def reset(self) -> None:
        """Begin new sequences: the states get the cells' first values."""
        for stream in self._streams:
            stream.reset()
        self._interrupted = False
