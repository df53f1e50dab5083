"""What is exported is read back, and gives the same bits."""

from __future__ import annotations

from pathlib import Path
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


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("of_classes", [False, True])
def test_a_network_with_lengths(batch_first: bool, of_classes: bool, tmp_path: Path) -> None:
    layers: list[runtime.Layer] = [runtime.Embedding("vectors", ["x"], numbers(9, D))] if of_classes else []
    layer = anyrnn.Recurrent("gru", D, H, bidirectional=True, batch_first=batch_first, seed=0)
    layers += [
        runtime.Recurrent.of("gru", [layers[0].name if layers else "x"], layer),
        runtime.Dense("scores", ["gru"], numbers(4, 2 * H), numbers(4)),
    ]
    network = runtime.Network(None if of_classes else D, layers)
    found = reading.read(export(network, lengths=True))
    sides, lengths = (N, T) if batch_first else (T, N), [T, 0, 3, 1]
    x: Any = np.random.default_rng(0).integers(9, size=sides) if of_classes else numbers(*sides, D)
    beyond = np.arange(T)[:, None] >= np.array(lengths)
    x[beyond.T if batch_first else beyond] = 1000 if of_classes else np.nan
    wanted = network.run(x, lengths=lengths)[0]
    np.testing.assert_allclose(next(iter(found.run({"x": x, "lengths": lengths}).values())), wanted, rtol=1e-5, atol=1e-6)
    steps_first = np.swapaxes(x, 0, 1) if batch_first else x
    by_network = found.network.run(steps_first, lengths=lengths)[0]
    np.testing.assert_allclose(np.swapaxes(by_network, 0, 1) if batch_first else by_network, wanted, rtol=1e-5, atol=1e-6)
    found.network.save(tmp_path / "network.safetensors")
    again = runtime.load(tmp_path / "network.safetensors")
    np.testing.assert_array_equal(again.run(steps_first, lengths=lengths)[0], by_network)
