"""What is exported is read back, and gives the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anyrnn
import anyrnn.backends
from anyrnn import runtime
from anyrnn.onnx import export, reading

T, N, D, H = 6, 4, 3, 5
CELLS = ["lstm", "lstm_coupled", "lstm_peephole", "gru", "gru_before", "rnn_relu", "rnn_tanh"]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anyrnn.backends, "why_not_native", lambda *_: "a test")


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_layer_with_states_and_lengths(cell: str, bidirectional: bool) -> None:
    layer = anyrnn.Recurrent(cell, D, H, 2, bidirectional=bidirectional, seed=0)
    found = reading.read(export(layer, states=True, lengths=True))
    x, lengths = numbers(T, N, D), np.array([T, 2, 4, 0])
    states = [numbers(*array.shape, seed=k) for k, array in enumerate(layer.initial_state(N).arrays)]
    arrays = iter(states)
    inputs = {}
    for port in found.inputs:
        whole = port.dtype.startswith("int")
        inputs[port.name] = lengths.astype(port.dtype) if whole else x if port.name == "x" else next(arrays)
    output, last = layer(x, states if len(states) > 1 else states[0], lengths=lengths)
    ours = list(found.run(inputs).values())
    for array, wanted in zip(ours, [output, *(last if len(states) > 1 else [last])], strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_a_network() -> None:
    layer = anyrnn.Recurrent("gru", D, H, bidirectional=True, seed=0)
    network = runtime.Network(
        D,
        [
            runtime.Recurrent("gru", ["x"], layer.network, layer.parameters),
            runtime.Dense("below", ["gru"], numbers(4, 2 * H), numbers(4)),
            runtime.Activation("relu", ["below"], "relu"),
            runtime.Concatenate("both", ["relu", "x"]),
            runtime.Max("max", ["both"]),
            runtime.Dense("above", ["max"], numbers(2, 4 + D)),
            runtime.Activation("classes", ["above"], "softmax"),
        ],
    )
    x = numbers(T, N, D)
    found = reading.read(export(network))
    array, *_ = found.run({port.name: x for port in found.inputs}).values()
    np.testing.assert_array_equal(array, network.run(x)[0])
