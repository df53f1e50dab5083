"""LSTMs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


def gate(w: Any, name: str, x: Array, h: Array) -> Array:
    return w.weight_ih[name] @ x + w.bias_ih[name] + w.weight_hh[name] @ h + w.bias_hh[name]


@worked("lstm")
def lstm(w: Any, x: Array, h: Array, c: Array) -> Any:
    i, f, o = (sigmoid(gate(w, name, x, h)) for name in "ifo")
    c = f * c + i * np.tanh(gate(w, "g", x, h))
    h = o * np.tanh(c)
    return h, (h, c)
