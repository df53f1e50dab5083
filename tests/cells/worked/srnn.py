"""The shuffling network."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


def turn(made: Array) -> Array:
    """The matrix of a permutation with a single cycle."""
    P = np.zeros_like(made)
    for i in range(len(made)):
        P[(i + 1) % len(made), i] = 1
    return P


@worked("srnn", fixed={"P": turn})
def srnn(w: Any, x: Array, h: Array) -> Any:
    f = np.maximum(w.weight_ih["f"] @ x + w.bias_ih["f"], 0)
    b = (w.weight_fh["b"] @ f + w.bias_fh["b"]) * sigmoid(w.weight_ih["s"] @ x + w.bias_ih["s"])
    h = np.maximum(np.roll(h, 1) + b, 0)
    return h, (h,)
