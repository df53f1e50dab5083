"""The intersection network."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


@worked("intersection_rnn")
def intersection_rnn(w: Any, x: Array, h: Array) -> Any:
    a = {k: w.weight_hh[k] @ h + w.bias_hh[k] + w.weight_ih[k] @ x + w.bias_ih[k] for k in w.weight_ih}
    g_y, g_h = sigmoid(a["gy"]), sigmoid(a["gh"])
    y = g_y * (w.weight_in @ x) + (1 - g_y) * np.maximum(a["y"], 0)
    h = g_h * h + (1 - g_h) * np.tanh(a["h"])
    return y, (h,)
