"""Cells whose gates see an input and the one before it: over whole sequences, which begin with an input of zeros, against
convolutions of width 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anyrnn import cells
from anyrnn.numpy import Recurrent
from tests.budget import assert_relative
from tests.cells.worked import Array, by_gate, sigmoid


def convolved(w: Any, gate: str, x: Array) -> Array:
    """[T, N, H]"""
    filters = np.stack([w.weight_ih[f"{gate}_1"], w.weight_ih[gate]])  # [width, H, D]
    windows = np.stack([np.concatenate([0 * x[:1], x[:-1]]), x])  # [width, T, N, D]
    return np.einsum("khd,ktnd->tnh", filters, windows) + w.bias_ih[gate]


def pooled(kept: Array, added: Array) -> Array:
    """The sums c = kept * c + added of all steps."""
    c, sums = 0 * added[0], []
    for f, a in zip(kept, added, strict=True):
        c = f * c + a
        sums.append(c)
    return np.array(sums)


def of_gates(w: Any, x: Array, gates: str) -> list[Array]:
    return [convolved(w, gate, x) for gate in gates]


def qrnn_f(w: Any, x: Array) -> Array:
    z, f = of_gates(w, x, "zf")
    return pooled(sigmoid(f), (1 - sigmoid(f)) * np.tanh(z))


def qrnn_fo(w: Any, x: Array) -> Array:
    (o,) = of_gates(w, x, "o")
    return sigmoid(o) * qrnn_f(w, x)


def qrnn_ifo(w: Any, x: Array) -> Array:
    z, f, o, i = of_gates(w, x, "zfoi")
    return sigmoid(o) * pooled(sigmoid(f), sigmoid(i) * np.tanh(z))


def tgru(w: Any, x: Array) -> Array:
    z, f, o = of_gates(w, x, "zfo")
    return pooled(sigmoid(f), z * np.tanh(o))


def tlstm(w: Any, x: Array) -> Array:
    z, f, o = of_gates(w, x, "zfo")
    return pooled(sigmoid(f), (1 - sigmoid(f)) * z) * np.tanh(o)


@pytest.mark.parametrize("expected", [qrnn_f, qrnn_fo, qrnn_ifo, tgru, tlstm], ids=lambda f: f.__name__)
def test_gates_are_convolutions(expected: Callable[[Any, Array], Array]) -> None:
    layer = Recurrent(expected.__name__, 3, 4, backend="reference", dtype="float64", seed=1)
    x = np.random.default_rng(0).normal(size=(6, 2, 3))
    graph = cells.load(expected.__name__).trace()
    parameters = {p.name: layer.parameters[f"{p.name}_l0"] for p in graph.parameters}
    w = by_gate(graph, {"input": 3, "hidden": 4}, parameters)
    assert_relative(layer(x)[0], expected(w, x), "llvm float64 against the reference backend", expected.__name__)
