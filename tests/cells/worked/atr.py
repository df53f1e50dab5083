"""The addition-subtraction twin-gated network."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


def theirs(w: Any) -> Any:
    q = w.bias_hh["q"]
    return {"weight_ih": w.weight_ih["p"], "weight_hh": w.weight_hh["q"], "bias_ih": np.zeros_like(q), "bias_hh": q}


@worked("atr", torchrecurrent="ATRCell", theirs=theirs)
def atr(w: Any, x: Array, h: Array) -> Any:
    p, q = w.weight_ih["p"] @ x, w.weight_hh["q"] @ h + w.bias_hh["q"]
    h = sigmoid(p + q) * p + sigmoid(p - q) * h
    return h, (h,)
