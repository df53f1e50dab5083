"""The stackable recurrent cell."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, stack, worked


def theirs(w: Any) -> Any:
    of_x = {"weight_ih": stack(w.weight_ih, "z k"), "bias_ih": stack(w.bias_ih, "z k")}
    return {**of_x, "weight_hh": w.weight_hh["k"], "bias_hh": w.bias_hh["k"]}


@worked("star", torchrecurrent="STARCell", theirs=theirs)
def star(w: Any, x: Array, h: Array) -> Any:
    z = np.tanh(w.weight_ih["z"] @ x + w.bias_ih["z"])
    k = sigmoid(w.weight_ih["k"] @ x + w.bias_ih["k"] + w.weight_hh["k"] @ h + w.bias_hh["k"])
    h = np.tanh((1 - k) * h + k * z)
    return h, (h,)
