"""LSTMs with slim gates."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked
from tests.cells.worked.lstm import gate


def step(i: Array, f: Array, o: Array, candidate: Array, c: Array) -> Any:
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(candidate)
    h = sigmoid(o) * np.tanh(c)
    return h, (h, c)


@worked("lstm_slim1")
def lstm_slim1(w: Any, x: Array, h: Array, c: Array) -> Any:
    i, f, o = (w.weight_hh[k] @ h + w.bias_hh[k] for k in "ifo")
    return step(i, f, o, gate(w, "c", x, h), c)


@worked("lstm_slim2")
def lstm_slim2(w: Any, x: Array, h: Array, c: Array) -> Any:
    i, f, o = (w.weight_hh[k] @ h for k in "ifo")
    return step(i, f, o, w.weight_ih["c"] @ x + w.weight_hh["c"] @ h + w.bias_ih["c"], c)


@worked("lstm_slim3")
def lstm_slim3(w: Any, x: Array, h: Array, c: Array) -> Any:
    return step(w.bias_i, w.bias_f, w.bias_o, gate(w, "c", x, h), c)
