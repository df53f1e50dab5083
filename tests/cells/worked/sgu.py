"""The simple gated unit, and the deep one. Those of torchrecurrent have another hard sigmoid, and a bias for z_g."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, stack, worked


def theirs(w: Any) -> Mapping[str, Array]:
    found = {"weight_ih": stack(w.weight_ih, "g z"), "bias_ih": stack(w.bias_ih, "g z")}
    found["weight_hh"] = np.concatenate([w.W_zxh, w.weight_hh["z"]])
    found["bias_hh"] = np.concatenate([0 * w.bias_hh["z"], w.bias_hh["z"]])
    return found | ({"weight_ho": w.W_go} if hasattr(w, "W_go") else {})


def gated(w: Any, x: Array, h: Array, slope: float) -> tuple[Array, Array]:
    x_g = w.weight_ih["g"] @ x + w.bias_ih["g"]
    z = w.weight_ih["z"] @ x + w.bias_ih["z"] + w.weight_hh["z"] @ h + w.bias_hh["z"]
    return np.tanh(w.W_zxh @ (x_g * h)), np.clip(slope * z + 0.5, 0, 1)


@worked("sgu")
@worked("sgu", torchrecurrent="SGUCell", theirs=theirs, slope=1 / 6)
def sgu(w: Any, x: Array, h: Array, slope: float) -> Any:
    z_g, z = gated(w, x, h, slope)
    h = (1 - z) * h + z * np.log1p(np.exp(z_g * h))
    return h, (h,)


@worked("dsgu")
@worked("dsgu", torchrecurrent="DSGUCell", theirs=theirs, slope=1 / 6)
def dsgu(w: Any, x: Array, h: Array, slope: float) -> Any:
    z_g, z = gated(w, x, h, slope)
    h = (1 - z) * h + z * sigmoid(w.W_go @ (z_g * h))
    return h, (h,)
