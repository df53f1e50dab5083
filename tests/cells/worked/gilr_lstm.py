"""The GILR-LSTM."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


@worked("gilr_lstm")
def gilr_lstm(w: Any, x: Array, surrogate: Array, c: Array) -> Any:
    def gate(name: str) -> Array:
        return w.weight_hh[name] @ surrogate + w.bias_hh[name] + w.weight_ih[name] @ x + w.bias_ih[name]

    f, i, o, z = sigmoid(gate("f")), sigmoid(gate("i")), sigmoid(gate("o")), np.tanh(gate("z"))
    g = sigmoid(w.weight_ih["g"] @ x + w.bias_ih["g"])
    j = np.tanh(w.weight_ih["j"] @ x + w.bias_ih["j"])
    c = f * c + i * z
    return o * c, (g * surrogate + (1 - g) * j, c)
