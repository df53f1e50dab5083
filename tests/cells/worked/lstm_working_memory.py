"""LSTM with working memory connections."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, stack, worked
from tests.cells.worked.lstm import gate


def theirs(w: Any) -> dict[str, Array]:
    """Their biases of the cell state are zero in ours."""
    stacked = {name: stack(getattr(w, name), "i f g o") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    memory = stack(w.weight_ch, "i f o")
    return {**stacked, "weight_mh": memory, "bias_mh": np.zeros(len(memory))}


@worked("lstm_working_memory", torchrecurrent="WMCLSTMCell", theirs=theirs)
def lstm_working_memory(w: Any, x: Array, h: Array, c: Array) -> Any:
    i, f = (sigmoid(gate(w, name, x, h) + np.tanh(w.weight_ch[name] @ c)) for name in "if")
    c = f * c + i * np.tanh(gate(w, "g", x, h))
    h = sigmoid(gate(w, "o", x, h) + np.tanh(w.weight_ch["o"] @ c)) * np.tanh(c)
    return h, (h, c)
