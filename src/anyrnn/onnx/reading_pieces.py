"""Nodes that take some of the numbers, or join them; and embeddings and last steps, which ONNX has as gathers and slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn import runtime
from anyrnn.onnx.reading_file import FLOATS, Node
from anyrnn.onnx.reading_graph import Reading
from anyrnn.onnx.reading_shapes import FAR, Given, Handler, features, integers, needed, optional, reads, whole_numbers
from anyrnn.onnx.reading_values import TIME, Axis, Part, Size, Value

Array = npt.NDArray[Any]

PIECES: dict[str, Handler] = {}


@reads("Gather", table=PIECES)
def _gather(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    value, chosen = needed(given, 0), needed(given, 1)
    axis = value.axis(node.integer("axis", 0))
    if not chosen.known:
        return [_embedded(r, node, value, chosen, axis)]
    indices = chosen.numbers
    if indices.dtype.kind not in "iu":
        raise ValueError(f"expected indices that are known integers, got {indices.dtype}")
    if _is_time(value.axes[axis]):
        if indices.size != 1 or indices.ndim > 1:
            raise ValueError(f"of the steps one can be taken, the last or the first, not {indices.size}")
        return [_step(r, value, axis, int(indices.reshape(-1)[0]), keep=indices.ndim == 1)]
    value = features(r, value, axis)
    r.spend(value.array.size // max(1, _length(value, axis)) * indices.size)
    return [value.along(axis, lambda array, place: _take(array, indices, place))]


def _length(value: Value, axis: int) -> int:
    size = Size.of(value.axes[axis])
    return size if isinstance(size, int) else 1


def _take(array: Array, indices: Array, place: int) -> Array:
    size = array.shape[place]
    if indices.size and not (-size <= indices.min() and indices.max() < size):
        raise ValueError(f"indices should be from {-size} to {size - 1}, got {indices.min()} to {indices.max()}")
    taken = np.empty((*array.shape[:place], *indices.shape, *array.shape[place + 1 :]), array.dtype)
    taken[...] = np.take(array, indices, axis=place)  # which of single objects gives them themselves
    return taken


def _embedded(r: Reading, node: Node, value: Value, chosen: Value, axis: int) -> Value:
    """Rows of a matrix by the numbers of classes that the model is given."""
    table = value.numbers
    if table.ndim != 2 or axis or table.dtype.name not in FLOATS or chosen.array.size != 1:
        raise ValueError(f"embeddings are rows of a matrix of {' or '.join(FLOATS)}, by one number for each step")
    layer = runtime.Embedding(r.named(node.outputs[0]), [r.feed(chosen.array.reshape(-1))], r.of_dtype(table))
    columns = r.add(layer, table.shape[1], r.has_steps(chosen))
    return Value((*chosen.settled_axes(), (table.shape[1],)), columns).plain()


def _is_time(parts: Sequence[Part]) -> bool:
    return len(parts) == 1 and isinstance(parts[0], Axis) and parts[0].role == TIME


def _step(r: Reading, value: Value, axis: int, step: int, keep: bool) -> Value:
    value = r.settled(value)
    (part,) = value.axes[axis]
    assert isinstance(part, Axis)
    last = part.size is not None and step == part.size - 1
    if step != 0 and step != -1 and not last:
        raise ValueError(f"of the steps one can be taken, the last or the first, not number {step}")
    columns = r.at_end(value.array, -1 if last else step)
    return Value((*value.axes[:axis], *([()] if keep else []), *value.axes[axis + 1 :]), columns)


@reads("Slice", table=PIECES)
def _slice(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    value = needed(given, 0)
    starts, ends = integers(node, given, "starts", 1), _ends(node, given)
    if starts is None or ends is None:
        raise ValueError("expected starts and ends")
    axes = integers(node, given, "axes", 3) or list(range(len(starts)))
    steps = integers(node, given, "steps", 4) or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ValueError(
            f"expected as many starts as ends, axes and steps, got {len(starts)}, {len(ends)}, {len(axes)}, {len(steps)}"
        )
    for start, end, number, step in zip(starts, ends, axes, steps, strict=True):
        axis = value.axis(number)
        if step == 0:
            raise ValueError("steps should not be 0")
        if start == 0 and step == 1 and ((isinstance(end, int) and end >= FAR) or _is_end(value, axis, end)):
            continue
        parts = value.axes[axis]
        if _is_time(parts):
            value = _step(r, value, axis, _one_step(parts[0], start, end, step), keep=True)
            continue
        value = features(r, value, axis)
        value = value.along(axis, _cut(slice(start, _bound(end, step), step)))
    return [value]


def _cut(taken: slice) -> Callable[[Array, int], Array]:
    """Some of the features along a dimension."""
    return lambda array, place: array[(*[slice(None)] * place, taken)]


def _ends(node: Node, given: Given) -> list[Any] | None:
    """They may be sizes that calls tell."""
    value = optional(given, 2)
    return node.integers("ends") if value is None else whole_numbers(value)


def _is_end(value: Value, axis: int, end: Any) -> bool:
    return bool(Size.of(value.axes[axis]) == end)


def _bound(end: Any, step: int) -> int | None:
    if not isinstance(end, int):
        raise ValueError(f"a slice of features ends at {end!r}")
    return None if step < 0 and end < -FAR else end


def _one_step(part: Part, start: Any, end: Any, step: int) -> int:
    """Which step a slice takes. Raises: ValueError if it is none, or several."""
    size = part.size if isinstance(part, Axis) else None
    reaches = isinstance(end, Size) or end >= FAR or (size is not None and end >= size)
    if start == -1 and step == 1 and reaches:
        return -1
    if step == 1 and isinstance(end, int) and end == start + 1 and (start >= 0 or start < -1):
        return int(start)
    raise ValueError(f"of the steps one can be taken, the last or the first, not those from {start} to {end!r} by {step}")


@reads("Split", table=PIECES)
def _split(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    value = needed(given, 0)
    axis = value.axis(node.integer("axis", 0))
    value = features(r, value, axis)
    sizes = integers(node, given, "split", 1)
    count = node.integer("num_outputs", len(node.outputs))
    length = _length(value, axis)
    if sizes is None:
        if not 1 <= count <= len(node.outputs) or count > length:
            raise ValueError(f"expected from 1 to {min(length, len(node.outputs))} outputs, got {count}")
        each = -(-length // count)
        sizes = [max(0, min(each, length - k * each)) for k in range(count)]
    if len(sizes) > len(node.outputs) or min(sizes, default=0) < 0 or sum(sizes) != length:
        raise ValueError(f"expected {len(node.outputs)} parts that are {length} together, got {sizes}")
    found: list[Value] = []
    start = 0
    for size in sizes:
        found.append(value.along(axis, _cut(slice(start, start + size))))
        start += size
    return found


@reads("Concat", table=PIECES)
def _concat(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    values = [needed(given, k) for k in range(len(given))]
    if not values:
        raise ValueError("expected something to join")
    axis = values[0].axis(node.integer("axis", 1))
    if len({v.known for v in values}) > 1 or len({len(v.axes) for v in values}) > 1:
        raise ValueError("what is joined should be all constant, or all given, with as many axes")
    values = [features(r, v, axis) for v in values]
    r.spend(sum(v.array.size for v in values))
    joined: list[Array] = []

    def append(array: Array, place: int) -> Array:
        joined.append(array)
        return np.concatenate(joined, place) if len(joined) == len(values) else array

    result = values[0]
    for value in values:
        for place, (mine, others) in enumerate(zip(values[0].axes, value.axes, strict=True)):
            if place != axis:
                same(mine, others)
        result = value.along(axis, append)
    return [result]


def same(mine: Sequence[Part], others: Sequence[Part]) -> None:
    """Two axes are one. Raises: ValueError when they cannot be."""
    if len(mine) != len(others):
        raise ValueError(f"an axis is {Size.of(mine)!r} and {Size.of(others)!r}")
    for a, b in zip(mine, others, strict=True):
        if isinstance(a, Axis) and isinstance(b, Axis):
            a.join(b)
        elif isinstance(a, Axis) or isinstance(b, Axis) or a != b:
            raise ValueError(f"an axis is {Size.of(mine)!r} and {Size.of(others)!r}")
