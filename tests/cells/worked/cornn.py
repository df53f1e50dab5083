"""Networks of oscillators; y and z are the papers' letters."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


def of_cornn(w: Any) -> Any:
    """What is named after z here is named after c there."""
    return {name.replace("_zh", "_ch"): value["z"] for name, value in vars(w).items()}


@worked("cornn", "coRNNCell", {"dt": 0.042, "gamma": 2.7, "epsilon": 4.7}, of_cornn)
def cornn(w: Any, x: Array, y: Array, z: Array, dt: float, gamma: float, epsilon: float) -> Any:
    b = w.bias_ih["z"] + w.bias_hh["z"] + w.bias_zh["z"]
    force = np.tanh(w.weight_hh["z"] @ y + w.weight_zh["z"] @ z + w.weight_ih["z"] @ x + b)
    z_new = z + dt * force - dt * gamma * y - dt * epsilon * z
    y_new = y + dt * z_new
    return y_new, (y_new, z_new)


def of_unicornn(w: Any) -> Any:
    return {"weight_ih": w.weight_ih["h"], "bias_ih": w.bias_ih["h"], "weight_hh": w.w, "weight_ch": w.c}


@worked("unicornn", "UnICORNNCell", {"dt": 0.19, "alpha": 30.65}, of_unicornn)
def unicornn(w: Any, x: Array, y: Array, z: Array, dt: float, alpha: float) -> Any:
    step = dt * sigmoid(w.c)
    z_new = z - step * (np.tanh(w.w * y + w.weight_ih["h"] @ x + w.bias_ih["h"]) + alpha * y)
    y_new = y + step * z_new
    return y_new, (y_new, z_new)
