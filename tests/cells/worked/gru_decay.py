"""GRU-D."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


@worked("gru_decay", fixed={"mean": np.zeros_like})
def gru_decay(w: Any, x: Array, m: Array, delta: Array, h: Array, last: Array) -> Any:
    def gate(name: str, state: Array) -> Array:
        biases = w.bias_ih[name] + w.bias_hh[name] + w.bias_mh[name]
        return w.weight_ih[name] @ imputed + w.weight_hh[name] @ state + w.weight_mh[name] @ m + biases

    last = m * x + (1 - m) * last
    decay = np.exp(-np.maximum(0, w.w_gamma * delta + w.b_gamma))
    imputed = m * x + (1 - m) * (decay * last + (1 - decay) * w.mean)
    h = np.exp(-np.maximum(0, w.weight_deltah["gamma"] @ delta + w.bias_deltah["gamma"])) * h
    r, z = sigmoid(gate("r", h)), sigmoid(gate("z", h))
    h = (1 - z) * h + z * np.tanh(gate("n", r * h))
    return h, (h, last)
