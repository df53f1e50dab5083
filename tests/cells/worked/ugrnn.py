"""The update gate network."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, stacks, worked


@worked("ugrnn", torchrecurrent="UGRNNCell", theirs=stacks("c g"))
def ugrnn(w: Any, x: Array, h: Array) -> Any:
    c, g = (w.weight_hh[k] @ h + w.bias_hh[k] + w.weight_ih[k] @ x + w.bias_ih[k] for k in "cg")
    h = sigmoid(g) * h + (1 - sigmoid(g)) * np.tanh(c)
    return h, (h,)
