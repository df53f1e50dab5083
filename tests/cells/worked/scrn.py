"""The structurally constrained network; A, B, P, R, U and V are the paper's letters."""

from __future__ import annotations

from typing import Any

from tests.cells.worked import Array, sigmoid, worked


@worked("scrn")
def scrn(w: Any, x: Array, h: Array, s: Array, alpha: float) -> Any:
    A, B, P, R = w.weight_ih["h"], w.weight_ih["s"], w.weight_sh["h"], w.weight_hh["h"]
    s = (1 - alpha) * B @ x + alpha * s
    h = sigmoid(P @ s + A @ x + R @ h)
    return w.weight_hh["y"] @ h + w.weight_sh["y"] @ s, (h, s)
