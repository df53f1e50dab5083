"""eLSTM."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


@worked("elstm")
def elstm(w: Any, x: Array, c: Array) -> Any:
    f = sigmoid(w.weight_ih["f"] @ x + w.bias_ih["f"] + w.w_f * c)
    z = np.tanh(w.weight_ih["z"] @ x + w.bias_ih["z"] + w.w_z * c)
    c = f * c + (1 - f) * z
    o = sigmoid(w.weight_ih["o"] @ x + w.bias_ih["o"] + w.weight_ch["o"] @ c + w.bias_ch["o"])
    return o * c, (c,)
