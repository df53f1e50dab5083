"""Liquid networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


@worked("ltc")
@worked("ltc", unfolds=1)
def ltc(w: Any, x: Array, h: Array, dt: float, unfolds: int) -> Any:
    tau, delta = np.log(1 + np.exp(w.tau)), dt / unfolds
    for _ in range(unfolds):
        f = sigmoid(w.weight_hh["f"] @ h + w.bias_hh["f"] + w.weight_ih["f"] @ x + w.bias_ih["f"])
        h = (h + delta * f * w.A) / (1 + delta * (1 / tau + f))
    return h, (h,)


@worked("cfc")
def cfc(w: Any, x: Array, dt: Array, h: Array) -> Any:
    inside = np.hstack([w.weight_ih["b"], w.weight_hh["b"]]) @ np.hstack([x, h]) + w.bias_ih["b"] + w.bias_hh["b"]
    backbone = 1.7159 * np.tanh(0.666 * inside)
    f, g, last, shift = (w.weight_bh[name] @ backbone + w.bias_bh[name] for name in "fghs")
    t = sigmoid(-(f * dt + shift))
    h = t * np.tanh(g) + (1 - t) * np.tanh(last)
    return h, (h,)
