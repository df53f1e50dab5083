"""Antisymmetric networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked

CONSTANTS = {"epsilon": 0.1, "gamma": 0.01}


def theirs(w: Any) -> Any:
    """As many recurrent biases as we have none of."""
    weight_ih, bias_ih = ([*v.values()] if isinstance(v, dict) else [v] for v in (w.weight_ih, w.bias_ih))
    none = np.zeros(len(w.W))
    return {"weight_ih": np.concatenate(weight_ih), "bias_ih": np.concatenate(bias_ih), "weight_hh": w.W, "bias_hh": none}


@worked("antisymmetric_rnn", "AntisymmetricRNNCell", CONSTANTS, theirs)
def antisymmetric_rnn(w: Any, x: Array, h: Array, epsilon: float, gamma: float) -> Any:
    turn = w.W - w.W.T - gamma * np.eye(len(w.W))
    h = h + epsilon * np.tanh(turn @ h + w.weight_ih["h"] @ x + w.bias_ih["h"])
    return h, (h,)


@worked("gated_antisymmetric_rnn", "GatedAntisymmetricRNNCell", CONSTANTS, theirs)
def gated_antisymmetric_rnn(w: Any, x: Array, h: Array, epsilon: float, gamma: float) -> Any:
    turn = w.W - w.W.T - gamma * np.eye(len(w.W))
    z = sigmoid(turn @ h + w.weight_ih["z"] @ x + w.bias_ih["z"])
    h = h + epsilon * z * np.tanh(turn @ h + w.weight_ih["h"] @ x + w.bias_ih["h"])
    return h, (h,)
