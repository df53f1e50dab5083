"""GRUs whose gates do not see the input."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


def after(w: Any, z: Array, r: Array, x: Array, h: Array) -> Any:
    """The step after the gates."""
    bias = w.bias_ih["n"] + (w.bias_hh["n"] if hasattr(w, "bias_hh") else 0)
    h = (1 - z) * h + z * np.tanh(w.weight_ih["n"] @ x + w.weight_hh["n"] @ (r * h) + bias)
    return h, (h,)


@worked("gru1")
def gru1(w: Any, x: Array, h: Array) -> Any:
    z, r = (sigmoid(w.weight_hh[k] @ h + w.bias_hh[k]) for k in "zr")
    return after(w, z, r, x, h)


@worked("gru2")
def gru2(w: Any, x: Array, h: Array) -> Any:
    z, r = (sigmoid(w.weight_hh[k] @ h) for k in "zr")
    return after(w, z, r, x, h)


@worked("gru3")
def gru3(w: Any, x: Array, h: Array) -> Any:
    return after(w, sigmoid(w.bias_z), sigmoid(w.bias_r), x, h)
