"""Layers of networks at run time as nodes of an ONNX graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anyrnn import runtime
from anyrnn.errors import UnsupportedError
from anyrnn.numpy import parameters as of_layers
from anyrnn.onnx.writing_network import Lengths, Nodes, weights_of, write_recurrent
from anyrnn.onnx.writing_nodes import Writer
from anyrnn.onnx.writing_steps import Steps
from anyrnn.runtime.layer import Spec


@dataclass
class Call:
    """What layers of one graph share: how long samples are, the states before, by layer, and those after."""

    lengths: Lengths | None
    before: Mapping[str, Sequence[str]]
    nodes: Nodes
    after: dict[str, list[str]] = field(default_factory=dict)


def write_layer(writer: Writer, layer: runtime.Layer, call: Call, specs: Sequence[Spec], given: Sequence[str]) -> str:
    """Append a layer's nodes to a graph. `given`: the values of its inputs, of these specs. Returns: that of its result."""
    write: Callable[..., str] | None = LAYERS.get(layer.kind)
    if write is None:
        raise UnsupportedError(f"export: {layer.name}, a {type(layer).__name__}, has no nodes in ONNX")
    return write(writer, layer, call, specs, *given)


def _recurrent(writer: Writer, layer: runtime.Recurrent, call: Call, specs: Any, *given: str) -> str:
    if layer.last and layer.network.merges:
        merge = f"merge={layer.network.merge!r}"
        raise UnsupportedError(f"export: {layer.name} gives the last steps of two directions that are made one ({merge})")
    first = call.before.get(layer.name)
    written = write_recurrent(writer, layer.network, layer.arrays, given, first=first, lengths=call.lengths, nodes=call.nodes)
    call.after[layer.name] = written.last
    if not layer.last:
        return written.output
    if layer.network.directions == 1:
        return _at_end(writer, written.output, call, layer.network.ways[0])
    sizes = writer.integers(*[layer.network.output_size] * 2)
    halves = writer.several("Split", [written.output, sizes], ["forward", "backward"], axis=-1)
    ends = [_at_end(writer, y, call, way) for y, way in zip(halves, layer.network.ways, strict=True)]
    return writer.joined(ends, -1, layer.name)


def _at_end(writer: Writer, x: str, call: Call, way: int) -> str:
    """The last step that a direction takes of each sample, [N, features]; zero of one without steps."""
    if way or call.lengths is None:
        return writer.node("Gather", x, writer.constant(0 if way else -1, "step", np.int64), hint="end")
    steps = writer.node("Max", call.lengths.count, writer.constant(1, "one", np.int64), hint="steps")
    last = writer.node("Sub", steps, writer.constant(1, "one", np.int64), hint="last_step")
    by_sample = writer.turned(x, 1, 0, 2, hint="by_sample")
    found = writer.node("GatherND", by_sample, writer.reshaped(last, -1, 1), hint="end", batch_dims=1)
    return writer.node("Where", writer.reshaped(call.lengths.any, -1, 1), found, writer.constant(0.0), hint="end")


def _formula(writer: Writer, layer: runtime.Formula, call: Call, specs: Sequence[Spec], *given: str) -> str:
    network, zero = layer.network, writer.integers(0)
    sources = of_layers.sources(network, layer.arrays, writer.dtype)
    constants = [writer.constant(array, name) for name, array in zip(network.sources, sources, strict=True)]
    sequences = [x if spec.steps else writer.node("Unsqueeze", x, zero) for x, spec in zip(given, specs, strict=True)]
    names = [name for name, _ in network.graph.inputs]
    of_steps = Steps(writer, network, 0, 0, weights_of(writer, network, 0, constants), dict(zip(names, sequences, strict=True)))
    made = of_steps.run_without_loop()
    return made if specs[0].steps else writer.node("Squeeze", made, zero, hint=layer.name)


def _dense(writer: Writer, layer: runtime.Dense, call: Call, specs: Any, x: str) -> str:
    made = writer.node("MatMul", x, writer.constant(layer.weight.T, "weight"), hint=layer.name)
    return made if layer.bias is None else writer.node("Add", made, writer.constant(layer.bias, "bias"), hint=layer.name)


def _embedding(writer: Writer, layer: runtime.Embedding, call: Call, specs: Any, x: str) -> str:
    return writer.node("Gather", writer.constant(layer.weight, "weight"), x, hint=layer.name)


def _layer_norm(writer: Writer, layer: runtime.LayerNorm, call: Call, specs: Sequence[Spec], x: str) -> str:
    share = writer.constant(1.0 / (specs[0].size or 1))
    centred = writer.node("Sub", x, writer.node("Mul", writer.summed(x, -1), share, hint="mean"), hint="centred")
    square = writer.node("Mul", centred, centred, hint="square")
    variance = writer.node("Mul", writer.summed(square, -1), share, hint="variance")
    deviation = writer.node("Sqrt", writer.node("Add", variance, writer.constant(float(layer.epsilon))), hint="deviation")
    made = writer.node("Div", centred, deviation, hint=layer.name)
    for op, array in (("Mul", layer.weight), ("Add", layer.bias)):
        made = made if array is None else writer.node(op, made, writer.constant(array, "parameter"), hint=layer.name)
    return made


def _activation(writer: Writer, layer: runtime.Activation, call: Call, specs: Any, x: str) -> str:
    return FUNCTIONS[layer.function](writer, x)


def _silu(writer: Writer, x: str) -> str:
    return writer.node("Mul", x, writer.node("Sigmoid", x))


def _gelu(writer: Writer, x: str) -> str:
    cube = writer.node("Mul", writer.node("Mul", x, x), x, hint="cube")
    inner = writer.node("Add", x, writer.node("Mul", writer.constant(0.044715), cube))
    return writer.node("Mul", x, writer.node("Sigmoid", writer.node("Mul", writer.constant(1.5957691216057308), inner)))


def _elu(writer: Writer, x: str) -> str:
    if writer.dtype != np.float64:  # for which onnxruntime has no such node, as of those below
        return writer.node("Elu", x)
    zero = writer.constant(0.0)
    below = writer.node("Sub", writer.node("Exp", writer.node("Min", x, zero)), writer.constant(1.0), hint="below")
    return writer.node("Where", writer.node("Greater", x, zero), x, below)


def _softsign(writer: Writer, x: str) -> str:
    if writer.dtype != np.float64:
        return writer.node("Softsign", x)
    return writer.node("Div", x, writer.node("Add", writer.constant(1.0), writer.node("Abs", x)))


def _hard_sigmoid(writer: Writer, x: str) -> str:
    line = writer.node("Add", writer.node("Mul", x, writer.constant(1 / 6)), writer.constant(0.5))
    return writer.node("Max", writer.node("Min", line, writer.constant(1.0)), writer.constant(0.0))


def _by(op: str, **attributes: Any) -> Callable[[Writer, str], str]:
    return lambda writer, x: writer.node(op, x, **attributes)


FUNCTIONS: dict[str, Callable[[Writer, str], str]] = {
    "elu": _elu,
    "exp": _by("Exp"),
    "gelu_tanh": _gelu,
    "hard_sigmoid": _hard_sigmoid,
    "log_softmax": _by("LogSoftmax", axis=-1),
    "relu": _by("Relu"),
    "sigmoid": _by("Sigmoid"),
    "silu": _silu,
    "softmax": _by("Softmax", axis=-1),
    "softplus": Writer.softplus,
    "softsign": _softsign,
    "tanh": _by("Tanh"),
}
"""Of activation layers."""


def _masked(writer: Writer, layer: runtime.Masked, call: Call, specs: Sequence[Spec], x: str) -> str:
    return x if call.lengths is None else masked(writer, x, call.lengths, specs[0].size is None, layer.name)


def masked(writer: Writer, x: str, lengths: Lengths, of_classes: bool, hint: str) -> str:
    """A sequence that is zero where samples have no steps."""
    if of_classes:
        there = writer.node("Squeeze", lengths.there, writer.integers(-1), hint="there")
        return writer.node("Where", there, x, writer.constant(0, "zero", np.int64), hint=hint)
    return writer.node("Where", lengths.there, x, writer.constant(0.0), hint=hint)


def _joined(writer: Writer, layer: runtime.Layer, call: Call, specs: Any, *given: str) -> str:
    return writer.joined(given, -1, layer.name)


def _folded(op: str) -> Callable[..., str]:
    def write(writer: Writer, layer: runtime.Layer, call: Call, specs: Any, *given: str) -> str:
        total = given[0]
        for x in given[1:]:
            total = writer.node(op, total, x, hint=layer.name)
        return total

    return write


def _last(writer: Writer, layer: runtime.Last, call: Call, specs: Any, x: str) -> str:
    return _at_end(writer, x, call, 0)


def _there(writer: Writer, x: str, call: Call, otherwise: float) -> str:
    if call.lengths is None:
        return x
    return writer.node("Where", call.lengths.there, x, writer.constant(otherwise), hint="there")


def _first_axis_gone(writer: Writer, x: str, hint: str) -> str:
    return writer.node("Squeeze", x, writer.integers(0), hint=hint)


def _mean(writer: Writer, layer: runtime.Mean, call: Call, specs: Any, x: str) -> str:
    total = _first_axis_gone(writer, writer.summed(_there(writer, x, call, 0.0), 0), "total")
    if call.lengths is None:
        count = writer.node("Shape", x, hint="count", start=0, end=1)
    else:
        some = writer.node("Max", call.lengths.count, writer.constant(1, "one", np.int64), hint="count")
        count = writer.reshaped(some, -1, 1)
    return writer.node("Div", total, writer.cast(count), hint=layer.name)


def _max(writer: Writer, layer: runtime.Max, call: Call, specs: Any, x: str) -> str:
    found = _first_axis_gone(writer, writer.largest(_there(writer, x, call, -np.inf), 0), layer.name)
    if call.lengths is None:
        return found
    return writer.node("Where", writer.reshaped(call.lengths.any, -1, 1), found, writer.constant(0.0), hint=layer.name)


def _flatten(writer: Writer, layer: runtime.Flatten, call: Call, specs: Any, x: str) -> str:
    (spec,) = specs
    if call.lengths is not None:
        raise UnsupportedError(f"export: {layer.name} reads all steps at once, so there are no lengths")
    by_sample = writer.node("Transpose", x, hint="by_sample", perm=[1, 0, 2])
    return writer.reshaped(by_sample, 0, layer.steps * spec.size)  # 0: as many samples as there are, whatever T is


def _attention(writer: Writer, layer: runtime.AttentionAverage, call: Call, specs: Any, x: str) -> str:
    x = _there(writer, x, call, 0.0)  # what layers made of padding may be no number
    products = writer.node("MatMul", x, writer.constant(layer.weight[:, None], "weight"), hint="scores")  # [T, N, 1]
    scores = _there(writer, products, call, -np.inf)
    numbers = np.finfo(writer.dtype)
    largest = writer.node("Max", writer.largest(scores, 0), writer.constant(float(numbers.min)), hint="largest")
    e = writer.node("Exp", writer.node("Sub", scores, largest), hint="exp")
    total = writer.node("Add", writer.summed(e, 0), writer.constant(float(layer.epsilon)), hint="total")
    shares = writer.node("Div", e, writer.node("Max", total, writer.constant(float(numbers.tiny))), hint="shares")
    return _first_axis_gone(writer, writer.summed(writer.node("Mul", x, shares), 0), layer.name)


LAYERS: dict[str, Callable[..., str]] = {
    "recurrent": _recurrent,
    "formula": _formula,
    "dense": _dense,
    "embedding": _embedding,
    "layer_norm": _layer_norm,
    "activation": _activation,
    "masked": _masked,
    "flatten": _flatten,
    "concatenate": _joined,
    "add": _folded("Add"),
    "multiply": _folded("Mul"),
    "last": _last,
    "mean": _mean,
    "max": _max,
    "attention_average": _attention,
}
"""By their kinds."""
