"""GRU with layer normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, stack, worked


def normalised(a: Array) -> Array:
    return (a - a.mean()) / np.sqrt(a.var() + 1e-5)


@worked("gru_layernorm")
def gru_layernorm(w: Any, x: Array, h: Array) -> Any:
    of_x = w.gain_x * normalised(stack(w.weight_ih, "z r g") @ x) + w.shift_x
    of_h = w.gain_h * normalised(stack(w.weight_hh, "z r g") @ h) + w.shift_h
    (z_x, r_x, g_x), (z_h, r_h, g_h) = np.split(of_x, 3), np.split(of_h, 3)
    z, r = sigmoid(z_x + z_h), sigmoid(r_x + r_h)
    h = z * h + (1 - z) * np.tanh(g_x + r * g_h)
    return h, (h,)
