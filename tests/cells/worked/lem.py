"""Long expressive memory; y and z are the paper's letters."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


@worked("lem")
def lem(w: Any, x: Array, y: Array, z: Array, dt: float) -> Any:
    def of_y(name: str) -> Array:
        return w.weight_hh[name] @ y + w.bias_hh[name] + w.weight_ih[name] @ x + w.bias_ih[name]

    steps_z, steps_y = dt * sigmoid(of_y("dt_z")), dt * sigmoid(of_y("dt_h"))
    z_new = (1 - steps_z) * z + steps_z * np.tanh(of_y("z"))
    inside = w.weight_zh["h"] @ z_new + w.bias_zh["h"] + w.weight_ih["h"] @ x + w.bias_ih["h"]
    y_new = (1 - steps_y) * y + steps_y * np.tanh(inside)
    return y_new, (y_new, z_new)
