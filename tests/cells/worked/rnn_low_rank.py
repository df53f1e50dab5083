"""The simple network with a recurrent matrix of low rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, worked


@worked("rnn_low_rank")
def rnn_low_rank(w: Any, x: Array, h: Array) -> Any:
    recurrent = w.U @ w.V
    assert recurrent.shape == (len(h), len(h))
    h = np.tanh(w.weight_ih["h"] @ x + w.bias_ih["h"] + recurrent @ h)
    return h, (h,)
