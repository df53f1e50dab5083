"""The Lipschitz network."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, worked


@worked("lipschitz_rnn")
def lipschitz_rnn(w: Any, x: Array, h: Array, epsilon: float, **constants: float) -> Any:
    def between(m: Array, beta: float, gamma: float) -> Array:
        return (1 - beta) * (m + m.T) + beta * (m - m.T) - gamma * np.eye(len(m))

    a = between(w.M_A, constants["beta_A"], constants["gamma_A"])
    b = between(w.M_W, constants["beta_W"], constants["gamma_W"])
    h_new = h + epsilon * a @ h + epsilon * np.tanh(b @ h + w.weight_ih["h"] @ x + w.bias_ih["h"])
    return h_new, (h_new,)
