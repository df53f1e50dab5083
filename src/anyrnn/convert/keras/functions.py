"""Keras's activation functions: in the language of cells, and by the names that they have in the runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anyrnn.ir.serial import Record
from anyrnn.ir.symbol import Symbol
from anyrnn.runtime.formulas import ELEMENTWISE
from anyrnn.trace.functions import bounded, elu
from anyrnn.trace.language import exp, minimum, relu, sigmoid, softplus, tanh, where


@dataclass(frozen=True)
class Function:
    """
    Args:
        formula: of each feature by itself; None for a function of all features of a step.
        name: among those of `anyrnn.runtime.Activation`; empty if it has none there.
    """

    formula: Callable[[Symbol], Symbol] | None
    name: str = ""


def _leaky(slope: float) -> Function:
    return Function(lambda v: where(v < 0, slope * v, v))


def _elu(alpha: float, scale: float = 1.0) -> Function:
    return Function(lambda v: scale * elu(v, alpha), "elu" if alpha == scale == 1 else "")


def _relu(most: float | None, slope: float, threshold: float) -> Function:
    if (most, slope, threshold) == (None, 0, 0):
        return Function(relu, "relu")

    def formula(v: Symbol) -> Symbol:
        above = v if most is None else minimum(v, most)
        return where(v < threshold, slope * (v - threshold), above)

    return Function(formula)


LINEAR = Function(lambda v: v)
_HARD_SIGMOID = Function(ELEMENTWISE["hard_sigmoid"], "hard_sigmoid")
_KERAS2_HARD_SIGMOID = Function(lambda v: bounded(0.2 * v + 0.5, 0, 1))
_SILU = Function(ELEMENTWISE["silu"], "silu")
_HARD_SILU = Function(lambda v: v * bounded(v / 6 + 0.5, 0, 1))
_SELU = (1.6732632423543772, 1.0507009873554805)
"""alpha and scale, Klambauer et al. 2017, Self-Normalizing Neural Networks."""

FUNCTIONS = {
    "elu": _elu(1.0),
    "exponential": Function(exp, "exp"),
    "hard_sigmoid": _HARD_SIGMOID,
    "hard_silu": _HARD_SILU,
    "hard_swish": _HARD_SILU,
    "hard_tanh": Function(lambda v: bounded(v, -1, 1)),
    "leaky_relu": _leaky(0.2),
    "linear": LINEAR,
    "log_softmax": Function(None, "log_softmax"),
    "mish": Function(lambda v: v * tanh(softplus(v))),
    "relu": Function(relu, "relu"),
    "relu6": _relu(6.0, 0.0, 0.0),
    "selu": _elu(*_SELU),
    "sigmoid": Function(sigmoid, "sigmoid"),
    "silu": _SILU,
    "softmax": Function(None, "softmax"),
    "softplus": Function(softplus, "softplus"),
    "softsign": Function(ELEMENTWISE["softsign"], "softsign"),
    "swish": _SILU,
    "tanh": Function(tanh, "tanh"),
}
"""By Keras's names. Those of functions that have settings are here with their defaults."""

LAYERS = ("ELU", "LeakyReLU", "ReLU", "ThresholdedReLU")
"""Layers that are such functions with settings."""


def function(value: Any, keras2: bool, who: str) -> Function:
    """Of an activation in a config: a name, nothing, or a description.

    Raises: ValueError for functions that are not here, and the user's own.
    """
    if isinstance(value, dict) and value.get("class_name") in LAYERS:
        return of_layer(value["class_name"], Record(value.get("config"), who))
    if isinstance(value, dict):  # {"class_name": "function", "config": "relu", ..}
        value = value.get("config")
    if value is None:
        return LINEAR
    if not isinstance(value, str) or value not in FUNCTIONS:
        shown = repr(value)[:80]
        raise ValueError(f"{who}: the activation {shown} is none that can be converted; these are {', '.join(FUNCTIONS)}")
    return _KERAS2_HARD_SIGMOID if keras2 and value == "hard_sigmoid" else FUNCTIONS[value]


def of_layer(kind: str, config: Record) -> Function:
    """Of one of `LAYERS`. Keras 2 has other names for settings than Keras 3, and a ThresholdedReLU."""
    if kind == "LeakyReLU":
        return _leaky(config.of("alpha" if "alpha" in config.data else "negative_slope", float, 0.3))
    if kind == "ELU":
        return _elu(config.of("alpha", float, 1.0))
    if kind == "ThresholdedReLU":
        theta = config.of("theta", float, 1.0)
        return Function(lambda v: where(v > theta, v, 0.0))
    most = config.of("max_value", (float, type(None)))
    return _relu(most, config.of("negative_slope", float, 0.0), config.of("threshold", float, 0.0))
