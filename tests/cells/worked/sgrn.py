"""The simple gated recurrent network."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


def theirs(w: Any) -> dict[str, Array]:
    """Their bias of the input is zero in ours."""
    bias = w.bias_hh["f"]
    return {"weight_ih": w.weight_ih["f"], "weight_hh": w.weight_hh["f"], "bias_ih": np.zeros_like(bias), "bias_hh": bias}


@worked("sgrn", torchrecurrent="SGRNCell", theirs=theirs)
def sgrn(w: Any, x: Array, h: Array) -> Any:
    f = sigmoid(w.weight_ih["f"] @ x + w.weight_hh["f"] @ h + w.bias_hh["f"])
    h = np.tanh((1 - f) * (w.weight_ih["f"] @ x) + f * h)
    return h, (h,)
