"""Functions of activation layers, on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn.ir.ops import TABLE

Array = npt.NDArray[Any]


def _op(name: str) -> Callable[[Array], Array]:
    """A function of cells."""
    meaning = TABLE[name].meaning
    assert meaning is not None

    def function(x: Array) -> Array:
        result: Array = meaning(np, x)
        return result

    return function


_sigmoid = _op("sigmoid")


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def _log_softmax(x: Array) -> Array:
    shifted = x - x.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "exp": _op("exp"),
    "gelu_tanh": lambda x: x * _sigmoid(x.dtype.type(1.5957691216057308) * (x + x.dtype.type(0.044715) * x * x * x)),
    "hard_sigmoid": lambda x: np.clip(x / 6 + x.dtype.type(0.5), 0, 1),
    "log_softmax": _log_softmax,
    "relu": _op("relu"),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "softmax": _softmax,
    "softplus": _op("softplus"),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "tanh": _op("tanh"),
}
"""By name. `hard_sigmoid` is max(0, min(1, x / 6 + 1/2)), as torch, Keras 3 and ONNX's HardSwish have it; `gelu_tanh` the
approximation of GELU by a hyperbolic tangent, Hendrycks & Gimpel 2016, arXiv 1606.08415.
"""
