"""LSTM with layer normalisation of all gates together."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, stack, worked
from tests.cells.worked.lstm_layernorm import layer_norm


@worked("lstm_layernorm_stacked")
def lstm_layernorm_stacked(w: Any, x: Array, h: Array, c: Array) -> Any:
    bias = np.concatenate([w.bias_i, w.bias_g, w.bias_f, w.bias_o])
    of_x, of_h = layer_norm(stack(w.weight_ih, "i g f o") @ x), layer_norm(stack(w.weight_hh, "i g f o") @ h)
    i, g, f, o = np.split(w.gain_x * of_x + w.gain_h * of_h + bias, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(w.gain_c * layer_norm(c) + w.shift_c)
    return h, (h, c)
