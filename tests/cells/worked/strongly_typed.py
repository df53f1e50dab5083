"""Strongly typed networks. T-LSTM of torchrecurrent has the same equations, but gives its states back nested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, stack, worked


def trnn_theirs(w: Any) -> Mapping[str, Array]:
    """Theirs has a bias for z too."""
    return {"weight_ih": np.concatenate([w.W, w.weight_ih["f"]]), "bias_ih": np.concatenate([0 * w.bias_ih["f"], w.bias_ih["f"]])}


@worked("trnn", torchrecurrent="TRNNCell", theirs=trnn_theirs)
def trnn(w: Any, x: Array, h: Array) -> Any:
    z = w.W @ x
    f = sigmoid(w.weight_ih["f"] @ x + w.bias_ih["f"])
    h = f * h + (1 - f) * z
    return h, (h,)


def tgru_theirs(w: Any) -> Mapping[str, Array]:
    ours = {"weight_ih": w.weight_ih, "weight_hh": w.weight_pasth, "bias_ih": w.bias_ih, "bias_hh": w.bias_pasth}
    return {name: stack(parts, "z f o") for name, parts in ours.items()}


def gate(w: Any, name: str, x: Array, past: Array) -> Array:
    return w.weight_pasth[name] @ past + w.bias_pasth[name] + w.weight_ih[name] @ x + w.bias_ih[name]


@worked("tgru", torchrecurrent="TGRUCell", theirs=tgru_theirs)
def tgru(w: Any, x: Array, h: Array, past: Array) -> Any:
    f = sigmoid(gate(w, "f", x, past))
    h = f * h + gate(w, "z", x, past) * np.tanh(gate(w, "o", x, past))
    return h, (h, x)


@worked("tlstm")
def tlstm(w: Any, x: Array, c: Array, past: Array) -> Any:
    f = sigmoid(gate(w, "f", x, past))
    c = f * c + (1 - f) * gate(w, "z", x, past)
    return c * np.tanh(gate(w, "o", x, past)), (c, x)
