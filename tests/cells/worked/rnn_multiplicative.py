"""The multiplicative network: the input's own recurrent matrix is made, and multiplied with the state."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, worked


@worked("rnn_multiplicative")
def rnn_multiplicative(w: Any, x: Array, h: Array) -> Any:
    chosen = w.weight_fh["h"] @ np.diag(w.W_fx @ x) @ w.W_fh
    h = np.tanh(w.weight_ih["h"] @ x + w.bias_ih["h"] + chosen @ h + w.bias_fh["h"])
    return h, (h,)
