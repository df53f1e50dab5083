"""LSTM of several heads."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


def by_head(weight: Array, h: Array, heads: int) -> Array:
    """The product with a block for each head; the blocks lie one below the other."""
    return np.concatenate([block @ part for block, part in zip(np.split(weight, heads), np.split(h, heads), strict=True)])


@worked("lstm_heads")
@worked("lstm_heads", heads=2)
def lstm_heads(w: Any, x: Array, h: Array, c: Array, heads: int) -> Any:
    def gate(name: str) -> Array:
        return w.weight_ih[name] @ x + w.bias_ih[name] + by_head(w.weight_hh[name], h, heads) + w.bias_hh[name]

    c = sigmoid(gate("f")) * c + sigmoid(gate("i")) * np.tanh(gate("g"))
    h = sigmoid(gate("o")) * np.tanh(c)
    return h, (h, c)
