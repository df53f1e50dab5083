"""The Legendre memory unit."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import expm, solve

from tests.cells.worked import Array, worked


def discrete(order: int, theta: float) -> tuple[Array, Array]:
    """The paper's equations (1) and (2), divided by theta, for inputs that are held for steps of length 1."""
    A, B = np.zeros((order, order)), np.zeros(order)
    for i in range(order):
        B[i] = (2 * i + 1) * (-1.0) ** i
        for j in range(order):
            A[i, j] = (2 * i + 1) * (-1.0 if i < j else (-1.0) ** (i - j + 1))
    held = expm(A / theta)
    return held, solve(A, (held - np.eye(order)) @ B)


FIXED = {"A": lambda made, theta: discrete(len(made), theta)[0], "B": lambda made, theta: discrete(len(made), theta)[1]}


@worked("lmu", fixed=FIXED)
@worked("lmu", fixed=FIXED, theta=7)
def lmu(w: Any, x: Array, h: Array, m: Array, theta: int) -> Any:
    u = w.weight_ih["u"] @ x + w.weight_hh["u"] @ h + w.weight_mh["u"] @ m
    m = w.A @ m + w.B[:, None] @ u
    h = np.tanh(w.weight_ih["h"] @ x + w.weight_hh["h"] @ h + w.weight_mh["h"] @ m)
    return h, (h, m)
