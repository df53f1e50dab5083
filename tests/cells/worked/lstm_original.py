"""LSTM without a forget gate."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, stacks, worked
from tests.cells.worked.lstm import gate


@worked("lstm_original", torchrecurrent="OriginalLSTMCell", theirs=stacks("i g o"))
def lstm_original(w: Any, x: Array, h: Array, c: Array) -> Any:
    c = c + sigmoid(gate(w, "i", x, h)) * np.tanh(gate(w, "g", x, h))
    h = sigmoid(gate(w, "o", x, h)) * np.tanh(c)
    return h, (h, c)
