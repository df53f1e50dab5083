"""Minion recurrent units."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, stacks, worked


def after(w: Any, r: Any, x: Array, h: Array, lambda_: float) -> Any:
    """The step after the reset gate."""
    n = np.tanh(w.weight_ih["n"] @ x + w.bias_ih["n"] + w.weight_hh["n"] @ (r * h) + w.bias_hh["n"])
    h = lambda_ * h + (1 - lambda_) * n
    return h, (h,)


@worked("miru1", torchrecurrent="MiRU1Cell", theirs=stacks("r n"))
@worked("miru1", torchrecurrent="MiRU1Cell", theirs=stacks("r n"), options={"update_coefficient": 0.9}, lambda_=0.9)
def miru1(w: Any, x: Array, h: Array, lambda_: float) -> Any:
    r = sigmoid(w.weight_ih["r"] @ x + w.bias_ih["r"] + w.weight_hh["r"] @ h + w.bias_hh["r"])
    return after(w, r, x, h, lambda_)


OTHER = {"update_coefficient": 0.9, "reset_coefficient": 0.2}


@worked("miru2", torchrecurrent="MiRU2Cell", theirs=stacks("n"))
@worked("miru2", torchrecurrent="MiRU2Cell", theirs=stacks("n"), options=OTHER, beta=0.2, lambda_=0.9)
def miru2(w: Any, x: Array, h: Array, beta: float, lambda_: float) -> Any:
    return after(w, beta, x, h, lambda_)
