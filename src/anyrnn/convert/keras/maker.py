"""The runtime's layers as they are made of Keras's, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn.convert.keras.functions import LINEAR, Function
from anyrnn.convert.keras.graph import Described, Tensor
from anyrnn.runtime.layers import Activation, Layer, Spec, elementwise
from anyrnn.runtime.network import Input

Array = npt.NDArray[Any]
Weights = Mapping[str, Sequence[tuple[str, Array]]]
"""The arrays of layers by their names, as `anyrnn.files.keras` reads them: each with its own name, in Keras's order, or with its
place in the layer.
"""


class Maker:
    """What is made so far.

    Args:
        of_layers: the arrays of the model. Integers among them, the states of random generators, are left out.
        keras2: whether the model is one of Keras 2.
        backend: as of `anyrnn.Recurrent`.
    """

    def __init__(self, of_layers: Weights, keras2: bool, backend: str) -> None:
        self.keras2, self.backend = keras2, backend
        self.inputs: list[Input] = []
        self.layers: list[Layer] = []
        self.specs: dict[str, Spec] = {}
        self.results: dict[Tensor, str] = {}
        """The names that Keras's tensors have here."""
        self._arrays: dict[str, list[tuple[str, Array]]] = {}
        for layer, arrays in of_layers.items():
            self._arrays[layer] = [(name, array) for name, array in arrays if np.issubdtype(array.dtype, np.floating)]
        dtypes = {array.dtype for arrays in self._arrays.values() for _, array in arrays}
        self._dtype = np.float64 if dtypes == {np.dtype(np.float64)} else np.float32

    def arrays(self, layer: Described, *names: str, places: Sequence[str] = ()) -> list[Array]:
        """A layer's arrays, as many as there are names.

        Args: places: where files that sort arrays by their places have them, in the order of the names.
        """

        def rank(pair: tuple[str, Array]) -> int:
            return next((k for k, place in enumerate(places) if pair[0].startswith(place)), len(places))

        found = sorted(self._arrays.get(layer.name, []), key=rank)
        if len(found) != len(names):
            told = ", ".join(f"{name} {array.shape}" for name, array in found) or "none"
            raise ValueError(f"{layer}: expected the arrays {', '.join(names) or 'none'}, got {told}")
        return [array.astype(self._dtype) for _, array in found]

    def result(self, who: str, tensor: Tensor) -> str:
        """The name of what a layer, or the caller, gets."""
        if tensor not in self.results:
            told = f"result {tensor.number} of {tensor.layer!r}, which is a state or not there"
            raise ValueError(f"{who}: it gets {told}; outputs alone can be given on")
        return self.results[tensor]

    def size(self, name: str) -> int:
        """The features that a layer gives."""
        return self.specs[name].size or 0

    def put(self, layer: Layer) -> str:
        self.specs[layer.name] = layer.gives(*[self.specs[name] for name in layer.inputs])
        self.layers.append(layer)
        return layer.name

    def activation(self, name: str, given: str, made: Function) -> str:
        """A function of what a layer gives."""
        if made is LINEAR:
            return given
        if made.name:
            return self.put(Activation(name, [given], made.name))
        assert made.formula is not None
        return self.put(elementwise(name, given, self.size(given), made.formula, backend=self.backend))


Handler = Callable[[Maker, Described, str, list[str]], list[str]]
"""Makes what stands for a layer, under a name, of the results that it is given; gives the names of its own results."""


def only(layer: Described, given: list[str]) -> str:
    """Of a single input."""
    if len(given) != 1:
        raise ValueError(f"{layer}: expected one input, got {len(given)}; states from another layer cannot be converted")
    return given[0]


def refuse(layer: Described, *names: str) -> None:
    """Settings that nothing in the runtime is like."""
    for name in names:
        if layer.config.data.get(name):
            raise ValueError(f"{layer}: {name}={layer.config.data[name]!r} cannot be converted")
