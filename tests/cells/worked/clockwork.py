"""The clockwork network."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, worked


def periods(T: Array, modules: int) -> Array:
    """The paper's exponential series, for modules of equal size."""
    return np.repeat([2.0**k for k in range(modules)], len(T) // modules)


def blocks(mask: Array, modules: int) -> Array:
    """A module is connected to itself and to slower ones: W_H is block-upper triangular where periods grow downwards."""
    return np.kron(np.triu(np.ones((modules, modules))), np.ones([n // modules for n in mask.shape]))


FIXED = {"T": periods, "mask": blocks}


@worked("clockwork", fixed=FIXED)
@worked("clockwork", fixed=FIXED, modules=2)
def clockwork(w: Any, x: Array, h: Array, t: Array, modules: int) -> Any:
    new = np.tanh(w.weight_ih["h"] @ x + w.bias_ih["h"] + (w.mask * w.W) @ h)
    h = np.where(t % w.T < 1, new, h)
    return h, (h, (t + 1) % 2 ** (modules - 1))
