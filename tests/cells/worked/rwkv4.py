"""RWKV-4's time mixing, with numerator and denominator as the paper first has them, without the running maximum."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


@worked("rwkv4")
def rwkv4(w: Any, x: Array, past: Array, a: Array, b: Array, p: Array) -> Any:
    r, k, v = (w.weight_ih[g] @ (mu * x + (1 - mu) * past) for g, mu in zip("rkv", (w.mu_r, w.mu_k, w.mu_v), strict=True))
    above, below = np.exp(p) * a, np.exp(p) * b
    wkv = (above + np.exp(w.u + k) * v) / (below + np.exp(w.u + k))
    decay = np.exp(w.w_log)
    above, below = np.exp(-decay) * above + np.exp(k) * v, np.exp(-decay) * below + np.exp(k)
    p = np.maximum(p - decay, k)
    return w.W_o @ (sigmoid(r) * wkv), (x, above / np.exp(p), below / np.exp(p), p)
