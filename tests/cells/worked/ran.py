"""The recurrent additive network."""

from __future__ import annotations

from typing import Any

import numpy as np

from anyrnn.trace.language import tanh
from tests.cells.worked import Array, sigmoid, stack, worked
from tests.cells.worked.lstm import gate


def identity(c: Any) -> Any:
    return c


def theirs(w: Any) -> dict[str, Array]:
    return {
        "weight_ih": stack(w.weight_ih, "c i f"),
        "weight_hh": stack(w.weight_hh, "i f"),
        "bias_ih": stack(w.bias_ih, "i f"),
        "bias_hh": stack(w.bias_hh, "i f"),
    }


@worked("ran", torchrecurrent="RANCell", theirs=theirs)
@worked("ran", g=identity)
def ran(w: Any, x: Array, h: Array, c: Array, g: Any) -> Any:
    c = sigmoid(gate(w, "i", x, h)) * (w.weight_ih["c"] @ x) + sigmoid(gate(w, "f", x, h)) * c
    h = np.tanh(c) if g is tanh else g(c)
    return h, (h, c)
