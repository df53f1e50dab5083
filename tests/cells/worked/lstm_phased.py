"""Phased LSTM."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, worked
from tests.cells.worked.lstm import lstm_peephole


@worked("lstm_phased_timed")
@worked("lstm_phased_timed", alpha=0.1, r_on=0.8)
def lstm_phased_timed(w: Any, x: Array, t: Array, h: Array, c: Array, alpha: float, r_on: float) -> Any:
    def openness(phase: float) -> float:
        if phase < r_on / 2:
            return 2 * phase / r_on
        return 2 - 2 * phase / r_on if phase < r_on else alpha * phase

    k = np.array([openness((time % tau) / tau) for time, tau in zip(t - w.s, w.tau, strict=True)])
    _, (h_open, c_open) = lstm_peephole(w, x, h, c)
    c = k * c_open + (1 - k) * c
    h = k * h_open + (1 - k) * h
    return h, (h, c)


@worked("lstm_phased")
@worked("lstm_phased", alpha=0.1, r_on=0.8)
def lstm_phased(w: Any, x: Array, h: Array, c: Array, t: Array, alpha: float, r_on: float) -> Any:
    _, (h, c) = lstm_phased_timed(w, x, t, h, c, alpha, r_on)
    return h, (h, c, t + 1)
