"""The simple recurrent unit, with the scaled highway."""

from __future__ import annotations

from typing import Any

from tests.cells.worked import Array, sigmoid, worked


@worked("sru")
@worked("sru", alpha=1.0)
def sru(w: Any, x: Array, c: Array, alpha: float) -> Any:
    f = sigmoid(w.weight_ih["f"] @ x + w.v_f * c + w.bias_ih["f"])
    r = sigmoid(w.weight_ih["r"] @ x + w.v_r * c + w.bias_ih["r"])
    new = f * c + (1 - f) * (w.W @ x)
    return r * new + (1 - r) * (w.W_x @ x) * alpha, (new,)
