"""The chaos-free network."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, stack, worked


def theirs(w: Any) -> Any:
    weight, gates = stack(w.weight_ih, "theta eta w"), "theta eta"
    bias = np.zeros(len(weight))
    return {"weight_ih": weight, "weight_hh": stack(w.weight_hh, gates), "bias_ih": bias, "bias_hh": stack(w.bias_hh, gates)}


@worked("cfn", torchrecurrent="CFNCell", theirs=theirs)
def cfn(w: Any, x: Array, h: Array) -> Any:
    theta, eta = (sigmoid(w.weight_hh[k] @ h + w.weight_ih[k] @ x + w.bias_hh[k]) for k in ("theta", "eta"))
    h = theta * np.tanh(h) + eta * np.tanh(w.weight_ih["w"] @ x)
    return h, (h,)
