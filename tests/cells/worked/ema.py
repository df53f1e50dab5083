"""The damped exponential moving average."""

from __future__ import annotations

from typing import Any

from tests.cells.worked import Array, sigmoid, worked


@worked("ema")
def ema(w: Any, x: Array, h: Array) -> Any:
    alpha, delta = sigmoid(w.alpha_logit), sigmoid(w.delta_logit)
    h = alpha * (w.weight_ih["u"] @ x) + (1 - alpha * delta) * h
    return h, (h,)
