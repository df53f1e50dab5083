"""The independently recurrent network with layer normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, worked


@worked("indrnn_layernorm")
def indrnn_layernorm(w: Any, x: Array, h: Array) -> Any:
    v = w.weight_ih["h"] @ x
    v = (v - v.mean()) / np.sqrt(v.var() + 1e-5)
    h = np.tanh(w.gain * v + w.shift + w.recurrent * h)
    return h, (h,)
