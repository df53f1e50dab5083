"""The echo state network."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, worked


@worked("echo_state")
@worked("echo_state", leak=0.3, spectral_radius=0.5, input_scaling=0.1)
def echo_state(w: Any, x: Array, h: Array, leak: float, spectral_radius: float, input_scaling: float) -> Any:
    inputs = input_scaling * np.column_stack([w.b, w.W_in]) @ np.array([1, *x])
    h = (1 - leak) * h + leak * np.tanh(inputs + spectral_radius * w.W @ h)
    return h, (h,)
