"""Whole Keras models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from anyrnn.convert.keras.graph import INPUT, Tensor, model
from anyrnn.convert.keras.layers import HANDLERS
from anyrnn.convert.keras.maker import Maker, Weights
from anyrnn.files import keras
from anyrnn.runtime.network import Network

LENGTHS = (
    "; where masked steps are at the ends of samples alone, build the model without it and call the network with their lengths"
)
HINTS = {
    "Masking": LENGTHS,
    **dict.fromkeys(("Functional", "Model", "Sequential"), ", a model within the model; put its layers into the outer one"),
    **dict.fromkeys(("Lambda", "TFOpLambda", "SlicingOpLambda"), ", which is code and not a description"),
}


def network(config: Any, weights: Weights, *, backend: str = "auto", version: str | None = None) -> Network:
    """The network of a Keras model; its sequences are [N, T, features], as in Keras. Layers have the names that they have in the
    model. What a layer does in training alone (dropout, noise, regularisation) and the states that `stateful` ones keep are left
    out: states are given to and by calls.

    Args:
        config: of a Sequential or a Functional model of Keras 2 or 3: what `model.get_config()` gives, or the JSON of a file.
        weights: by the names of layers their arrays with names, as `anyrnn.files.keras.read` gives them; of a model in memory
            `{layer.name: [(w.path, w.numpy()) for w in layer.weights]}`.
        backend: as of `anyrnn.Recurrent`.
        version: of the Keras that wrote the config; some functions are others in Keras 2. If it is not told, what layers say of
            their input's shape tells.

    Raises: ValueError for what is not in `layers.HANDLERS`, or is used in a way that the runtime does not know, naming the layer.
    """
    described = model(config, version)
    for masked in [call.layer for call in described.calls if call.layer.config.data.get("mask_zero")]:
        raise ValueError(f"{masked}: mask_zero=True cannot be converted{LENGTHS}")
    unknown = {str(call.layer): HINTS.get(call.layer.kind, "") for call in described.calls if call.layer.kind not in HANDLERS}
    if unknown:
        told = "; ".join([f"{layer} cannot be converted{hint}" for layer, hint in unknown.items()])
        raise ValueError(f"{told}; what can be: {', '.join(HANDLERS)}")
    names = {call.layer.name for call in described.calls}
    if others := [name for name, arrays in weights.items() if arrays and name not in names]:
        raise ValueError(f"arrays of layers that are not in the config: {', '.join(others[:5])}")
    maker = Maker(weights, described.keras2, backend)
    for call in described.calls:
        if call.others:
            raise ValueError(f"{call.layer}: it is given {', '.join(call.others)}, which cannot be converted; inputs alone can")
        given = [maker.result(str(call.layer), tensor) for tensor in call.given]
        for number, name in enumerate(HANDLERS[call.layer.kind](maker, call.layer, call.name, given)):
            maker.results[Tensor(call.layer.name, call.number, number)] = name
    order = [maker.result("config.input_layers", tensor) for tensor in described.inputs]
    if sorted(order) != sorted(given.name for given in maker.inputs):
        raise ValueError(f"config.input_layers: expected each {INPUT} once, got {', '.join(order) or 'none'}")
    inputs = sorted(maker.inputs, key=lambda given: order.index(given.name))
    outputs = [maker.result("config.output_layers", tensor) for tensor in described.outputs]
    return Network(inputs, maker.layers, outputs, batch_first=True)


def load(source: str | os.PathLike[str] | bytes, *, config: Any = None, backend: str = "auto") -> Network:
    """The network of a Keras model in a file, which is read without Keras: `.keras`, `.h5`, or with a config `.weights.h5` too.

    Args:
        source: a path, or the bytes of a file.
        config: as of `network`; by default what the file has.
        backend: as of `anyrnn.Recurrent`.

    Raises: OSError; ValueError as `network`, and for files that are damaged.
    """
    saved = keras.read(source)
    name = "the bytes" if isinstance(source, bytes) else str(Path(source))
    version = saved.metadata.get("keras_version") if config is None else None
    config = saved.config if config is None else config
    if config is None:
        raise ValueError(f"{name}: arrays without the model's config; give config=model.get_config(), or save the whole model")
    try:
        return network(config, saved.layers, backend=backend, version=version if isinstance(version, str) else None)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
