"""Minimal gated units."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, stacks, worked


def after(w: Any, f: Array, x: Array, h: Array) -> Any:
    """The step after the gate."""
    bias = w.bias_ih["g"] + (w.bias_hh["g"] if hasattr(w, "bias_hh") else 0)
    h = (1 - f) * h + f * np.tanh(w.weight_ih["g"] @ x + w.weight_hh["g"] @ (f * h) + bias)
    return h, (h,)


@worked("mgu", torchrecurrent="MGUCell", theirs=stacks("f g"))
def mgu(w: Any, x: Array, h: Array) -> Any:
    f = sigmoid(w.weight_ih["f"] @ x + w.weight_hh["f"] @ h + w.bias_ih["f"] + w.bias_hh["f"])
    return after(w, f, x, h)


@worked("mgu1")
def mgu1(w: Any, x: Array, h: Array) -> Any:
    return after(w, sigmoid(w.weight_hh["f"] @ h + w.bias_hh["f"]), x, h)


@worked("mgu2")
def mgu2(w: Any, x: Array, h: Array) -> Any:
    return after(w, sigmoid(w.weight_hh["f"] @ h), x, h)


@worked("mgu3")
def mgu3(w: Any, x: Array, h: Array) -> Any:
    return after(w, sigmoid(w.bias_f), x, h)
