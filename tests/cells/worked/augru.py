"""GRU with an attentional update gate."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


@worked("augru")
def augru(w: Any, x: Array, a: Array, h: Array) -> Any:
    u, r = (sigmoid(w.weight_ih[k] @ x + w.bias_ih[k] + w.weight_hh[k] @ h + w.bias_hh[k]) for k in "ur")
    o = np.tanh(w.weight_ih["o"] @ x + w.bias_ih["o"] + w.weight_hh["o"] @ (r * h) + w.bias_hh["o"])
    u = (1 - a[0]) * u
    h = u * h + (1 - u) * o
    return h, (h,)
