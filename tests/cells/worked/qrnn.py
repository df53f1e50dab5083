"""Quasi-recurrent networks: a masked convolution over two steps, then pooling. What the filter of the step before gives of an
input is kept for the step after.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


def kept(w: Any, gates: str, x: Array) -> list[Array]:
    return [w.weight_ih[f"{gate}_1"] @ x for gate in gates]


@worked("qrnn_f")
def qrnn_f(w: Any, x: Array, h: Array, *before: Array) -> Any:
    z, f = (w.weight_ih[gate] @ x + b + w.bias_ih[gate] for gate, b in zip("zf", before, strict=True))
    f = sigmoid(f)
    h = f * h + (1 - f) * np.tanh(z)
    return h, (h, *kept(w, "zf", x))


@worked("qrnn_fo")
def qrnn_fo(w: Any, x: Array, c: Array, *before: Array) -> Any:
    z, f, o = (w.weight_ih[gate] @ x + b + w.bias_ih[gate] for gate, b in zip("zfo", before, strict=True))
    f, o = sigmoid(f), sigmoid(o)
    c = f * c + (1 - f) * np.tanh(z)
    return o * c, (c, *kept(w, "zfo", x))


@worked("qrnn_ifo")
def qrnn_ifo(w: Any, x: Array, c: Array, *before: Array) -> Any:
    z, f, o, i = (w.weight_ih[gate] @ x + b + w.bias_ih[gate] for gate, b in zip("zfoi", before, strict=True))
    f, o, i = sigmoid(f), sigmoid(o), sigmoid(i)
    c = f * c + i * np.tanh(z)
    return o * c, (c, *kept(w, "zfoi", x))
