"""The light gated recurrent unit."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, stacks, worked


@worked("ligru", torchrecurrent="LiGRUCell", theirs=stacks("z n"))
def ligru(w: Any, x: Array, h: Array) -> Any:
    z, n = (w.weight_ih[k] @ x + w.bias_ih[k] + w.weight_hh[k] @ h + w.bias_hh[k] for k in "zn")
    z = sigmoid(z)
    h = z * h + (1 - z) * np.maximum(n, 0)
    return h, (h,)
