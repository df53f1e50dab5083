"""The Legendre memory unit."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, worked


@worked("lmu")
def lmu(w: Any, x: Array, h: Array, m: Array, theta: int) -> Any:
    u = w.weight_ih["u"] @ x + w.weight_hh["u"] @ h + w.weight_mh["u"] @ m
    m = w.A @ m + w.B[:, None] @ u
    h = np.tanh(w.weight_ih["h"] @ x + w.weight_hh["h"] @ h + w.weight_mh["h"] @ m)
    return h, (h, m)
