"""Quasi-recurrent networks: a masked convolution over two steps, then pooling."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


def convolved(w: Any, gate: str, x: Array, past: Array) -> Array:
    filters = np.stack([w.weight_pasth[gate], w.weight_ih[gate]])  # [width, H, D]
    return np.einsum("khd,kd->h", filters, np.stack([past, x])) + w.bias_ih[gate] + w.bias_pasth[gate]


@worked("qrnn_f")
def qrnn_f(w: Any, x: Array, h: Array, past: Array) -> Any:
    z, f = np.tanh(convolved(w, "z", x, past)), sigmoid(convolved(w, "f", x, past))
    h = f * h + (1 - f) * z
    return h, (h, x)


@worked("qrnn_fo")
def qrnn_fo(w: Any, x: Array, c: Array, past: Array) -> Any:
    z = np.tanh(convolved(w, "z", x, past))
    f, o = (sigmoid(convolved(w, gate, x, past)) for gate in "fo")
    c = f * c + (1 - f) * z
    return o * c, (c, x)


@worked("qrnn_ifo")
def qrnn_ifo(w: Any, x: Array, c: Array, past: Array) -> Any:
    z = np.tanh(convolved(w, "z", x, past))
    i, f, o = (sigmoid(convolved(w, gate, x, past)) for gate in "ifo")
    c = f * c + i * z
    return o * c, (c, x)
