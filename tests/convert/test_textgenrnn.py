"""textgenrnn's trained network: its file has weights of Keras 2's layers for cuDNN, and no config."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anyrnn import files, runtime
from anyrnn.convert.keras import load

Shared = Callable[[str], Path]
STEPS, CHARACTERS, UNITS = 40, 465, 128


def config(kind: str) -> dict[str, Any]:
    """The model as textgenrnn's `model.py` builds it."""

    def layer(class_name: str, name: str, *given: str, **settings: Any) -> dict[str, Any]:
        nodes = [[[source, 0, 0, {}] for source in given]] if given else []
        return {"class_name": class_name, "name": name, "config": {"name": name, **settings}, "inbound_nodes": nodes}

    recurrent = {"units": UNITS, "return_sequences": True}
    if kind == "LSTM":  # which textgenrnn takes where there is no GPU
        recurrent |= {"activation": "tanh", "recurrent_activation": "sigmoid"}
    layers = [
        layer("InputLayer", "input", batch_input_shape=[None, STEPS]),
        layer("Embedding", "embedding", "input", input_dim=CHARACTERS, output_dim=100),
        layer(kind, "rnn_1", "embedding", **recurrent),
        layer(kind, "rnn_2", "rnn_1", **recurrent),
        layer("Concatenate", "rnn_concat", "embedding", "rnn_1", "rnn_2", axis=-1),
        layer("AttentionWeightedAverage", "attention", "rnn_concat"),
        layer("Dense", "output", "attention", units=CHARACTERS, activation="softmax"),
    ]
    model = {"name": "textgenrnn", "layers": layers, "input_layers": [["input", 0, 0]], "output_layers": [["output", 0, 0]]}
    return {"class_name": "Model", "config": model}


@pytest.fixture(scope="module")
def weights(shared: Shared) -> Path:
    return shared("checkpoints/textgenrnn/textgenrnn_weights.hdf5")


@pytest.fixture(scope="module")
def network(weights: Path) -> runtime.Network:
    return load(weights, config=config("CuDNNLSTM"))


@pytest.fixture(scope="module")
def windows(shared: Shared) -> np.ndarray[Any, Any]:
    """Characters of real text [.., 41], the last of which is to be told by those before it: 1 to 40, after zeros."""
    vocabulary = json.loads(shared("checkpoints/textgenrnn/textgenrnn_vocab.json").read_text(encoding="utf-8"))
    text = " ".join(shared("data/text/tiny_shakespeare.txt").read_text(encoding="utf-8")[:40_000].split())
    found = np.zeros((240, STEPS + 1), np.int64)
    for row, characters in enumerate(found):
        start, length = 97 * row, 2 + row % STEPS
        characters[-length:] = [vocabulary[c] for c in text[start : start + length]]
    return found


def test_the_file_has_the_network(network: runtime.Network) -> None:
    assert [layer.network.graph.name for layer in network.recurrent.values()] == ["lstm", "lstm"]
    assert str(network.specs["rnn_concat"]) == "[T, N, 356]"
    assert str(network.specs["output"]) == "[N, 465]"


def test_it_tells_the_next_character(network: runtime.Network, windows: np.ndarray[Any, Any]) -> None:
    """Which it would not if gates, transposes or biases were others than those that it was trained with."""
    longer = windows[np.count_nonzero(windows, axis=1) > 20]
    chances = network.run(longer[:, :-1])[0]
    assert np.mean(chances.argmax(-1) == longer[:, -1]) > 0.4


def test_layers_for_cudnn_are_told_by_their_biases(weights: Path, network: runtime.Network, windows: Any) -> None:
    """Keras 2 reads the same file into layers of both classes."""
    other = load(weights, config=config("LSTM"))
    assert np.array_equal(other.run(windows[:5, :-1])[0], network.run(windows[:5, :-1])[0])


def by_hand(kernel: Any, recurrent: Any, bias: Any) -> list[np.ndarray[Any, Any]]:
    """A CuDNNLSTM's arrays as an LSTM's."""
    kernels = [k.T.reshape(k.shape, order="F") for k in np.split(kernel, 4, 1)]
    recurrents = [k.T for k in np.split(recurrent, 4, 1)]
    return [np.concatenate(kernels, 1), np.concatenate(recurrents, 1), np.split(bias, 2)[0] + np.split(bias, 2)[1]]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_its_probabilities_are_those_of_keras(weights: Path, network: runtime.Network, windows: np.ndarray[Any, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_BACKEND", "torch")
        keras = pytest.importorskip("keras")

    class AttentionWeightedAverage(keras.layers.Layer):  # type: ignore[misc,name-defined]
        def build(self, shape: Any) -> None:
            self.W = self.add_weight(shape=(shape[-1], 1), name="attention_W")

        def call(self, x: Any) -> Any:
            scores = keras.ops.matmul(x, self.W)[..., 0]
            e = keras.ops.exp(scores - keras.ops.max(scores, -1, keepdims=True))
            shares = e / (keras.ops.sum(e, 1, keepdims=True) + keras.config.epsilon())
            return keras.ops.sum(x * shares[..., None], 1)

    layers, x = keras.layers, keras.Input((STEPS,), dtype="int32")
    embedded = layers.Embedding(CHARACTERS, 100, name="embedding")(x)
    first = layers.LSTM(UNITS, return_sequences=True, name="rnn_1")(embedded)
    second = layers.LSTM(UNITS, return_sequences=True, name="rnn_2")(first)
    average = AttentionWeightedAverage(name="attention")(layers.Concatenate()([embedded, first, second]))
    model = keras.Model(x, layers.Dense(CHARACTERS, activation="softmax", name="output")(average))
    for name, arrays in files.keras.read(weights).layers.items():
        found = [array for _, array in arrays]
        if found:
            model.get_layer(name).set_weights(by_hand(*found) if name.startswith("rnn") else found)
    expected = keras.ops.convert_to_numpy(model(windows[:, :-1].astype(np.int32)))
    assert np.abs(network.run(windows[:, :-1])[0] - expected).max() < 1e-5
