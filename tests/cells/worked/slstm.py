"""sLSTM of xLSTM."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked
from tests.cells.worked.lstm_heads import by_head


@worked("slstm")
@worked("slstm", heads=2)
def slstm(w: Any, x: Array, h: Array, c: Array, n: Array, m: Array, heads: int) -> Any:
    i, f, z, o = (w.weight_ih[k] @ x + by_head(w.weight_hh[k], h, heads) + w.bias_ih[k] for k in "ifzo")
    log_f = np.log(sigmoid(f))
    m_new = np.maximum(log_f + m, i)
    input_gate, forget_gate = np.exp(i - m_new), np.exp(log_f + m - m_new)
    c = forget_gate * c + input_gate * np.tanh(z)
    n = forget_gate * n + input_gate
    h = sigmoid(o) * c / n
    return h, (h, c, n, m_new)
