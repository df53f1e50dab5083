"""All parameters of a layer as one flat vector, in cuDNN's order, and first values for single gates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn.ir.graph import Parameter
from anyrnn.numpy.parameters import no_layer
from anyrnn.sequence.network import Network
from anyrnn.trace.initial import Maker

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Place:
    """Where a parameter stands in the vector."""

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        return self.start + math.prod(self.shape)


def _named(layer: Any) -> Iterator[tuple[str, Parameter, tuple[int, ...], Mapping[str, int]]]:
    """Every parameter of a layer: its name there, what it is in the cell, its shape, and the sizes of its layer."""
    network = getattr(layer, "network", None)
    if not isinstance(network, Network) or not hasattr(layer, "parameters"):
        raise no_layer(layer)
    names = getattr(layer, "_parameter_names", None)  # of torch's modules, those for single steps have no suffix
    for k, unit in enumerate(network.units):
        for j, (parameter, shape) in enumerate(network.parameters(unit[0])):
            name = names[k][j] if names else parameter.name + network.suffix(*unit)
            yield name, parameter, shape, network.layer_sizes(unit[0])


def places(layer: Any) -> list[Place]:
    """Where each parameter of a layer stands in its flat vector: of every layer and direction the matrices, then of every layer
    and direction the vectors, as cuDNN, MXNet and JAX's `experimental.rnn` have them.
    """
    parameters = [(name, shape) for name, _, shape, _ in _named(layer)]
    found, start = [], 0
    for name, shape in sorted(parameters, key=lambda named: len(named[1]) < 2):
        found.append(Place(name, shape, start))
        start = found[-1].stop
    return found


def pack(layer: Any) -> Any:
    """The parameters of a layer as one vector, see `places`: a NumPy array, or of torch's modules a tensor; a copy."""
    if hasattr(layer, "named_parameters"):
        import torch

        parameters = {name: getattr(layer, name).detach() for name, _, _, _ in _named(layer)}
        return torch.cat([parameters[place.name].reshape(-1) for place in places(layer)] or [torch.empty(0)])
    return np.concatenate([layer.parameters[place.name].reshape(-1) for place in places(layer)] or [np.empty(0, layer.dtype)])


def views(layer: Any, vector: Any) -> dict[str, Any]:
    """The parts of a flat vector by the names of a layer's parameters. They share its memory.

    Raises: ValueError for a vector of another size, or one that is none.
    """
    there = places(layer)
    size = there[-1].stop if there else 0
    if not hasattr(vector, "shape"):
        raise ValueError(f"the vector should be an array or a tensor of shape ({size},), got {type(vector).__name__}")
    if tuple(vector.shape) != (size,):
        raise ValueError(f"the vector should have shape ({size},), got {tuple(vector.shape)}")
    return {place.name: vector[place.start : place.stop].reshape(place.shape) for place in there}


def unpack(layer: Any, vector: Any) -> None:
    """Give a layer the parameters of a flat vector, see `pack`; copied. Those that torch computes by a parametrisation get it by
    its `right_inverse`.

    Raises: ValueError for a vector of another size, TypeError for parameters that hooks compute (pruning); before anything is
        changed.
    """
    _put(layer, views(layer, vector))


def _put(layer: Any, values: Mapping[str, Any]) -> None:
    """Give a layer's parameters by name these values."""
    if not hasattr(layer, "named_parameters"):
        layer.parameters.update({name: np.array(value, layer.dtype) for name, value in values.items()})
        return
    from anyrnn.torch.base import put

    put(layer, values)


def initialise(layer: Any, values: Mapping[str, float | Array | Maker], seed: int | None = None) -> None:
    """Give single gates or parameters other first values, in every layer and direction; the others stay as they are.

    Args:
        layer: of anyrnn, for NumPy or torch.
        values: by the parameter's name without `_l0`, which is for all of its gates, each by itself, or with the name of one
            behind it: `{"bias_ih f": 1.0, "weight_hh": orthogonal}`. A number, an array, or a function of a shape ((1,) of a
            scalar) and a `numpy.random.Generator`, such as `orthogonal` and `identity`.
        seed: of the generator.

    Raises: ValueError for unknown parameters or gates, or values of another shape, TypeError for values that are no numbers, and
        as `unpack` does; before anything is changed.

    Example:
        >>> import anyrnn
        >>> from anyrnn import weights
        >>> layer = anyrnn.Recurrent("lstm", 3, 5)
        >>> weights.initialise(layer, {"bias_ih f": 1.0, "weight_hh": weights.orthogonal}, seed=0)
        >>> layer.parameters["bias_ih_l0"][5:10].tolist()
        [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    random = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    used: set[str] = set()
    for name, parameter, shape, sizes in _named(layer):
        gates = [(gate, size.evaluate(sizes)) for gate, size in parameter.gates] or [("", shape[0] if shape else 1)]
        start = 0
        for gate, rows in gates:
            key = next((k for k in (f"{parameter.name} {gate}", parameter.name) if k in values), None)
            if key is not None:
                used.add(key)
                whole = found.setdefault(name, np.array(_numbers(layer, name)))
                part = (rows, *shape[1:])
                whole.reshape(-1, *shape[1:])[start : start + rows] = _made(values[key], part, random, key)
            start += rows
    unknown = [key for key in values if key not in used]
    if unknown:
        known = [f"{p.name} {gate}".strip() for _, p, _, _ in _named(layer) for gate, _ in (("", None), *p.gates)]
        raise ValueError(f"unknown: {', '.join(unknown)}; this layer has {', '.join(dict.fromkeys(known))}")
    _put(layer, found)


def _numbers(layer: Any, name: str) -> Any:
    return getattr(layer, name).detach().cpu().double().numpy() if hasattr(layer, "named_parameters") else layer.parameters[name]


def _made(value: Any, shape: tuple[int, ...], random: np.random.Generator, key: str) -> Array:
    made = np.asarray(value(shape, random) if callable(value) else value)
    if made.dtype.kind not in "biuf":
        raise TypeError(f"{key}: values should be numbers, got {made.dtype}")
    if made.shape not in ((), shape):
        raise ValueError(f"{key}: values should have shape {shape}, got {made.shape}")
    return made
