"""Strongly typed networks, each gate of two inputs in succession: what it takes of the former is kept from the step before.
T-LSTM of torchrecurrent has the same equations, but gives its states back nested.
"""

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
    """Theirs has a bias for the former input too."""
    bias = stack(w.bias_ih, "z f o")
    weights = {"weight_ih": stack(w.weight_ih, "z f o"), "weight_hh": stack(w.weight_ih, "z_1 f_1 o_1")}
    return {**weights, "bias_ih": bias, "bias_hh": 0 * bias}


def gate(w: Any, name: str, x: Array, before: Array) -> Array:
    return before + w.weight_ih[name] @ x + w.bias_ih[name]


def kept(w: Any, x: Array) -> list[Array]:
    return [w.weight_ih[name] @ x for name in ("z_1", "f_1", "o_1")]


@worked("tgru", torchrecurrent="TGRUCell", theirs=tgru_theirs, ours=lambda w, h, past: (h, *kept(w, past)))
def tgru(w: Any, x: Array, h: Array, *before: Array) -> Any:
    z, f, o = (gate(w, name, x, b) for name, b in zip("zfo", before, strict=True))
    h = sigmoid(f) * h + z * np.tanh(o)
    return h, (h, *kept(w, x))


@worked("tlstm")
def tlstm(w: Any, x: Array, c: Array, *before: Array) -> Any:
    z, f, o = (gate(w, name, x, b) for name, b in zip("zfo", before, strict=True))
    c = sigmoid(f) * c + (1 - sigmoid(f)) * z
    return c * np.tanh(o), (c, *kept(w, x))
