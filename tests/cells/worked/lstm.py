"""LSTMs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, stack, worked


def gate(w: Any, name: str, x: Array, h: Array) -> Array:
    return w.weight_ih[name] @ x + w.bias_ih[name] + w.weight_hh[name] @ h + w.bias_hh[name]


@worked("lstm")
def lstm(w: Any, x: Array, h: Array, c: Array) -> Any:
    i, f, o = (sigmoid(gate(w, name, x, h)) for name in "ifo")
    c = f * c + i * np.tanh(gate(w, "g", x, h))
    h = o * np.tanh(c)
    return h, (h, c)


def peepholes(w: Any) -> dict[str, Array]:
    stacked = {name: stack(getattr(w, name), "i f g o") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    return {**stacked, "weight_ph": np.concatenate([w.peephole_i, w.peephole_f, w.peephole_o])}


@worked("lstm_peephole", torchrecurrent="PeepholeLSTMCell", theirs=peepholes)
def lstm_peephole(w: Any, x: Array, h: Array, c: Array) -> Any:
    i = sigmoid(gate(w, "i", x, h) + w.peephole_i * c)
    f = sigmoid(gate(w, "f", x, h) + w.peephole_f * c)
    c = f * c + i * np.tanh(gate(w, "g", x, h))
    h = sigmoid(gate(w, "o", x, h) + w.peephole_o * c) * np.tanh(c)
    return h, (h, c)


@worked("lstm_coupled")
def lstm_coupled(w: Any, x: Array, h: Array, c: Array) -> Any:
    i, o = (sigmoid(gate(w, name, x, h)) for name in "io")
    c = (1 - i) * c + i * np.tanh(gate(w, "g", x, h))
    h = o * np.tanh(c)
    return h, (h, c)


@worked("lstm_projected")
def lstm_projected(w: Any, x: Array, h: Array, c: Array) -> Any:
    _, (cell_output, c) = lstm(w, x, h, c)
    h = w.weight_hr @ cell_output
    return h, (h, c)
