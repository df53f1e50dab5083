"""LSTM with layer normalisation of each gate."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


def layer_norm(v: Array) -> Array:
    return (v - v.mean()) / np.sqrt(v.var() + 1e-5)


@worked("lstm_layernorm")
def lstm_layernorm(w: Any, x: Array, h: Array, c: Array) -> Any:
    def normalised(name: str, value: Array) -> Array:
        return getattr(w, f"gain_{name}") * layer_norm(value) + getattr(w, f"shift_{name}")

    i, f, g, o = (normalised(name, w.weight_ih[name] @ x + w.weight_hh[name] @ h) for name in "ifgo")
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(normalised("c", c))
    return h, (h, c)
