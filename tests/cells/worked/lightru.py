"""The light recurrent unit."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, stack, worked


def theirs(w: Any) -> Any:
    weight = stack(w.weight_ih, "n f")
    return {"weight_ih": weight, "weight_hh": w.weight_hh["f"], "bias_ih": np.zeros(len(weight)), "bias_hh": w.bias_hh["f"]}


@worked("lightru", torchrecurrent="LightRUCell", theirs=theirs)
def lightru(w: Any, x: Array, h: Array) -> Any:
    f = sigmoid(w.weight_ih["f"] @ x + w.weight_hh["f"] @ h + w.bias_hh["f"])
    h = (1 - f) * h + f * np.tanh(w.weight_ih["n"] @ x)
    return h, (h,)
