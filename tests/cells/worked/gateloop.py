"""GateLoop with as many heads as features, in complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


@worked("gateloop")
def gateloop(w: Any, x: Array, re: Array, im: Array) -> Any:
    q, k, v, alpha, beta = (w.weight_ih[name] @ x + w.bias_ih[name] for name in ("q", "k", "v", "alpha", "beta"))
    h = sigmoid(alpha) * np.exp(1j * beta) * (re + 1j * im) + k * v
    return (q * h).real, (h.real, h.imag)
