"""RNN, GRU and LSTM nodes in a model: what they are given, and what of it is steps, samples and states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn import runtime
from anyrnn.onnx.reading_file import Node
from anyrnn.onnx.reading_graph import Reading
from anyrnn.onnx.reading_networks import OPERATORS, WEIGHTS, Recurrence, recurrence
from anyrnn.onnx.reading_shapes import Given, Handler, features, needed, optional, reads
from anyrnn.onnx.reading_values import Axis, Part, Size, Value

Array = npt.NDArray[Any]

RECURRENT: dict[str, Handler] = {}


@reads(*OPERATORS, table=RECURRENT)
def _recurrent(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    arrays = {name: r.of_dtype(value.numbers) for name, k in WEIGHTS.items() if (value := optional(given, k)) is not None}
    if missing := [name for name in ("W", "R") if name not in arrays]:
        raise ValueError(f"its input {missing[0]} is missing")
    x = r.settled(needed(given, 0))
    if len(x.axes) != 3:
        raise ValueError(f"X should have 3 axes, got {x.sizes}")
    batch_first = node.flag("layout", False)
    of_steps, of_samples = (1, 0) if batch_first else (0, 1)
    _be(x.axes[of_steps], r.time)
    _be(x.axes[of_samples], r.batch)
    x = x.plain()
    directions = len(arrays["W"])
    begin: dict[str, Array] = {}
    first: dict[str, Array] = {}
    for k, state in enumerate(OPERATORS[node.op].states):
        value = optional(given, 5 + k)
        if value is not None:
            found = _first(r, value, directions, arrays["R"].shape[-1], batch_first, f"initial_{state}")
            (first if value.known else begin)[state] = found
    first = {state: array for state, array in first.items() if array.any()}
    made = recurrence(node, arrays, first)
    if x.array.size != made.input_size or any(isinstance(p, int) for axis in x.axes[:2] for p in axis):
        raise ValueError(f"X should have {made.input_size} features in its last axis, got {x.sizes}")
    lengths = _lengths(r, optional(given, 4))
    source = r.feed(x.array.reshape(-1))
    columns: list[Array] = []
    states: dict[str, list[Array]] = {state: [] for state in made.states}
    for share in made.shares:
        ending = "" if len(made.shares) == 1 else (".forward", ".reverse")[share.directions[0]]
        name = r.named((next(filter(None, node.outputs), "") or node.label) + ending)
        layer = runtime.Recurrent(name, [source], share.network, share.parameters)
        of_layer, of_states = r.add_recurrent(layer, made.hidden_size)
        columns.append(of_layer)
        for state, of_state in of_states.items():
            states[state].append(of_state)
        taken = np.array(share.directions)
        r.states[name] = {s: c[taken].reshape(-1) for s, c in begin.items()}
        if lengths is not None:
            r.lengths[name] = lengths
    return _results(x, made, np.concatenate(columns), {s: np.concatenate(c) for s, c in states.items()})


def _results(x: Value, made: Recurrence, columns: Array, states: Mapping[str, Array]) -> list[Value]:
    sides: tuple[Part, ...] = (made.directions,)
    hidden: tuple[Part, ...] = (made.hidden_size,)
    shape = (made.directions, made.hidden_size)
    of_state = [x.axes[0], sides, hidden] if made.batch_first else [sides, x.axes[1], hidden]
    of_all = [*x.axes[:2], sides, hidden] if made.batch_first else [x.axes[0], sides, x.axes[1], hidden]
    results = [Value(tuple(of_all), columns.reshape(shape)), *(Value(tuple(of_state), s.reshape(shape)) for s in states.values())]
    return [value.plain() for value in results]


def _be(parts: Sequence[Part], axis: Axis) -> None:
    """An axis is the steps, or the samples. Raises: ValueError when it cannot be."""
    if not parts:
        axis.sized(1)
    elif len(parts) > 1 or not isinstance(parts[0], Axis):
        raise ValueError(f"expected an axis of {axis.role} alone, got {Size.of(parts)!r}")
    else:
        axis.join(parts[0])


def _first(r: Reading, value: Value, directions: int, hidden: int, batch_first: bool, who: str) -> Array:
    """Numbers that all samples share, or columns of inputs: [directions, hidden]. Raises: ValueError for others."""
    if len(value.axes) != 3:
        raise ValueError(f"{who} should have 3 axes, got {value.sizes}")
    samples = 0 if batch_first else 1
    for place in {0, 1, 2} - {samples}:
        value = features(r, value, place)
    parts = value.axes[samples]
    if value.known and any(isinstance(part, int) for part in parts):
        r.batch.sized(int(np.prod([part for part in parts if isinstance(part, int)])))
        value = value.along(samples, lambda array, place: _only(array, place, who))
    else:
        _be(parts, r.batch)
        axes = [axis for place, axis in enumerate(value.axes) if place != samples]
        value = replace(value, axes=tuple(axes))
    if value.array.size != directions * hidden or any(isinstance(p, Axis) for axis in value.axes for p in axis):
        raise ValueError(f"{who} should be of {directions} directions and {hidden} features, got {value.sizes}")
    if not value.known and any(s.kind != "input" for s, _ in r.sources_of(value.array.reshape(-1))):
        raise ValueError(f"{who} is computed by other nodes: it should be constant, or an input of the model")
    return np.reshape(r.of_dtype(value.array) if value.known else value.array, (directions, hidden))


def _only(array: Array, place: int, who: str) -> Array:
    first = array.take([0], place)
    if not bool((array == first).all()):
        raise ValueError(f"{who} is constant, and not the same for all samples")
    taken: Array = np.take(first, 0, place)
    return taken


def _lengths(r: Reading, value: Value | None) -> str | Array | None:
    """The input that they are, or numbers; None where all samples have all steps."""
    if value is None:
        return None
    if len(value.axes) != 1:
        raise ValueError(f"sequence_lens should have one axis, got {value.sizes}")
    if value.known:
        steps = Size.of([r.time])
        if all(bool(n == steps) for n in value.array.reshape(-1).tolist()):
            return None
        if value.array.dtype.kind not in "iu":
            raise ValueError("sequence_lens should be integers that are known, or an input of the model")
        return value.numbers.astype(np.int64)
    _be(value.axes[0], r.batch)
    found = r.sources_of(value.array.reshape(-1))
    if len(found) != 1 or found[0][0].kind != "input" or value.array.size != 1:
        raise ValueError("sequence_lens should be an input of the model, or constant")
    return found[0][0].name
