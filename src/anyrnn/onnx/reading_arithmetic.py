"""Nodes that compute with single features: each is a layer of the runtime, or arithmetic on constants, which is done at once."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn import runtime
from anyrnn.ir.symbol import Symbol
from anyrnn.onnx import reading_layers
from anyrnn.onnx.reading_file import Node
from anyrnn.onnx.reading_graph import Reading
from anyrnn.onnx.reading_pieces import same
from anyrnn.onnx.reading_shapes import Given, Handler, needed, optional, reads
from anyrnn.onnx.reading_values import MOST_FEATURES, Axis, Part, Size, Value
from anyrnn.runtime.layers import Layer
from anyrnn.trace.language import apply, maximum, minimum
from anyrnn.weights.operators import Function

Array = npt.NDArray[Any]

ARITHMETIC: dict[str, Handler] = {}


def layer_of(r: Reading, node: Node, value: Value, make: Callable[[str, str], Layer]) -> Value:
    """A value of as many features, by a layer of the value's. `make`: of its name and its input's."""
    value = r.settled(value)
    flat = value.array.reshape(-1)
    steps = r.has_steps(value)
    r.dtype_of(value)
    layer = make(r.named(node.outputs[0]), r.feed(flat))
    return Value(value.settled_axes(), r.add(layer, flat.size, steps).reshape(value.array.shape))


def in_last(value: Value) -> int:
    """How many features a value has, all of them in its last axis. Raises: ValueError if they are not."""
    last = value.axes[-1] if value.axes else ()
    if any(isinstance(part, int) for parts in value.axes[:-1] for part in parts) or any(isinstance(p, Axis) for p in last):
        raise ValueError(f"expected a value with all features in its last axis, got {value.sizes}")
    return value.array.size


# functions of single features

NAMED = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "Softplus": "softplus", "Softsign": "softsign", "Exp": "exp"}
WITH_NUMBERS = {"Elu": (1.0,), "LeakyRelu": (0.01,), "HardSigmoid": (0.2, 0.5)}
BY_FORMULA: dict[str, Callable[[Symbol], Symbol]] = {
    "Abs": lambda v: apply("abs", v),
    "Erf": reading_layers.erf,
    "Log": lambda v: apply("log", v),
    "Neg": operator.neg,
    "Reciprocal": lambda v: 1 / v,
    "Sqrt": lambda v: apply("sqrt", v),
}


@reads(*NAMED, table=ARITHMETIC)
def _named(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    return [layer_of(r, node, needed(given, 0), lambda name, x: runtime.Activation(name, [x], NAMED[node.op]))]


@reads(*WITH_NUMBERS, table=ARITHMETIC)
def _with_numbers(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    numbers = [node.number_of(name, usual) for name, usual in zip(("alpha", "beta"), WITH_NUMBERS[node.op], strict=False)]
    if (node.op, numbers) == ("Elu", [1.0]):
        return [layer_of(r, node, needed(given, 0), lambda name, x: runtime.Activation(name, [x], "elu"))]
    return [formula(r, node, needed(given, 0), Function(node.op.lower(), *numbers))]


@reads(*BY_FORMULA, table=ARITHMETIC)
def _by_formula(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    return [formula(r, node, needed(given, 0), BY_FORMULA[node.op])]


def formula(r: Reading, node: Node, value: Value, function: Callable[..., Symbol], **parameters: Array) -> Value:
    """A function of each feature, and of a number of its own from each parameter."""
    value = r.settled(value)
    size, dtype = value.array.size, r.dtype_of(value)
    return layer_of(r, node, value, lambda name, x: reading_layers.of_one(name, x, size, function, dtype, **parameters))


@reads("Clip", table=ARITHMETIC)
def _clip(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    bounds: list[float | None] = []
    for place, name in ((1, "min"), (2, "max")):
        value = optional(given, place)
        bounds.append(node.number_of(name, None) if value is None else float(value.numbers.item()))
    low, high = bounds

    def clipped(v: Symbol) -> Symbol:
        v = v if low is None else maximum(v, low)
        return v if high is None else minimum(v, high)

    return [needed(given, 0) if low is high is None else formula(r, node, needed(given, 0), clipped)]


@reads("Gelu", table=ARITHMETIC)
def _gelu(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    value, kind = needed(given, 0), node.text("approximate", "none")
    if kind == "tanh":
        return [layer_of(r, node, value, lambda name, x: runtime.Activation(name, [x], "gelu_tanh"))]
    if kind != "none":
        raise ValueError(f"approximate should be none or tanh, got {kind!r}")
    return [formula(r, node, value, lambda v: 0.5 * v * (1 + reading_layers.erf(v * 0.5**0.5)))]


@reads("Softmax", "LogSoftmax", table=ARITHMETIC)
def _softmax(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    value = r.settled(needed(given, 0))
    in_last(value)
    if value.axis(node.integer("axis", -1 if r.model.opset >= 13 else 1)) != len(value.axes) - 1:
        raise ValueError("it should be over the features, the last axis")
    name = "softmax" if node.op == "Softmax" else "log_softmax"
    return [layer_of(r, node, value, lambda layer, x: runtime.Activation(layer, [x], name))]


@reads("Pow", table=ARITHMETIC)
def _power(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    exponent = needed(given, 1).numbers
    powers: dict[float, Callable[[Symbol], Symbol]] = {2.0: lambda v: v * v, 0.5: lambda v: apply("sqrt", v)}
    if exponent.size != 1 or float(exponent.item()) not in powers:
        raise ValueError(f"the exponent should be {' or '.join(map(str, powers))}")
    return [formula(r, node, needed(given, 0), powers[float(exponent.item())])]


# of two values

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": operator.truediv,
    "Min": minimum,
    "Max": maximum,
}


@reads(*OPERATIONS, table=ARITHMETIC)
def _arithmetic(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    if len(given) != 2:
        raise ValueError(f"expected two inputs, got {len(given)}")
    a, b = needed(given, 0), needed(given, 1)
    if r.model.opset < 7:
        node.integer("broadcast", 0)  # by the rules of later versions, which allow less
    if a.known and b.known:
        return [_constant(r, node.op, a.numbers, b.numbers)]
    if node.op == "Div" and b.known and b.array.dtype == object:
        return [_mean(r, node, a, b)]
    if a.known or b.known:
        return [_with_constant(r, node, a, b)]
    return [_of_two(r, node, a, b, OPERATIONS[node.op])]


def _constant(r: Reading, op: str, a: Array, b: Array) -> Value:
    """Of numbers that are known, most of them sizes."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    r.spend(math.prod(shape))
    whole = a.dtype.kind in "iuO" and b.dtype.kind in "iuO"
    if op == "Div" and whole and not all(bool(n) for n in b.reshape(-1).tolist()):
        raise ValueError("a size is divided by 0")
    if op in ("Min", "Max"):
        raise ValueError("it computes with constants alone, which is not done: fold them when the model is exported")
    with np.errstate(all="ignore"):
        made = np.asarray(_quotient(a, b) if op == "Div" and whole else OPERATIONS[op](a, b))
    if made.dtype == object and any(isinstance(n, int) and abs(n) >= 2**63 for n in made.reshape(-1).tolist()):
        raise ValueError("a size is beyond 64 bits")
    return Value.of(made)


def _quotient(a: Array, b: Array) -> Array:
    """Of whole numbers, cut towards zero as ONNX has it. Of sizes, which are not negative, nothing is cut elsewhere."""
    found = np.asarray(operator.floordiv(a, b))
    return found + (((a < 0) != (b < 0)) & (found * b != a)) if a.dtype.kind in "iu" and b.dtype.kind in "iu" else found


def _with_constant(r: Reading, node: Node, a: Value, b: Value) -> Value:
    """A number for each feature, the same in all steps of all samples."""
    left, right = aligned(r.settled(a) if not a.known else a, r.settled(b) if not b.known else b)
    value, constant, first = (right, left, True) if left.known else (left, right, False)
    r.dtype_of(value)
    numbers = np.ascontiguousarray(r.of_dtype(constant.array).reshape(-1))
    if node.op == "Add":
        dense = _with_bias(r, node, value, numbers)
        if dense is not None:
            return dense
    operation = OPERATIONS[node.op]
    if numbers.size and bool((numbers == numbers[0]).all()):
        number = float(numbers[0])
        return formula(r, node, value, lambda v: operation(number, v) if first else operation(v, number))
    return formula(r, node, value, lambda v, weight: operation(weight, v) if first else operation(v, weight), weight=numbers)


def _mean(r: Reading, node: Node, value: Value, count: Value) -> Value:
    """What is the sum of all steps, divided by how many there are."""
    value = r.settled(value)
    total = r.layers.get(r.feed(value.array.reshape(-1)))
    if count.array.size != 1 or count.array.item() != Size.of([r.time]) or not reading_layers.is_sum(total):
        raise ValueError("of all sizes a value can be divided by the number of steps, if it is the sum over them")
    mean = runtime.Mean(r.named(node.outputs[0]), total.inputs)
    return Value(value.settled_axes(), r.add(mean, value.array.size, steps=False).reshape(value.array.shape))


def _with_bias(r: Reading, node: Node, value: Value, numbers: Array) -> Value | None:
    """What is added to a product is its bias."""
    flat = value.array.reshape(-1)
    name = r.feed(flat)
    dense = r.layers.get(name)
    if not isinstance(dense, runtime.Dense) or dense.bias is not None:
        return None
    layer = runtime.Dense(r.named(node.outputs[0]), dense.inputs, dense.weight, numbers)
    return Value(value.settled_axes(), r.add(layer, flat.size, r.has_steps(value)).reshape(value.array.shape))


def _of_two(r: Reading, node: Node, a: Value, b: Value, operation: Callable[[Any, Any], Any]) -> Value:
    left, right = aligned(r.settled(a), r.settled(b))
    if r.has_steps(left) != r.has_steps(right):
        raise ValueError("what has steps cannot stand beside what has none")
    sources = [r.feed(_single(v.array.reshape(-1))) for v in (left, right)]
    name, size, steps = r.named(node.outputs[0]), left.array.size, r.has_steps(left)
    r.dtype_of(left)
    singles = [len(_single(v.array.reshape(-1))) < size for v in (left, right)]
    layer: Layer
    if singles[0]:
        sources.reverse()
        layer = reading_layers.of_two(name, sources, size, lambda x, one: operation(one, x), r.dtype_of(left), single=True)
    elif singles[1]:
        layer = reading_layers.of_two(name, sources, size, operation, r.dtype_of(left), single=True)
    elif operation in (operator.add, operator.mul):
        layer = (runtime.Add if operation is operator.add else runtime.Multiply)(name, sources)
    else:
        layer = reading_layers.of_two(name, sources, size, operation, r.dtype_of(left))
    return Value(left.settled_axes(), r.add(layer, size, steps).reshape(left.array.shape))


def _single(columns: Array) -> Array:
    """One column, where they are all the same."""
    return columns[:1] if len(columns) and bool((columns == columns[0]).all()) else columns


def _is_repeated(mine: Sequence[Part], others: Sequence[Part]) -> bool:
    """Whether an axis has the size 1, and the other may have more."""
    pairs = [(a, b) for a, b in zip(mine, others, strict=False) if isinstance(a, Axis) and isinstance(b, Axis)]
    return any(a.size != b.size and 1 in (a.size, b.size) for a, b in pairs)


def aligned(a: Value, b: Value) -> tuple[Value, Value]:
    """Both with the same features, in axes of the same kinds: ONNX's (and NumPy's) broadcasting, of features."""
    rank = max(len(a.axes), len(b.axes))
    a, b = (v.unsqueezed(range(rank - len(v.axes))) for v in (a, b))
    axes: list[tuple[Part, ...]] = []
    for mine, others in zip(a.axes, b.axes, strict=True):
        if mine and others:
            if _is_repeated(mine, others):
                raise ValueError(f"an axis is {Size.of(mine)!r} and {Size.of(others)!r}, of which the 1 is repeated")
            same(mine, others)
        axes.append(mine or others)
    shape = [part for parts in axes for part in parts if isinstance(part, int)]
    if math.prod(shape) > MOST_FEATURES:
        raise ValueError(f"it makes a value of shape {shape} of smaller ones")
    arrays = []
    for value in (a, b):
        inside: list[int] = []
        for own, parts in zip(value.axes, axes, strict=True):
            wanted = [part for part in parts if isinstance(part, int)]
            inside += wanted if own else [1] * len(wanted)
        arrays.append(np.broadcast_to(value.array.reshape(inside), shape))
    return Value(tuple(axes), arrays[0], a.known), Value(tuple(axes), arrays[1], b.known)
