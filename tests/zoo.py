"""The built-in cells for tests of each: a few that differ in kind always run, the others in `make test-all`; and what a layer and
a call of each are given beside what every cell gets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from anyrnn import cells
from anyrnn.sequence.network import Network

FEW = (
    *("cfc", "clockwork", "echo_state", "gru", "gru_before", "indrnn", "lru", "lstm", "lstm_heads", "lstm_layernorm"),
    *("lstm_projected", "rnn_relu", "rnn_tanh"),
)
"""With them come further inputs and sizes, scalar states, parameters that are not trained or that only others are made of, no
product with a state, products before and after others, blocks, norms, comparisons, and the cells that torch has.
"""
QUICK = ("echo_state", "gru_before", "indrnn", "lru", "lstm", "lstm_heads", "lstm_layernorm", "rnn_tanh")
"""Of these the ones that `make test` takes where it takes every cell."""
EVERY = [pytest.param(name, id=name, marks=() if name in QUICK else pytest.mark.slow) for name in cells.names()]

Array = np.ndarray[Any, np.dtype[Any]]


def sizes_of(cell: Any, size: int = 4, hidden: int = 1) -> dict[str, int]:
    """The named sizes that a layer must be given, beside input and hidden; and for cells of several heads as few as divide the
    hidden size.
    """
    cell = cells.load(cell)
    named = {name: size for name in cell.trace().size_names if name not in ("input", "hidden")}
    heads = next((k for k in range(2, hidden + 1) if hidden % k == 0), 1)
    return named | ({"heads": heads} if heads > 1 and "heads" in dict(cell.signature.hypers) else {})


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


OCCURRING: dict[str, Callable[[dict[str, Array]], dict[str, Array]]] = {
    "clockwork": lambda s: {"t": np.floor(9 * np.abs(s["t"]))},
    "lstm_phased": lambda s: {"t": np.floor(9 * np.abs(s["t"]))},
    # weights of which one is 1, and averages times their sum
    "rwkv4": lambda s: {"a": (1 + np.abs(s["b"])) * s["a"], "b": 1 + np.abs(s["b"])},
    "slstm": lambda s: {"c": (1 + np.abs(s["n"])) * np.tanh(s["c"]), "n": 1 + np.abs(s["n"])},
}


def occurring(cell: Any, states: Mapping[str, Array]) -> dict[str, Array]:
    """States that a cell's equations can give, from any numbers: steps are counted, and normalisers are not near zero."""
    name = cell.name if cell.name in OCCURRING and cells.load(cell.name) is cell else ""
    return {**states, **(OCCURRING[name]({**states}) if name else {})}
