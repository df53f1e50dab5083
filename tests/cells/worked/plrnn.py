"""The piecewise-linear network."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, worked


@worked("plrnn", fixed={"off_diagonal": lambda made: ~np.eye(len(made), dtype=bool)})
def plrnn(w: Any, x: Array, z: Array) -> Any:
    z_new = np.diag(w.A) @ z + (w.off_diagonal * w.W) @ np.maximum(z, 0) + w.weight_ih["h"] @ x + w.bias_ih["h"]
    return z_new, (z_new,)
