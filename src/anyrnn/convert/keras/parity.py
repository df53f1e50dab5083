"""A converted network beside Keras itself."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from anyrnn.convert.keras.maker import Array
from anyrnn.convert.report import SIZES, Parity, compared, drawn, run
from anyrnn.errors import MissingExtraError
from anyrnn.runtime.network import Network


def parity(source: Any, network: Network, *, seed: int = 0) -> Parity:
    """How far a network is from the Keras model that it was made of, on random inputs.

    Args:
        source: the model, or the path of a file that holds a whole one.
        network: what `network` or `load` made of it.
        seed: of the inputs.

    Raises: MissingExtraError where Keras is not installed; ValueError for networks of float64, beside which nothing is exact,
    and for files that Keras itself cannot load.
    """
    _choose_backend()
    try:
        keras: Any = importlib.import_module("keras")
    except ImportError as error:
        why = f"Keras cannot be imported ({error}): it needs one of its backends, which KERAS_BACKEND names"
        raise MissingExtraError(f"{why}; pip install keras torch") from error
    if network.dtype != np.float32:
        raise ValueError(f"a network of {network.dtype} has no parity: Keras has nothing more exact to compare with")
    if isinstance(source, (str, os.PathLike)):
        try:
            source = keras.saving.load_model(source, compile=False)
        except Exception as error:  # noqa: BLE001 - of a kind of its own for each cause, such as layers that Keras does not know
            raise ValueError(f"{source}: Keras cannot load it: {error}") from None
    backend = keras.backend.backend()
    sizes = dict.fromkeys(_size(source, *size) for size in SIZES)
    calls = [drawn(network, rows, steps, seed + k) for k, (rows, steps) in enumerate(sizes)]
    ours = [result for call in calls for result in run(network, call)]
    theirs = [result for call in calls for result in _run(keras, source, call)]
    with _doubles(backend):
        twin = _in_float64(keras, source)
        exact = [result.astype(np.float64) for call in calls for result in _run(keras, twin, call)]
    return compared(f"keras {keras.__version__} ({backend})", network, calls, ours, theirs, exact)


def _choose_backend() -> None:
    """Keras takes TensorFlow unless it is told otherwise; where that is not installed, another one."""
    there = [name for name in ("tensorflow", "torch", "jax") if importlib.util.find_spec(name) is not None]
    if "keras" not in sys.modules and there and "tensorflow" not in there:
        os.environ.setdefault("KERAS_BACKEND", there[0])


def _size(model: Any, rows: int, steps: int) -> tuple[int, int]:
    """Samples and steps of a call, where the model does not fix them."""
    shape = model.inputs[0].shape
    return shape[0] or rows, shape[1] or steps


def _run(keras: Any, model: Any, given: Mapping[str, Array]) -> list[Array]:
    """A model's results in order."""
    for layer in model.layers:
        if getattr(layer, "stateful", False):
            layer.reset_states()
    dtypes = [tensor.dtype for tensor in model.inputs]
    inputs = [keras.ops.convert_to_tensor(a, dtype) for a, dtype in zip(given.values(), dtypes, strict=True)]
    results = keras.tree.flatten(model(inputs if len(inputs) > 1 else inputs[0], training=False))
    return [np.asarray(keras.ops.convert_to_numpy(result)) for result in results]


def _doubles(backend: str) -> AbstractContextManager[Any]:
    """Where float64 is float64: JAX makes float32 of it unless told otherwise."""
    if backend != "jax":
        return nullcontext()
    import jax  # which is Keras's backend here

    of_jax: Any = jax if hasattr(jax, "enable_x64") else jax.experimental
    doubles: AbstractContextManager[Any] = of_jax.enable_x64(True)
    return doubles


def _in_float64(keras: Any, model: Any) -> Any:
    """The same model in float64."""
    own = {type(layer).__name__: type(layer) for layer in model.layers if not type(layer).__module__.startswith("keras.")}
    twin = type(model).from_config(_doubled(model.get_config()), custom_objects=own)
    twin.set_weights([np.asarray(keras.ops.convert_to_numpy(w), np.float64) for w in model.weights])
    return twin


def _doubled(config: Any) -> Any:
    """A config, with float64 in the place of other floating-point dtypes."""
    if isinstance(config, dict):
        return {key: "float64" if key == "dtype" and _is_float(value) else _doubled(value) for key, value in config.items()}
    return [_doubled(value) for value in config] if isinstance(config, list) else config


def _is_float(dtype: Any) -> bool:
    return isinstance(dtype, dict) or (isinstance(dtype, str) and "float" in dtype)
