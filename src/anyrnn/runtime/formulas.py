"""Functions of layers of a network in the language of cells: for those who need equations, and not NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anyrnn.ir.symbol import Symbol
from anyrnn.runtime.layer import Array
from anyrnn.runtime.recurrent import Formula, elementwise
from anyrnn.runtime.steps import LayerNorm
from anyrnn.sequence.network import Network
from anyrnn.trace import Scalar, State, Step, cell
from anyrnn.trace.functions import bounded, elu
from anyrnn.trace.language import apply, exp, log, mean, relu, sigmoid, softplus, sqrt, tanh, total

Binary = Callable[[Symbol, Symbol], Symbol]


ELEMENTWISE: Mapping[str, Callable[[Symbol], Symbol]] = {
    "elu": elu,
    "exp": exp,
    "gelu_tanh": lambda v: v * sigmoid(1.5957691216057308 * (v + 0.044715 * v * v * v)),
    "hard_sigmoid": lambda v: bounded(v / 6 + 0.5, 0, 1),
    "relu": relu,
    "sigmoid": sigmoid,
    "silu": lambda v: v * sigmoid(v),
    "softplus": softplus,
    "softsign": lambda v: v / (1 + apply("abs", v)),
    "tanh": tanh,
}
"""The functions of activation layers that look at each feature by itself."""


def _softmax(v: Symbol, largest: Symbol) -> Symbol:
    e = exp(v - largest)
    return e / total(e)


def _log_softmax(v: Symbol, largest: Symbol) -> Symbol:
    shifted = v - largest
    return shifted - log(total(exp(shifted)))


OF_ALL: Mapping[str, Binary] = {"log_softmax": _log_softmax, "softmax": _softmax}
"""Those of all features, and of the largest of them."""


def pairwise(name: str, inputs: tuple[str, ...], size: int, function: Binary, single: bool = False) -> Formula:
    """A function of the features of two layers, of which the second has as many as the first, or a single one."""

    @cell
    def formula(x, unused: Scalar(), other: Step("input")):  # type: ignore[no-untyped-def,valid-type]
        return function(x, other), State(unused=unused)

    @cell
    def with_single(x, unused: Scalar(), other: Step(1)):  # type: ignore[no-untyped-def,valid-type]
        return function(x, other), State(unused=unused)

    graph = (with_single if single else formula).trace()
    return Formula(name, inputs, Network(graph, (("hidden", size), ("input", size))), {})


def normalised(layer: LayerNorm, size: int) -> Formula:
    """A norm of so many features as equations."""

    def function(v: Symbol, *parameters: Symbol) -> Symbol:
        given = dict(zip(arrays, parameters, strict=True))
        centred = v - mean(v)
        scaled = centred / sqrt(mean(centred * centred) + layer.epsilon)
        scaled = scaled * given["weight"] if "weight" in given else scaled
        return scaled + given["bias"] if "bias" in given else scaled

    arrays: Mapping[str, Array] = layer.arrays
    return elementwise(layer.name, layer.inputs[0], size, function, backend="auto", **arrays)
