"""Elman networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, worked


@worked("rnn_tanh")
def rnn_tanh(w: Any, x: Array, h: Array) -> Any:
    h = np.tanh(w.weight_ih["h"] @ x + w.bias_ih["h"] + w.weight_hh["h"] @ h + w.bias_hh["h"])
    return h, (h,)


@worked("rnn_relu")
def rnn_relu(w: Any, x: Array, h: Array) -> Any:
    h = np.maximum(w.weight_ih["h"] @ x + w.bias_ih["h"] + w.weight_hh["h"] @ h + w.bias_hh["h"], 0)
    return h, (h,)
