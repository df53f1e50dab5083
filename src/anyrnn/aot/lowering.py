"""A network's layers as the operations of one step of some samples: kernels, and some moves of numbers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import add, mul

from anyrnn import backends
from anyrnn.errors import UnsupportedError
from anyrnn.numpy.parameters import own_states, sources
from anyrnn.runtime.formulas import ELEMENTWISE, OF_ALL, normalised, pairwise
from anyrnn.runtime.layer import Array, Layer
from anyrnn.runtime.layers import (
    Activation,
    Add,
    Concatenate,
    Embedding,
    Formula,
    Last,
    LayerNorm,
    Masked,
    Multiply,
    Recurrent,
    elementwise,
)
from anyrnn.runtime.network import Network
from anyrnn.sequence.network import Network as Cells


@dataclass(frozen=True)
class Operation:
    """Makes the value `name`, of `size` features, of others."""

    name: str
    inputs: tuple[str, ...]
    size: int


@dataclass(frozen=True)
class Kernel(Operation):
    """A step of cells, which reads `sources`. Its states are those of a layer of the network, from a layer of cells on; or None,
    if each step is the first.
    """

    network: Cells
    sources: tuple[Array, ...]
    states_of: tuple[str, int] | None
    int8: bool = False
    """whether products are of int8"""


@dataclass(frozen=True)
class Gather(Operation):
    """The rows of a table [classes, size] that the integers of an input name."""

    table: Array


@dataclass(frozen=True)
class Join(Operation):
    """The features of all inputs, one behind the other."""


@dataclass(frozen=True)
class Largest(Operation):
    """The largest of an input's features."""


@dataclass
class Lowered:
    """A network's operations in the order in which they are done, and for each recurrent layer the first values of its states,
    [layers, 1, size], by name.

    Raises: ValueError for networks that need whole sequences; UnsupportedError for layers that have no kernels.
    """

    network: Network
    operations: list[Operation] = field(default_factory=list)
    states: dict[str, dict[str, Array]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.network.check_steps()
        self._names = set(self.network.specs)
        for layer in _unmasked(self.network):
            self.operations += self._of(layer)
        for kernel in (operation for operation in self.operations if isinstance(operation, Kernel)):
            if why := backends.why_not_native(kernel.network, self.network.dtype.name):
                raise UnsupportedError(f"{kernel.name}: {why}")

    def _of(self, layer: Layer) -> Iterator[Operation]:
        name, inputs, size = layer.name, layer.inputs, self.network.specs[layer.name].size or 1
        if isinstance(layer, Recurrent):
            yield from self._recurrent(layer)
        elif isinstance(layer, Formula):
            yield self._formula(layer)
        elif isinstance(layer, Embedding):
            yield Gather(name, inputs, size, layer.weight)
        elif isinstance(layer, (Concatenate, Last)) or (isinstance(layer, Masked) and self.network.specs[name].size is not None):
            yield Join(name, inputs, size)
        elif isinstance(layer, Activation) and layer.function in OF_ALL:
            largest = Largest(self._named(f"largest of {name}"), inputs, 1)
            yield largest
            yield self._formula(pairwise(name, (*inputs, largest.name), size, OF_ALL[layer.function], single=True))
        elif isinstance(layer, Activation):
            yield self._formula(elementwise(name, inputs[0], size, ELEMENTWISE[layer.function]))
        elif isinstance(layer, LayerNorm):
            yield self._formula(normalised(layer, size))
        elif isinstance(layer, (Add, Multiply)):
            yield from self._of_all(layer, size)
        else:
            raise UnsupportedError(f"{name}: a {type(layer).__name__} is no layer that object files hold")

    def _named(self, wanted: str) -> str:
        """A name that no other value has."""
        while wanted in self._names:
            wanted += "'"
        self._names.add(wanted)
        return wanted

    def _recurrent(self, layer: Recurrent) -> Iterator[Operation]:
        """A kernel; or with residual layers one for each layer of cells, and the sums of what they get and give."""
        network, dtype, x = layer.network, self.network.dtype, layer.inputs[0]
        first = own_states(network, layer.arrays, dtype)
        self.states[layer.name] = {state.name: own for state, own in zip(network.graph.states, first, strict=True)}
        arrays, parts = sources(network, layer.arrays, dtype), network.parts
        each = len(arrays) // len(parts)
        for k, part in enumerate(parts):
            adds, is_last = network.residual and k > 0, k == len(parts) - 1
            result = layer.name if is_last else self._named(f"{layer.name}.{k}")
            made = self._named(f"{result} before it is added") if adds else result
            own = tuple(arrays[k * each : (k + 1) * each])
            yield Kernel(made, (x, *layer.inputs[1:]), part.width, part, own, (layer.name, k), layer.runner.int8)
            if adds:
                yield self._formula(pairwise(result, (x, made), part.width, add))
            x = result

    def _of_all(self, layer: Add | Multiply, size: int) -> Iterator[Operation]:
        """A sum or product of all inputs, from the first to the last."""
        so_far, *others = layer.inputs
        if not others:
            yield Join(layer.name, layer.inputs, size)
        for k, other in enumerate(others):
            made = layer.name if k == len(others) - 1 else self._named(f"{layer.name}.{k}")
            yield self._formula(pairwise(made, (so_far, other), size, add if isinstance(layer, Add) else mul))
            so_far = made

    def _formula(self, layer: Formula) -> Kernel:
        arrays = sources(layer.network, layer.runner.parameters, self.network.dtype)
        return Kernel(layer.name, layer.inputs, layer.network.width, layer.network, tuple(arrays), None, layer.runner.int8)


def _unmasked(network: Network) -> Iterator[Layer]:
    """The layers, without those that leave each step as it is, unless they are outputs."""
    same: dict[str, str] = {}
    for layer in network.layers:
        inputs = tuple(same.get(name, name) for name in layer.inputs)
        if isinstance(layer, Masked) and layer.name not in network.outputs:
            same[layer.name] = inputs[0]
        elif inputs == layer.inputs:
            yield layer
        else:
            own = copy.copy(layer)
            own.inputs = inputs
            yield own
