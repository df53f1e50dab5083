"""The orthogonal network."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, worked


@worked("orthogonal_rnn")
@worked("orthogonal_rnn", reflections=1)
def orthogonal_rnn(w: Any, x: Array, h: Array, reflections: int) -> Any:
    W = np.eye(len(h))
    for k in range(reflections):
        u = getattr(w, f"u{k}")
        W = (np.eye(len(h)) - 2 * np.outer(u, u) / (u @ u)) @ W
    np.testing.assert_allclose(W @ W.T, np.eye(len(h)), atol=1e-12)
    a = W @ h + w.weight_ih["h"] @ x + w.bias_ih["h"]
    h = np.where(a > 0, a, 0.1 * a)
    return h, (h,)
