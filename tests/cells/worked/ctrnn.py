"""The continuous-time network."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, worked


@worked("ctrnn")
def ctrnn(w: Any, x: Array, u: Array, dt: float, tau: float) -> Any:
    slope = -u / tau + w.weight_hh["h"] @ np.tanh(u) + w.weight_ih["h"] @ x + w.bias_ih["h"] + w.bias_hh["h"]
    u = u + dt * slope
    return u, (u,)
