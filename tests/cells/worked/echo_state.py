"""The echo state network."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, worked


def of_radius_one(W: Array, **hypers: float) -> Array:
    """The scaling by the spectral radius is a hyper-parameter of the step."""
    return W / np.abs(np.linalg.eigvals(W)).max()


def bounded(made: Array, **hypers: float) -> Array:
    return np.clip(made, -1, 1)


FIXED = {"W": of_radius_one, "W_in": bounded, "b": bounded}


@worked("echo_state", fixed=FIXED)
@worked("echo_state", fixed=FIXED, leak=0.3, spectral_radius=0.5, input_scaling=0.1)
def echo_state(w: Any, x: Array, h: Array, leak: float, spectral_radius: float, input_scaling: float) -> Any:
    inputs = input_scaling * np.column_stack([w.b, w.W_in]) @ np.array([1, *x])
    h = (1 - leak) * h + leak * np.tanh(inputs + spectral_radius * w.W @ h)
    return h, (h,)
