"""Nodes that show the same numbers in another shape, and constants: they change what is known of a value, and make no layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn.onnx.reading_file import DTYPES, FLOATS, Node
from anyrnn.onnx.reading_graph import Reading
from anyrnn.onnx.reading_values import FEATURE, Axis, Part, Size, Value

Array = npt.NDArray[Any]
Given = list[Value | None]
Handler = Callable[[Reading, Node, Given], Sequence[Value]]

SHAPES: dict[str, Handler] = {}
FAR = 2**31 - 1
"""What stands for an end that is not told, or beyond it."""


def reads(*ops: str, table: dict[str, Handler]) -> Callable[[Handler], Handler]:
    """Put a function into a table, for operators of these names."""

    def put(handler: Handler) -> Handler:
        table.update(dict.fromkeys(ops, handler))
        return handler

    return put


def needed(given: Given, place: int) -> Value:
    """An input. Raises: ValueError if there is none."""
    value = given[place] if place < len(given) else None
    if value is None:
        raise ValueError(f"its input number {place} is missing")
    return value


def optional(given: Given, place: int) -> Value | None:
    return given[place] if place < len(given) else None


def whole_numbers(value: Value) -> list[Any]:
    """Known integers, or sizes; of a scalar or a vector."""
    array = value.numbers
    if array.ndim > 1 or array.dtype.kind not in "iuO":
        raise ValueError(f"expected integers, got {array.dtype} of shape {list(array.shape)}")
    return array.reshape(-1).tolist()


def integers(node: Node, given: Given, attribute: str, place: int) -> list[int] | None:
    """What newer versions of an operator have as an input, and older ones as an attribute."""
    value = optional(given, place)
    found = node.integers(attribute) if value is None else whole_numbers(value)
    if found is not None and not all(isinstance(n, int) for n in found):
        raise ValueError(f"{attribute} should be numbers that do not depend on what the model is given, got {found}")
    return found


def features(r: Reading, value: Value, axis: int) -> Value:
    """A value whose axis is features, if it was not told until now."""
    parts = value.axes[axis]
    if len(parts) == 1 and isinstance(parts[0], Axis) and parts[0].role is None and not value.known:
        parts[0].be(FEATURE)
    return value.plain()


def parts_of(size: Any) -> tuple[Part, ...]:
    """An axis of this size. Raises: ValueError for what is no size."""
    if not isinstance(size, Size) and (not isinstance(size, int) or not 0 <= size <= FAR):
        raise ValueError(f"expected the size of an axis, got {size!r}")
    return (*size.axes, size.factor) if isinstance(size, Size) else (size,)


# constants


@reads("Constant", table=SHAPES)
def _constant(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    tensor = node.tensor("value")
    if tensor is not None:
        return [Value.of(tensor)]
    numbers, number = node.numbers("value_floats"), node.number_of("value_float", None)
    whole = node.integers("value_ints")
    if numbers or number is not None:
        return [Value.of(np.array(numbers or number, np.float32))]
    if whole is None and "value_int" not in node.attributes:
        raise ValueError("expected a tensor or numbers")
    return [Value.of(np.array(node.integer("value_int", 0) if whole is None else whole, np.int64))]


@reads("ConstantOfShape", table=SHAPES)
def _constant_of_shape(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    value = node.tensor("value")
    number = np.zeros((1,), np.float32) if value is None else value
    if number.size != 1:
        raise ValueError(f"value should be one number, got {number.size}")
    axes = tuple([parts_of(size) for size in whole_numbers(needed(given, 0))])
    return [_spread(r, number.reshape(()), axes, True)]


def _spread(r: Reading, array: Array, axes: Sequence[tuple[Part, ...]], known: bool) -> Value:
    """A value whose numbers are spread over more axes, or larger ones."""
    shape = [part for parts in axes for part in parts if isinstance(part, int)]
    r.spend(math.prod(shape))
    return Value(tuple(axes), np.broadcast_to(array, shape), known).plain()


@reads("Shape", table=SHAPES)
def _shape(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    sizes = needed(given, 0).sizes
    end = node.integer("end", FAR)
    chosen = sizes[node.integer("start", 0) : end]
    whole = all(isinstance(n, int) for n in chosen)
    array = np.empty(len(chosen), np.int64 if whole else object)
    array[:] = chosen
    return [Value.of(array)]


@reads("Expand", table=SHAPES)
def _expand(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    value, wanted = needed(given, 0), whole_numbers(needed(given, 1))
    rank = max(len(wanted), len(value.axes))
    value = value.unsqueezed(range(rank - len(value.axes)))
    axes: list[tuple[Part, ...]] = list(value.axes)
    shape: list[int] = []
    for place, size in enumerate([1] * (rank - len(wanted)) + wanted):
        if not value.axes[place] and value.known:
            axes[place] = parts_of(size)
            shape += [1] * sum(isinstance(part, int) for part in axes[place])
            continue
        if size not in (1, Size.of(value.axes[place])):
            raise ValueError(f"axis {place} has the size {Size.of(value.axes[place])!r} and cannot be expanded to {size!r}")
        shape += [part for part in value.axes[place] if isinstance(part, int)]
    return [_spread(r, value.array.reshape(shape), axes, value.known)]


# the same numbers


@reads("Identity", table=SHAPES)
def _identity(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    return [needed(given, 0)]


@reads("Dropout", table=SHAPES)
def _dropout(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    node.number_of("ratio", None)
    node.integer("seed", 0)
    training = optional(given, 2)
    if not node.flag("is_test", True) or (training is not None and bool(training.numbers.any())):
        raise ValueError("it drops at random: export the model for inference")
    return [needed(given, 0)]


@reads("Cast", table=SHAPES)
def _cast(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    value, (dtype, _) = needed(given, 0), DTYPES.get(node.integer("to", 0), ("", ""))
    node.integer("saturate", 1)
    if r.widens and dtype == "float32":
        dtype = "float64"
    if not dtype:
        raise ValueError(f"expected {', '.join(name for name, _ in DTYPES.values())}, got element type {node.integer('to', 0)}")
    if value.known and value.array.dtype != object:
        r.spend(value.array.size)
        with np.errstate(all="ignore"):
            return [Value(value.axes, value.array.astype(dtype), True)]
    if value.known and dtype in FLOATS:
        return [value]  # sizes, which are numbers of no dtype
    now = "int64" if value.known else kind_of(r, value)
    if now != dtype and not {now, dtype} <= {"int32", "int64"}:
        raise ValueError(f"it would make {dtype} of {now} while the model runs")
    return [value]


def kind_of(r: Reading, value: Value) -> str:
    """The dtype of what is not known."""
    found = {"int64" if s.kind == "index" else s.port.dtype if s.port else "" for s, _ in r.sources_of(value.array.reshape(-1))}
    dtypes = {dtype or r.dtype for dtype in found}
    return dtypes.pop() if len(dtypes) == 1 else "several"


@reads("Transpose", table=SHAPES)
def _transpose(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    value = needed(given, 0)
    order = node.integers("perm")
    return [value.transposed(list(range(len(value.axes)))[::-1] if order is None else order)]


@reads("Squeeze", table=SHAPES)
def _squeeze(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    axes = integers(node, given, "axes", 1)
    if axes is not None and not axes:
        raise ValueError("axes should be some, or not be given at all")
    return [needed(given, 0).squeezed(axes)]


@reads("Unsqueeze", table=SHAPES)
def _unsqueeze(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    axes = integers(node, given, "axes", 1)
    if not axes:
        raise ValueError("expected axes")
    return [needed(given, 0).unsqueezed(axes)]


@reads("Flatten", table=SHAPES)
def _flatten(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    value = needed(given, 0)
    rank, axis = len(value.axes), node.integer("axis", 1)
    if not -rank <= axis <= rank:
        raise ValueError(f"axis should be from {-rank} to {rank}, got {axis}")
    axis += rank if axis < 0 else 0
    sides = value.axes[:axis], value.axes[axis:]
    return [value.reshaped([Size.of([part for parts in side for part in parts]) for side in sides])]


@reads("Reshape", table=SHAPES)
def _reshape(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    value, shape = needed(given, 0), optional(given, 1)
    targets: list[Any] = (node.integers("shape") or []) if shape is None else whole_numbers(shape)
    if len(targets) > 32 or any(isinstance(n, int) and not -1 <= n <= FAR for n in targets):
        raise ValueError(f"expected a shape of at most 32 axes, got {targets[:32]}")
    keeps = not node.flag("allowzero", False)
    for place, target in enumerate(targets):
        if isinstance(target, int) and target == 0 and keeps:
            if place >= len(value.axes):
                raise ValueError(f"axis {place} of the shape is 0, and the value has {len(value.axes)} axes")
            targets[place] = Size.of(value.axes[place])
    rest = [place for place, target in enumerate(targets) if isinstance(target, int) and target == -1]
    if len(rest) > 1:
        raise ValueError(f"expected at most one -1, got {targets}")
    if rest:
        whole = Size.of([part for parts in value.axes for part in parts])
        others: Any = 1
        for place, target in enumerate(targets):
            others = others * target if place != rest[0] else others
        if isinstance(others, int) and others == 0:
            raise ValueError(f"cannot tell what -1 is in {targets}")
        targets[rest[0]] = (whole if isinstance(whole, Size) else Size(whole, ())) // others
    return [value.reshaped(targets)]
