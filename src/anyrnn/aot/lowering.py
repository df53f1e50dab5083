"""A network's layers as the operations of one step of some samples: kernels, and some moves of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from anyrnn import backends
from anyrnn.errors import UnsupportedError
from anyrnn.ir.symbol import Symbol
from anyrnn.numpy.parameters import own_states, sources
from anyrnn.runtime.layer import Array, Layer
from anyrnn.runtime.layers import Activation, Add, Concatenate, Embedding, Formula, LayerNorm, Multiply, Recurrent, elementwise
from anyrnn.runtime.network import Network
from anyrnn.sequence.network import Network as Cells
from anyrnn.trace import Cell, Scalar, State, Step, cell
from anyrnn.trace.language import apply, exp, log, maximum, mean, minimum, relu, sigmoid, softplus, sqrt, tanh, total, where


@dataclass(frozen=True)
class Operation:
    """Makes the value `name`, of `size` features, of others."""

    name: str
    inputs: tuple[str, ...]
    size: int


@dataclass(frozen=True)
class Kernel(Operation):
    """A step of cells. `sources` are the arrays that it reads, `first` the first values of its states [layers, 1, size], which
    are kept from step to step; None for formulas, where each step is the first.
    """

    network: Cells
    sources: tuple[Array, ...]
    first: tuple[Array, ...] | None


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


def lowered(network: Network) -> list[Operation]:
    """In the order in which they are done.

    Raises: ValueError for networks that need whole sequences; UnsupportedError for layers that have no kernels.
    """
    network.check_steps()
    made = [operation for layer in network.layers for operation in _Lowering(network).of(layer)]
    for kernel in (operation for operation in made if isinstance(operation, Kernel)):
        if why := backends.why_not_native(kernel.network, network.dtype.name):
            raise UnsupportedError(f"{kernel.name}: {why}")
    return made


@dataclass(frozen=True)
class _Lowering:
    """Of the layers of a network."""

    whole: Network

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return self.whole.dtype

    def of(self, layer: Layer) -> Iterator[Operation]:
        name, inputs, size = layer.name, layer.inputs, self.whole.specs[layer.name].size or 1
        if isinstance(layer, Recurrent):
            yield from self._recurrent(layer)
        elif isinstance(layer, Formula):
            yield self._formula(layer)
        elif isinstance(layer, Embedding):
            yield Gather(name, inputs, size, layer.weight)
        elif isinstance(layer, Concatenate):
            yield Join(name, inputs, size)
        elif isinstance(layer, Activation) and layer.function in OF_ALL:
            largest = f"largest of {name}"
            yield Largest(largest, inputs, 1)
            yield self._of_two(name, (*inputs, largest), size, OF_ALL[layer.function])
        elif isinstance(layer, Activation):
            yield self._formula(elementwise(name, inputs[0], size, ELEMENTWISE[layer.function]))
        elif isinstance(layer, LayerNorm):
            yield self._formula(elementwise(name, inputs[0], size, _normalised(layer), backend="auto", **layer.arrays))
        elif isinstance(layer, (Add, Multiply)):
            yield from self._pairwise(layer, size)
        else:
            raise UnsupportedError(f"{name}: a {type(layer).__name__} is no layer that object files hold")

    def _recurrent(self, layer: Recurrent) -> Iterator[Operation]:
        """A kernel, or with residual layers one for each layer of cells, and the sums of what they get and give."""
        network, x = layer.network, layer.inputs[0]
        arrays = sources(network, layer.arrays, self.dtype)
        first = own_states(network, layer.arrays, self.dtype)
        each = len(network.sources) * network.directions
        for k, part in enumerate(network.parts):
            is_last, of_sources, of_units = k == len(network.parts) - 1, arrays, first
            if not network.is_one_call:
                of_sources = arrays[k * each : (k + 1) * each]
                of_units = [states[k * network.directions : (k + 1) * network.directions] for states in first]
            adds = network.residual and k > 0
            made = layer.name if is_last and not adds else f"{layer.name}.{k}"
            yield Kernel(made, (x, *layer.inputs[1:]), part.width, part, tuple(of_sources), tuple(of_units))
            if adds:
                below, x = x, layer.name if is_last else f"{layer.name}.{k}.added"
                yield self._of_two(x, (below, made), part.width, _sum)
            else:
                x = made

    def _pairwise(self, layer: Add | Multiply, size: int) -> Iterator[Operation]:
        """A sum or product of all inputs, from the first to the last."""
        first, *others = layer.inputs
        if not others:
            yield Join(layer.name, layer.inputs, size)
        for k, other in enumerate(others, 1):
            made = layer.name if k == len(others) else f"{layer.name}.{k}"
            yield self._of_two(made, (first, other), size, _sum if isinstance(layer, Add) else _product)
            first = made

    def _of_two(self, name: str, inputs: tuple[str, ...], size: int, formula: Cell) -> Kernel:
        network = Cells(formula.trace(), (("hidden", size), ("input", size)))
        return self._formula(Formula(name, inputs, network, {}))

    def _formula(self, layer: Formula) -> Kernel:
        parameters = layer.runner.parameters
        return Kernel(
            layer.name,
            layer.inputs,
            layer.network.width,
            layer.network,
            tuple(sources(layer.network, parameters, self.dtype)),
            None,
        )


def _normalised(layer: LayerNorm) -> Callable[..., Symbol]:
    def function(v: Symbol, *parameters: Symbol) -> Symbol:
        given = dict(zip(layer.arrays, parameters, strict=True))
        centred = v - mean(v)
        scaled = centred / sqrt(mean(centred * centred) + layer.epsilon)
        scaled = scaled * given["weight"] if "weight" in given else scaled
        return scaled + given["bias"] if "bias" in given else scaled

    return function


ELEMENTWISE: Mapping[str, Callable[[Symbol], Symbol]] = {
    "elu": lambda v: where(v > 0, v, exp(minimum(v, 0)) - 1),
    "exp": exp,
    "gelu_tanh": lambda v: v * sigmoid(1.5957691216057308 * (v + 0.044715 * v * v * v)),
    "hard_sigmoid": lambda v: minimum(maximum(v / 6 + 0.5, 0), 1),
    "relu": relu,
    "sigmoid": sigmoid,
    "silu": lambda v: v * sigmoid(v),
    "softplus": softplus,
    "softsign": lambda v: v / (1 + apply("abs", v)),
    "tanh": tanh,
}
"""Activation layers' functions of each feature by itself, in the language of cells."""


@cell
def _softmax(x, largest: Step(1), unused: Scalar()):  # type: ignore[no-untyped-def,valid-type]
    e = exp(x - largest)
    return e / total(e), State(unused=unused)


@cell
def _log_softmax(x, largest: Step(1), unused: Scalar()):  # type: ignore[no-untyped-def,valid-type]
    shifted = x - largest
    return shifted - log(total(exp(shifted))), State(unused=unused)


OF_ALL = {"softmax": _softmax, "log_softmax": _log_softmax}
"""Those of all features, and of the largest of them."""


@cell
def _sum(x, other: Step("input"), unused: Scalar()):  # type: ignore[no-untyped-def,valid-type]
    return x + other, State(unused=unused)


@cell
def _product(x, other: Step("input"), unused: Scalar()):  # type: ignore[no-untyped-def,valid-type]
    return x * other, State(unused=unused)
