"""Residual LSTM."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked
from tests.cells.worked.lstm import gate, peepholes


def theirs(w: Any) -> dict[str, Array]:
    return {**peepholes(w), "weight_proj": w.weight_p, "weight_res": w.weight_ih["h"]}


@worked("lstm_residual", torchrecurrent="ResLSTMCell", theirs=theirs)
def lstm_residual(w: Any, x: Array, h: Array, c: Array) -> Any:
    i = sigmoid(gate(w, "i", x, h) + w.peephole_i * c)
    f = sigmoid(gate(w, "f", x, h) + w.peephole_f * c)
    c = f * c + i * np.tanh(gate(w, "g", x, h))
    o = sigmoid(gate(w, "o", x, h) + w.peephole_o * c)
    h = o * (w.weight_p @ np.tanh(c) + w.weight_ih["h"] @ x)
    return h, (h, c)
