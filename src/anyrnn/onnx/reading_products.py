"""Nodes that compute with all features of a step, or with all steps: each is a layer of the runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn import runtime
from anyrnn.onnx import reading_layers
from anyrnn.onnx.reading_arithmetic import formula, in_last, layer_of
from anyrnn.onnx.reading_file import Node
from anyrnn.onnx.reading_graph import Reading
from anyrnn.onnx.reading_shapes import Given, Handler, features, integers, needed, optional, reads
from anyrnn.onnx.reading_values import TIME, Axis, Part, Value
from anyrnn.runtime.layers import Layer

Array = npt.NDArray[Any]

PRODUCTS: dict[str, Handler] = {}


@reads("MatMul", table=PRODUCTS)
def _matmul(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    return [_dense(r, node, needed(given, 0), needed(given, 1).numbers.T, None)]


@reads("Gemm", table=PRODUCTS)
def _gemm(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    alpha, beta = node.number_of("alpha", 1.0), node.number_of("beta", 1.0)
    if node.flag("transA", False) or len(needed(given, 0).axes) != 2:
        raise ValueError("expected a matrix of features that is not transposed")
    matrix, shift = needed(given, 1).numbers, optional(given, 2)
    weight = matrix if node.flag("transB", False) else matrix.T
    scaled = weight if alpha == 1 else (weight * alpha).astype(weight.dtype)
    bias = None
    if shift is not None and weight.ndim == 2:
        array = shift.numbers
        if array.size not in (1, len(weight)) or array.ndim > 2 or (array.ndim == 2 and len(array) != 1):
            raise ValueError(f"expected a bias of {len(weight)} numbers, got shape {list(array.shape)}")
        bias = np.broadcast_to((array * beta).astype(array.dtype).reshape(-1), (len(weight),))
    return [_dense(r, node, needed(given, 0), scaled, bias)]


def _dense(r: Reading, node: Node, value: Value, weight: Array, bias: Array | None) -> Value:
    """weight: [features out, features in]."""
    value = r.settled(value)
    if weight.ndim != 2 or not weight.size or in_last(value) != weight.shape[1]:
        raise ValueError(f"expected a constant matrix for {in_last(value)} features, got shape {list(weight.T.shape)}")
    steps = r.has_steps(value)
    arrays = [np.ascontiguousarray(r.of_dtype(a)) if a is not None else None for a in (weight, bias)]
    assert arrays[0] is not None
    layer = runtime.Dense(r.named(node.outputs[0]), [r.feed(value.array.reshape(-1))], arrays[0], arrays[1])
    return Value((*value.settled_axes()[:-1], (len(weight),)), r.add(layer, len(weight), steps)).plain()


@reads("LayerNormalization", table=PRODUCTS)
def _layer_norm(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    value = r.settled(needed(given, 0))
    size = in_last(value)
    if value.axis(node.integer("axis", -1)) != len(value.axes) - 1 or node.integer("stash_type", 1) != 1:
        raise ValueError("it should be over the features, the last axis, with a stash_type of 1")
    shift = optional(given, 2)
    arrays = [None if v is None else r.of_dtype(v.numbers) for v in (needed(given, 1), shift)]
    if any(a is not None and a.shape != (size,) for a in arrays):
        raise ValueError(f"expected a scale and a bias of {size} numbers")
    epsilon = node.number_of("epsilon", 1e-5)
    assert epsilon is not None
    return [layer_of(r, node, value, lambda name, x: runtime.LayerNorm(name, [x], *arrays, epsilon=epsilon))]


@reads("BatchNormalization", table=PRODUCTS)
def _batch_norm(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    value, epsilon = needed(given, 0), node.number_of("epsilon", 1e-5)
    node.number_of("momentum", None)
    if node.flag("training_mode", False) or not node.flag("is_test", True) or len(value.axes) < 2:
        raise ValueError("expected its form for inference, of a value with channels")
    if len(value.axes) == 2:
        value = r.settled(value)
    else:  # what is behind the channels is no features
        value = features(r, value, 1)
        value.settled_axes()
    scale, shift, mean, variance = [r.of_dtype(needed(given, k).numbers) for k in (1, 2, 3, 4)]
    others = [part for place, parts in enumerate(value.axes) for part in parts if place != 1]
    channels = value.array.size
    if any(isinstance(p, Axis) for p in value.axes[1]) or any(isinstance(p, int) for p in others):
        raise ValueError(f"expected all features in axis 1, the channels, got {value.sizes}")
    if {a.shape for a in (scale, shift, mean, variance)} != {(channels,)}:
        raise ValueError(f"expected a scale, bias, mean and variance of {channels} numbers")
    weight = scale / np.sqrt(variance + variance.dtype.type(epsilon or 0))
    arrays = {"weight": weight, "bias": shift - mean * weight}
    return [formula(r, node, value, lambda v, weight, bias: v * weight + bias, **arrays)]


@reads("ReduceMean", "ReduceMax", "ReduceSum", table=PRODUCTS)
def _reduce(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    value, axes = needed(given, 0), integers(node, given, "axes", 1)
    keeps, nothing = node.flag("keepdims", True), node.flag("noop_with_empty_axes", False)
    if not axes and nothing:
        return [value]
    places = sorted({value.axis(k) for k in axes or range(len(value.axes))})
    value = r.settled(value)
    parts = [part for place in places for part in value.axes[place]]
    if [part.role for part in parts if isinstance(part, Axis)] == [TIME] and len(parts) == 1:
        columns = _over_steps(r, node, value)
    elif places == [len(value.axes) - 1] and node.op != "ReduceMax":
        share = 1 / in_last(value) if node.op == "ReduceMean" else 1.0
        columns = _dense(r, node, value, np.full((1, in_last(value)), share, r.dtype_of(value)), None).array
    else:
        raise ValueError(f"it should be over the steps or all features, it is over {[value.sizes[place] for place in places]}")
    left: list[tuple[Part, ...]] = [
        () if k in places else parts for k, parts in enumerate(value.settled_axes()) if keeps or k not in places
    ]
    return [Value(tuple(left), columns)]


def _over_steps(r: Reading, node: Node, value: Value) -> Array:
    flat = value.array.reshape(-1)
    name, dtype, source = r.named(node.outputs[0]), r.dtype_of(value), r.feed(flat)
    if not r.has_steps(value):
        raise ValueError("its input has no steps")
    layers: dict[str, Callable[[], Layer]] = {
        "ReduceMean": lambda: runtime.Mean(name, [source]),
        "ReduceMax": lambda: runtime.Max(name, [source]),
        "ReduceSum": lambda: reading_layers.sum_of_steps(name, source, flat.size, dtype),
    }
    return r.add(layers[node.op](), flat.size, steps=False).reshape(value.array.shape)
