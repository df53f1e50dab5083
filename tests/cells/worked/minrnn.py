"""minGRU and minLSTM."""

from __future__ import annotations

from typing import Any

from tests.cells.worked import Array, sigmoid, worked


def linear(w: Any, gate: str, x: Array) -> Array:
    return w.weight_ih[gate] @ x + w.bias_ih[gate]


@worked("mingru")
def mingru(w: Any, x: Array, h: Array) -> Any:
    z = sigmoid(linear(w, "z", x))
    h = (1 - z) * h + z * linear(w, "h", x)
    return h, (h,)


@worked("minlstm")
def minlstm(w: Any, x: Array, h: Array) -> Any:
    f, i = sigmoid(linear(w, "f", x)), sigmoid(linear(w, "i", x))
    h = (f * h + i * linear(w, "h", x)) / (f + i)
    return h, (h,)
