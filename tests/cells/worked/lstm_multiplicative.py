"""The multiplicative LSTM."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, stack, worked


def theirs(w: Any) -> dict[str, Array]:
    """Their biases of both factors of m are zero in ours."""
    zero = np.zeros_like(w.bias_mh["i"])
    return {
        "weight_ih": stack(w.weight_ih, "m i f h o"),
        "weight_hh": w.weight_hh["m"],
        "weight_mh": stack(w.weight_mh, "i f h o"),
        "bias_ih": np.concatenate([zero, stack(w.bias_ih, "i f h o")]),
        "bias_hh": zero,
        "bias_mh": stack(w.bias_mh, "i f h o"),
    }


@worked("lstm_multiplicative", torchrecurrent="MultiplicativeLSTMCell", theirs=theirs)
def lstm_multiplicative(w: Any, x: Array, h: Array, c: Array) -> Any:
    m = (w.weight_ih["m"] @ x) * (w.weight_hh["m"] @ h)
    h_hat, i, f, o = (w.weight_ih[k] @ x + w.bias_ih[k] + w.weight_mh[k] @ m + w.bias_mh[k] for k in "hifo")
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(h_hat)
    h = np.tanh(c) * sigmoid(o)
    return h, (h, c)
