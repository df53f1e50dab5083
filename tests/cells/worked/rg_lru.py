"""The real-gated linear recurrent unit, after the linear layer of its block."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


@worked("rg_lru")
@worked("rg_lru", c=2.0)
def rg_lru(w: Any, x: Array, h: Array, c: float) -> Any:
    u = w.weight_ih["u"] @ x
    r = sigmoid(w.weight_uh["r"] @ u + w.bias_uh["r"])
    i = sigmoid(w.weight_uh["i"] @ u + w.bias_uh["i"])
    a = sigmoid(w.Lambda) ** (c * r)
    h = a * h + np.sqrt(1 - a**2) * (i * u)
    return h, (h,)
