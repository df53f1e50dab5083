"""Mogrifier LSTM."""

from __future__ import annotations

from typing import Any

from tests.cells.worked import Array, sigmoid, worked
from tests.cells.worked.lstm import lstm


@worked("lstm_mogrifier")
@worked("lstm_mogrifier", rounds=0)
@worked("lstm_mogrifier", rounds=2)
def lstm_mogrifier(w: Any, x: Array, h: Array, c: Array, rounds: int) -> Any:
    if rounds >= 1:
        x = 2 * sigmoid(w.Q1 @ h) * x
    if rounds >= 2:
        h = 2 * sigmoid(w.R2 @ x) * h
    if rounds == 5:
        x = 2 * sigmoid(w.Q3 @ h) * x
        h = 2 * sigmoid(w.R4 @ x) * h
        x = 2 * sigmoid(w.Q5 @ h) * x
    return lstm(w, x, h, c)
