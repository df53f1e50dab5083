"""FastRNN and FastGRNN."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, worked


def products(w: Any, x: Array, h: Array, rank_w: int, rank_u: int) -> Array:
    W = w.weight_wh["n"] @ w.weight_ih["w"] if rank_w else w.weight_ih["n"]
    U = w.weight_uh["n"] @ w.weight_hh["u"] if rank_u else w.weight_hh["n"]
    product: Array = W @ x + U @ h
    return product


def of_fastrnn(w: Any) -> Any:
    stacked = {name: value["n"] for name, value in vars(w).items() if isinstance(value, dict)}
    return {**stacked, "alpha": np.reshape(w.alpha, 1), "beta": np.reshape(w.beta, 1)}


@worked("fastrnn", "FastRNNCell", {}, of_fastrnn)
@worked("fastrnn", rank_w=1, rank_u=2)
def fastrnn(w: Any, x: Array, h: Array, rank_w: int, rank_u: int) -> Any:
    b = (w.bias_wh if rank_w else w.bias_ih)["n"] + (w.bias_uh if rank_u else w.bias_hh)["n"]
    h = sigmoid(w.beta) * h + sigmoid(w.alpha) * np.tanh(products(w, x, h, rank_w, rank_u) + b)
    return h, (h,)


def of_fastgrnn(w: Any) -> Any:
    biases = {"bias_ih": np.concatenate([w.bias_z, w.bias_n]), "bias_hh": np.zeros(2 * len(w.bias_z))}
    numbers = {"zeta": np.reshape(w.zeta, 1), "nu": np.reshape(w.nu, 1)}
    return {"weight_ih": w.weight_ih["n"], "weight_hh": w.weight_hh["n"], **biases, **numbers}


@worked("fastgrnn", "FastGRNNCell", {"nonlinearity": "sigmoid"}, of_fastgrnn)
@worked("fastgrnn", rank_w=1, rank_u=2)
def fastgrnn(w: Any, x: Array, h: Array, rank_w: int, rank_u: int) -> Any:
    both = products(w, x, h, rank_w, rank_u)
    z = sigmoid(both + w.bias_z)
    h = (sigmoid(w.zeta) * (1 - z) + sigmoid(w.nu)) * np.tanh(both + w.bias_n) + z * h
    return h, (h,)
