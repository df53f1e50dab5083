"""Bistable recurrent cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, stack, worked


def theirs_brc(w: Any) -> Any:
    weight = stack(w.weight_ih, "a c h")
    recurrent = np.concatenate([w.recurrent_a, w.recurrent_c])
    bias = np.concatenate([w.bias_a, w.bias_c])
    return {"weight_ih": weight, "weight_hh": recurrent, "bias_ih": np.zeros(len(weight)), "bias_hh": bias}


@worked("brc", torchrecurrent="BRCell", theirs=theirs_brc)
def brc(w: Any, x: Array, h: Array) -> Any:
    a = 1 + np.tanh(w.weight_ih["a"] @ x + w.recurrent_a * h + w.bias_a)
    c = sigmoid(w.weight_ih["c"] @ x + w.recurrent_c * h + w.bias_c)
    h = c * h + (1 - c) * np.tanh(w.weight_ih["h"] @ x + a * h)
    return h, (h,)


def theirs_nbrc(w: Any) -> Any:
    weight, recurrent, bias = stack(w.weight_ih, "a c h"), stack(w.weight_hh, "a c"), stack(w.bias_hh, "a c")
    return {"weight_ih": weight, "weight_hh": recurrent, "bias_ih": np.zeros(len(weight)), "bias_hh": bias}


@worked("nbrc", torchrecurrent="NBRCell", theirs=theirs_nbrc)
def nbrc(w: Any, x: Array, h: Array) -> Any:
    a = 1 + np.tanh(w.weight_ih["a"] @ x + w.weight_hh["a"] @ h + w.bias_hh["a"])
    c = sigmoid(w.weight_ih["c"] @ x + w.weight_hh["c"] @ h + w.bias_hh["c"])
    h = c * h + (1 - c) * np.tanh(w.weight_ih["h"] @ x + a * h)
    return h, (h,)
