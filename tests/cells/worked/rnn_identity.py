"""IRNN."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, worked


@worked("rnn_identity")
def rnn_identity(w: Any, x: Array, h: Array) -> Any:
    h = np.maximum(w.weight_ih["h"] @ x + w.bias_ih["h"] + w.weight_hh["h"] @ h + w.bias_hh["h"], 0)
    return h, (h,)
