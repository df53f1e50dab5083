"""The recurrence of the hierarchically gated network."""

from __future__ import annotations

from typing import Any

from tests.cells.worked import Array, sigmoid, worked


@worked("hgrn")
@worked("hgrn", gamma=0.6)
def hgrn(w: Any, x: Array, h: Array, gamma: float) -> Any:
    mu, g = (sigmoid(w.weight_ih[gate] @ x + w.bias_ih[gate]) for gate in ("mu", "g"))
    forget = gamma + (1 - gamma) * mu
    candidate = w.weight_ih["c"] @ x + w.bias_ih["c"]
    h = forget * h + (1 - forget) * candidate * sigmoid(candidate)
    return g * h, (h,)
