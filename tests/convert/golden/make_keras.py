"""Makes the golden files of Keras models: each a model as Keras saved it, compressed, and beside it inputs with what Keras gave.

    pip install keras==3.15.1 torch==2.13.0 h5py && KERAS_BACKEND=torch python make_keras.py
    pip install keras==2.15.0 tensorflow-cpu==2.15.1 && python make_keras.py

The second writes the files of Keras 2, whose configs are different, and whose `hard_sigmoid` is another function.
"""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np

HERE = Path(__file__).parent
layers = keras.layers


def model_of_keras_2() -> Any:
    words, more = keras.Input((None,), name="words"), keras.Input((None, 3), name="more")
    joined = layers.Concatenate(name="joined")([layers.Embedding(7, 4, name="embedding")(words), more])
    options = {"recurrent_activation": "hard_sigmoid", "return_sequences": True}
    both = layers.Bidirectional(layers.GRU(3, reset_after=False, **options), merge_mode="ave", name="both")(joined)
    leaky = layers.TimeDistributed(layers.LeakyReLU(alpha=0.2), name="leaky")(layers.Dense(4, name="dense")(both))
    stack = layers.RNN([layers.LSTMCell(3), layers.GRUCell(2), layers.LSTMCell(4)], name="stack")(leaky)
    return keras.Model([words, more], layers.Dense(5, activation="softmax", name="output")(stack))


def sequential_of_keras_2() -> Any:
    body = [
        layers.SimpleRNN(4, return_sequences=True, name="lower"),
        layers.LSTM(3, recurrent_activation="hard_sigmoid", name="upper"),
    ]
    return keras.Sequential(
        [*body[:1], layers.Dropout(0.5, name="dropped"), *body[1:], layers.Dense(2, activation="elu", name="output")]
    )


def model_of_keras_3() -> Any:
    words, more = keras.Input((None,), name="words", dtype="int32"), keras.Input((None, 3), name="more")
    joined = layers.Concatenate(name="joined")([layers.Embedding(7, 4, name="embedding")(words), more])
    options = {"recurrent_activation": "hard_sigmoid", "return_sequences": True}
    both = layers.Bidirectional(layers.GRU(3, dropout=0.1, **options), name="both")(joined)
    normed = layers.BatchNormalization(name="batch")(layers.LayerNormalization(name="normed")(both))
    stack = layers.RNN([layers.LSTMCell(3), layers.GRUCell(2), layers.LSTMCell(4)], name="stack")(normed)
    return keras.Model([words, more], layers.Dense(5, activation="softmax", name="output")(stack))


def write(name: str, model: Any, given: dict[str, np.ndarray]) -> None:
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(tuple(w.shape)).astype("float32") for w in model.weights]
    model.set_weights([np.abs(a) if "variance" in w.name else a for a, w in zip(arrays, model.weights, strict=True)])
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / name)
        (HERE / f"{name}.gz").write_bytes(gzip.compress((Path(folder) / name).read_bytes(), mtime=0))
    inputs = [*given.values()] if len(given) > 1 else next(iter(given.values()))
    np.savez_compressed(HERE / f"{name}.npz", **given, expected=model.predict(inputs, verbose=0))


def main() -> None:
    random = np.random.default_rng(1)
    given = {"words": random.integers(0, 7, (3, 5)), "more": random.standard_normal((3, 5, 3)).astype("float32")}
    if keras.__version__.startswith("2"):
        write("keras2.h5", model_of_keras_2(), given)
        write("keras2.keras", model_of_keras_2(), given)
        sequential = sequential_of_keras_2()
        sequential.build((None, None, 3))
        write("keras2_sequential.h5", sequential, {"more": given["more"]})
    else:
        write("keras3.keras", model_of_keras_3(), given)


if __name__ == "__main__":
    main()
