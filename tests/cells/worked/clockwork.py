"""The clockwork network."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, worked


@worked("clockwork")
@worked("clockwork", modules=2)
def clockwork(w: Any, x: Array, h: Array, t: Array, modules: int) -> Any:
    new = np.tanh(w.weight_ih["h"] @ x + w.bias_ih["h"] + (w.mask * w.W) @ h)
    h = np.where(t % w.T < 1, new, h)
    return h, (h, (t + 1) % 2 ** (modules - 1))
