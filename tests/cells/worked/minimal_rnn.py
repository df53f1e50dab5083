"""The minimal network."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


def theirs(w: Any) -> Any:
    both = w.bias_hh["u"] + w.bias_zh["u"]
    weights = {"weight_ih": w.weight_ih["z"], "weight_hh": w.weight_hh["u"], "weight_mm": w.weight_zh["u"]}
    return {**weights, "bias_ih": w.bias_ih["z"], "bias_hh": both}


@worked("minimal_rnn", torchrecurrent="MinimalRNNCell", theirs=theirs)
def minimal_rnn(w: Any, x: Array, h: Array) -> Any:
    z = np.tanh(w.weight_ih["z"] @ x + w.bias_ih["z"])
    u = sigmoid(w.weight_hh["u"] @ h + w.bias_hh["u"] + w.weight_zh["u"] @ z + w.bias_zh["u"])
    h = u * h + (1 - u) * z
    return h, (h,)
