"""What stands for each of Keras's layers in the runtime: one short function a layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from anyrnn.convert.keras import recurrent
from anyrnn.convert.keras.functions import LAYERS as FUNCTIONS
from anyrnn.convert.keras.functions import LINEAR, function, of_layer
from anyrnn.convert.keras.graph import INPUT, Described
from anyrnn.convert.keras.maker import Handler, Maker, only, refuse
from anyrnn.runtime import layers as runtime
from anyrnn.runtime.layers import Spec, elementwise
from anyrnn.runtime.network import Input

EPSILON = 1e-7
"""What Keras adds to divisors."""


def _input(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    data = layer.config.data
    shape = data.get("batch_shape") or data.get("batch_input_shape")
    sides = shape[1:] if isinstance(shape, list) else []
    size = sides[1] if len(sides) == 2 else None
    if len(sides) not in (1, 2) or (len(sides) == 2 and type(size) is not int):
        raise ValueError(f"{layer}: expected a sequence of a known number of features, or of integers, got the shape {shape}")
    maker.inputs.append(Input(name, size))
    maker.specs[name] = Spec(size)
    return [name]


# of each step by itself


def _dense(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    made = function(layer.config.data.get("activation"), maker.keras2, str(layer))
    kernel, *bias = maker.arrays(layer, "kernel", *(["bias"] if layer.config.of("use_bias", bool, True) else []))
    weight = np.ascontiguousarray(kernel.T)
    product = name if made is LINEAR else f"{name}/product"
    maker.put(runtime.Dense(product, [only(layer, given)], weight, *bias, backend=maker.backend))
    return [maker.activation(name, product, made)]


def _embedding(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    return [maker.put(runtime.Embedding(name, [only(layer, given)], *maker.arrays(layer, "embeddings")))]


def _activation(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    made = function(layer.config.data.get("activation"), maker.keras2, str(layer))
    return [maker.activation(name, only(layer, given), made)]


def _function(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    return [maker.activation(name, only(layer, given), of_layer(layer.kind, layer.config))]


def _softmax(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    _check_axis(maker, layer, only(layer, given))
    return [maker.put(runtime.Activation(name, given, "softmax"))]


def _layer_norm(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    _check_axis(maker, layer, only(layer, given))
    refuse(layer, "rms_scaling")
    scale, centre = (layer.config.of(key, bool, True) for key in ("scale", "center"))
    arrays = iter(maker.arrays(layer, *["gamma"][:scale], *["beta"][:centre]))
    weight, bias = next(arrays) if scale else None, next(arrays) if centre else None
    return [maker.put(runtime.LayerNorm(name, given, weight, bias, epsilon=layer.config.of("epsilon", float)))]


def _batch_norm(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    """With the statistics of training it multiplies each feature and adds to it."""
    _check_axis(maker, layer, only(layer, given))
    scale, centre = (layer.config.of(key, bool, True) for key in ("scale", "center"))
    arrays = maker.arrays(layer, *["gamma"][:scale], *["beta"][:centre], "moving_mean", "moving_variance")
    if any(array.shape != (maker.size(given[0]),) for array in arrays):
        raise ValueError(f"{layer}: expected {maker.size(given[0])} features, got arrays of {[array.shape for array in arrays]}")
    mean, variance = (array.astype(np.float64) for array in arrays[-2:])
    weight = (arrays[0] if scale else 1.0) / np.sqrt(variance + layer.config.of("epsilon", float))
    bias = (arrays[scale] if centre else 0.0) - mean * weight
    found = {"weight": weight.astype(arrays[0].dtype), "bias": bias.astype(arrays[0].dtype)}
    scaled = elementwise(name, given[0], maker.size(given[0]), lambda v, w, b: v * w + b, backend=maker.backend, **found)
    return [maker.put(scaled)]


def _nothing(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    """Of calls that do not train."""
    return [only(layer, given)]


def _time_distributed(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    inner = layer.inner("layer")
    if inner.kind not in OF_STEPS or not maker.specs[only(layer, given)].steps:
        raise ValueError(f"{layer}: expected a sequence, and one of the layers {', '.join(OF_STEPS)}, got {inner.kind}")
    return HANDLERS[inner.kind](maker, Described(inner.kind, layer.name, inner.config, depth=1), name, given)


# of several results


def _add(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    return [maker.put(runtime.Add(name, given))]


def _multiply(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    return [maker.put(runtime.Multiply(name, given))]


def _average(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    total = maker.put(runtime.Add(f"{name}/sum", given))
    return [maker.put(elementwise(name, total, maker.size(total), lambda v: v / len(given), backend=maker.backend))]


def _concatenate(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    for one in given:
        _check_axis(maker, layer, one)
    return [maker.put(runtime.Concatenate(name, given))]


# over all steps


def _check_pooling(layer: Described) -> None:
    refuse(layer, "keepdims")
    if layer.config.data.get("data_format") not in (None, "channels_last"):
        raise ValueError(f"{layer}: data_format={layer.config.data['data_format']!r} cannot be converted")


def _mean(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    _check_pooling(layer)
    return [maker.put(runtime.Mean(name, given))]


def _max(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    _check_pooling(layer)
    return [maker.put(runtime.Max(name, given))]


def _attention(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    """The layer of this name that DeepMoji and textgenrnn have: Felbo et al. 2017, arXiv 1708.00524."""
    refuse(layer, "return_attention")
    (weight,) = maker.arrays(layer, "W")
    if weight.ndim != 2 or weight.shape[1] != 1:
        raise ValueError(f"{layer}: expected a weight [features, 1], got {weight.shape}")
    return [maker.put(runtime.AttentionAverage(name, given, weight[:, 0].copy(), epsilon=EPSILON))]


def _check_axis(maker: Maker, layer: Described, given: str) -> None:
    """Features alone can be meant."""
    axis: Any = layer.config.data.get("axis", -1)
    last = 1 + maker.specs[given].steps - layer.depth
    if (axis if isinstance(axis, list) else [axis]) not in ([-1], [last]):
        raise ValueError(f"{layer}: axis {axis} is not that of the features, which is {last} or -1")


OF_STEPS: dict[str, Handler] = {
    "Dense": _dense,
    "Activation": _activation,
    **dict.fromkeys(FUNCTIONS, _function),
    "Softmax": _softmax,
    "LayerNormalization": _layer_norm,
    "BatchNormalization": _batch_norm,
    **dict.fromkeys(
        ("Dropout", "SpatialDropout1D", "GaussianNoise", "GaussianDropout", "AlphaDropout", "ActivityRegularization", "Identity"),
        _nothing,
    ),
}
HANDLERS: dict[str, Handler] = {
    INPUT: _input,
    "Embedding": _embedding,
    **recurrent.LAYERS,
    **OF_STEPS,
    "TimeDistributed": _time_distributed,
    "Add": _add,
    "Multiply": _multiply,
    "Average": _average,
    "Concatenate": _concatenate,
    "GlobalAveragePooling1D": _mean,
    "GlobalMaxPooling1D": _max,
    "AttentionWeightedAverage": _attention,
}
"""By the class's name."""
