"""Makes the files beside it: `python tests/files/golden/make.py keras` with Keras and a backend, or `... flax` with Flax."""

import os
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def keras_files() -> None:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    model = keras.Sequential([layers.Input((None, 1)), layers.GRU(2, name="only")])
    model.save(HERE / "tiny.keras")
    model.save(HERE / "tiny.h5")
    model.save_weights(HERE / "tiny.weights.h5")


def flax_files() -> None:
    import jax.numpy as jnp
    from flax import serialization

    dtypes = "float64 float32 float16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool complex64 complex128"
    arrays = {name: np.array([[0, 1, 0], [1, 1, 0]], name) for name in dtypes.split()}
    tree = {
        "params": {
            "OptimizedLSTMCell_0": {"ii": {"kernel": jnp.arange(6.0).reshape(2, 3)}, "hi": {"bias": jnp.zeros(3)}},
            "bfloat16": jnp.array([1.5, -2.0, 3e38], jnp.bfloat16),
            "empty": np.zeros((0, 3), np.float32),
            "scalar": np.float32(2.5),
            "none": np.array(7),
        },
        "dtypes": arrays,
        "step": 3,
        "many": [np.full(1, k, np.int8) for k in range(40)],
        "other": {
            "rate": 0.1,
            "big": 2**40,
            "negative": -5,
            "name": "x" * 50,
            "nothing": None,
            "flag": True,
            "c": 1j,
            "raw": b"a",
        },
    }
    (HERE / "tiny.msgpack").write_bytes(serialization.to_bytes(tree))


if __name__ == "__main__":
    {"keras": keras_files, "flax": flax_files}[sys.argv[1]]()
