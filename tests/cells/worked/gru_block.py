"""The block GRU of DreamerV3."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


def active(gain: Array, a: Array) -> Array:
    a = gain * a / np.sqrt((a**2).mean() + 1e-4)
    return a * sigmoid(a)


def blocks(weight: Array, a: Array) -> Array:
    """As many blocks as the weight's columns go into the operand."""
    operands = np.split(a, len(a) // weight.shape[1])
    return np.concatenate([part @ b for part, b in zip(np.split(weight, len(operands)), operands, strict=True)])


@worked("gru_block")
@worked("gru_block", heads=2)
@worked("gru_block", heads=2, depth=3)
def gru_block(w: Any, x: Array, h: Array, heads: int, depth: int) -> Any:
    assert w.weight_sh["v0"].shape == (len(h), len(h) // heads)
    p = active(w.gain_p, w.weight_ih["p"] @ x + w.bias_ih["p"])
    q = active(w.gain_q, w.weight_hh["q"] @ h + w.bias_hh["q"])
    projected = w.weight_ph["v0"] @ p + w.weight_qh["v0"] @ q + w.bias_ph["v0"] + w.bias_qh["v0"]
    v = active(w.gain_v0, projected + blocks(w.weight_sh["v0"], h))
    for k in range(1, depth):
        v = active(getattr(w, f"gain_v{k}"), blocks(w.weight_vh[f"v{k}"], v) + w.bias_vh[f"v{k}"])
    reset, candidate, update = (blocks(w.weight_vh[k], v) + w.bias_vh[k] for k in "rcu")
    u = sigmoid(update - 1)
    h = u * np.tanh(sigmoid(reset) * candidate) + (1 - u) * h
    return h, (h,)
