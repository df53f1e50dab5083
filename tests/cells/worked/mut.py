"""The three mutations of the GRU."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, stack, stacks, worked


def of_x(w: Any, gate: str, x: Array) -> Array:
    return w.weight_ih[gate] @ x + w.bias_ih[gate]


def of_h(w: Any, gate: str, h: Array) -> Array:
    return w.weight_hh[gate] @ h + w.bias_hh[gate]


def theirs_mut1(w: Any) -> Any:
    of_x = {"weight_ih": stack(w.weight_ih, "z r n"), "bias_ih": stack(w.bias_ih, "z r n")}
    return {**of_x, "weight_hh": stack(w.weight_hh, "r n"), "bias_hh": stack(w.bias_hh, "r n")}


@worked("mut1", torchrecurrent="MUT1Cell", theirs=theirs_mut1)
def mut1(w: Any, x: Array, h: Array) -> Any:
    z, r = sigmoid(of_x(w, "z", x)), sigmoid(of_x(w, "r", x) + of_h(w, "r", h))
    h = np.tanh(of_h(w, "n", r * h) + np.tanh(of_x(w, "n", x))) * z + h * (1 - z)
    return h, (h,)


@worked("mut2", torchrecurrent="MUT2Cell", theirs=stacks("z r n"))
def mut2(w: Any, x: Array, h: Array) -> Any:
    z, r = (sigmoid(of_x(w, k, x) + of_h(w, k, h)) for k in "zr")
    h = np.tanh(of_h(w, "n", r * h) + of_x(w, "n", x)) * z + h * (1 - z)
    return h, (h,)


@worked("mut3", torchrecurrent="MUT3Cell", theirs=stacks("z r n"))
def mut3(w: Any, x: Array, h: Array) -> Any:
    z = sigmoid(of_x(w, "z", x) + of_h(w, "z", np.tanh(h)))
    r = sigmoid(of_x(w, "r", x) + of_h(w, "r", h))
    h = np.tanh(of_h(w, "n", r * h) + of_x(w, "n", x)) * z + h * (1 - z)
    return h, (h,)
