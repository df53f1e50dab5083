"""The built-in cells for tests of each: a few that differ in kind always run, the others in `make test-all`; and what a layer and
a call of each are given beside what every cell gets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anyrnn import cells
from anyrnn.sequence.network import Network

FEW = (
    *("gru", "gru_before", "indrnn", "lstm", "lstm_coupled", "lstm_layernorm", "lstm_peephole", "lstm_projected"),
    *("mgu", "rnn_relu", "rnn_tanh"),
)
EVERY = [pytest.param(name, id=name, marks=() if name in FEW else pytest.mark.slow) for name in cells.names()]


def sizes_of(cell: Any, size: int = 4) -> dict[str, int]:
    """The named sizes that a layer must be given, beside input and hidden."""
    return {name: size for name in cells.load(cell).trace().size_names if name not in ("input", "hidden")}


def input_size(cell: Any, inputs: int, width: int) -> int:
    """That of a layer's input: `inputs`, or `width`, that of the layer's output, where states or further per-step inputs have the
    input's size, which then is one for all layers.
    """
    graph = cells.load(cell).trace()
    shapes = [shape for _, shape in graph.inputs[1:]] + [state.shape for state in graph.states]
    return width if any("input" in dim.names for shape in shapes for dim in shape) else inputs


def further(network: Network, *sides: int, dtype: Any = np.float32, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """The per-step inputs beside the first, by name: numbers between 0 and 1, [*sides, features], so [T, N, features]."""
    random = np.random.default_rng([seed, *sides])
    return {name: random.uniform(size=(*sides, size)).astype(dtype) for name, size in network.further_inputs}
