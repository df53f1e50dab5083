"""JANET. The class of torchrecurrent has h twice, as two states, and is not compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked
from tests.cells.worked.lstm import gate


@worked("janet")
@worked("janet", beta=0.25)
def janet(w: Any, x: Array, h: Array, beta: float) -> Any:
    s = gate(w, "f", x, h)
    h = sigmoid(s) * h + (1 - sigmoid(s - beta)) * np.tanh(gate(w, "c", x, h))
    return h, (h,)
