"""The cell of neural architecture search."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


@worked("nas")
def nas(w: Any, x: Array, h: Array, c: Array) -> Any:
    names = [f"o{k}" for k in range(1, 9)]
    of_x = [w.weight_ih[k] @ x + w.bias_ih[k] for k in names]
    of_h = [w.weight_hh[k] @ h + w.bias_hh[k] for k in names]
    sums = [a + b for a, b in zip(of_x, of_h, strict=True)]
    product = np.maximum(of_x[3] * of_h[3], 0)
    first = np.tanh(sigmoid(sums[0]) * np.maximum(sums[1], 0))
    second = np.tanh(sigmoid(sums[2]) + product)
    third = np.tanh(np.tanh(sums[4]) * sigmoid(sums[5]))
    fourth = sigmoid(np.tanh(sums[6]) + sigmoid(sums[7]))
    c = np.tanh(first + c) * second
    h = np.tanh(c * np.tanh(third + fourth))
    return h, (h, c)
