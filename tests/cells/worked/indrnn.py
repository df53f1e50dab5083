"""The independently recurrent network."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, worked


def theirs(w: Any) -> Any:
    h = w.bias_ih["h"]
    return {"weight_ih": w.weight_ih["h"], "vector_u": w.recurrent, "bias_ih": h, "bias_hh": np.zeros_like(h)}


@worked("indrnn", torchrecurrent="IndRNNCell", options={"nonlinearity": "relu"}, theirs=theirs)
def indrnn(w: Any, x: Array, h: Array) -> Any:
    h = np.maximum(w.weight_ih["h"] @ x + w.recurrent * h + w.bias_ih["h"], 0)
    return h, (h,)
