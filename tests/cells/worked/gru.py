"""GRUs, with the reset after the product and before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


@worked("gru")
def gru(w: Any, x: Array, h: Array) -> Any:
    of_x = {k: w.weight_ih[k] @ x + w.bias_ih[k] for k in "rzn"}
    of_h = {k: w.weight_hh[k] @ h + w.bias_hh[k] for k in "rzn"}
    r, z = sigmoid(of_x["r"] + of_h["r"]), sigmoid(of_x["z"] + of_h["z"])
    h = z * h + (1 - z) * np.tanh(of_x["n"] + r * of_h["n"])
    return h, (h,)


@worked("gru_before")
def gru_before(w: Any, x: Array, h: Array) -> Any:
    r, z = (sigmoid(w.weight_ih[k] @ x + w.bias_ih[k] + w.weight_hh[k] @ h + w.bias_hh[k]) for k in "rz")
    n = np.tanh(w.weight_ih["n"] @ x + w.bias_ih["n"] + w.weight_hh["n"] @ (r * h) + w.bias_hh["n"])
    h = z * h + (1 - z) * n
    return h, (h,)
