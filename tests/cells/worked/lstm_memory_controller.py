"""LSTM with a memory controller. The class of torchrecurrent gives its output beside the states, and is not compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


@worked("lstm_memory_controller")
def lstm_memory_controller(w: Any, x: Array, v: Array, c: Array) -> Any:
    f, i, o, m, n = (w.weight_ih[k] @ x + w.bias_ih[k] + w.weight_vh[k] @ v + w.bias_vh[k] for k in "fiomn")
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(n)
    return sigmoid(o) * np.tanh(c), (sigmoid(m) * np.tanh(c), c)
