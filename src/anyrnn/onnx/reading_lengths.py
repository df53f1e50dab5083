"""Nodes that say which steps samples have, as models have them that give zeros behind each sample's own length, and the first
states of samples without steps. Of what layers with these lengths give they choose what is there anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn import runtime
from anyrnn.onnx.reading_arithmetic import aligned
from anyrnn.onnx.reading_file import Node
from anyrnn.onnx.reading_graph import Reading, Source
from anyrnn.onnx.reading_shapes import Given, Handler, needed, reads, whole_numbers
from anyrnn.onnx.reading_values import TIME, Size, Value

Array = npt.NDArray[Any]

LENGTHS: dict[str, Handler] = {}


@reads("Range", table=LENGTHS)
def _range(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    start, stop, by = [whole_numbers(needed(given, k)) for k in range(3)]
    counts = stop[0] if len(stop) == 1 and isinstance(stop[0], Size) else None
    if start != [0] or by != [1] or counts is None or counts.factor != 1 or len(counts.axes) != 1:
        raise ValueError(f"it should be the numbers of the steps, from 0 to how many there are, got {start}, {stop} and {by}")
    return [Value((counts.axes,), r.mark("index", "", steps=True).reshape(()))]


@reads("Less", table=LENGTHS)
def _less(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    a, b = needed(given, 0), needed(given, 1)
    lengths = _only(r, b)
    if lengths is None or lengths.kind != "input":
        raise ValueError("it should compare with lengths that are an input of the model")
    if a.known:
        if a.numbers.size != 1 or a.numbers.item() != 0:
            raise ValueError("it should compare lengths with 0")
        _, result = aligned(a, b)
        return [Value(result.axes, r.mark("any", lengths.name).reshape(()))]
    index = _only(r, a)
    if index is None or index.kind != "index":
        raise ValueError("it should compare lengths with the numbers of the steps")
    for axis, value in ((r.time, a), (r.batch, b)):
        for part in value.outer:
            axis.join(part)
    result, _ = aligned(a, b)
    return [Value(result.axes, r.mark("there", lengths.name).reshape(()))]


@reads("Where", table=LENGTHS)
def _where(r: Reading, node: Node, given: Given) -> Sequence[Value]:
    test, value, otherwise = (needed(given, k) for k in range(3))
    found = _only(r, test)
    if found is None or found.kind not in ("there", "any"):
        raise ValueError("it should choose by which steps samples have")
    result, _ = aligned(value, test)
    result, other = aligned(result, otherwise)
    if result.axes != value.axes:
        raise ValueError("what is chosen should have the shape of the result")
    sources = r.sources_of(value.array.reshape(-1))
    zeroed = all(r.lengths.get(source.name) == found.name for source, _ in sources)
    if found.kind == "there":
        if TIME not in [axis.role for axis in test.outer] or not other.known or bool(other.array.any()):
            raise ValueError("it should choose between sequences and zeros")
        zeroed = zeroed and all(source.ends is not None for source, _ in sources)
        return [value if zeroed else _masked(r, node, value, found.name)]
    if not zeroed:
        raise ValueError(f"it should choose of what recurrent nodes give with these lengths, {found.name!r}")
    return [Value(value.axes, _kept(r, sources, other).reshape(value.array.shape))]


def _masked(r: Reading, node: Node, value: Value, lengths: str) -> Value:
    """A sequence that is zero beyond these lengths."""
    value = r.settled(value)
    name, columns = r.named(node.outputs[0]), value.array.reshape(-1)
    made = r.add(runtime.Masked(name, [r.feed(columns)]), columns.size, steps=True)
    r.lengths[name] = lengths
    return Value(value.settled_axes(), made.reshape(value.array.shape))


def _kept(r: Reading, sources: Sequence[tuple[Source, Array]], other: Value) -> Array:
    """States that are the first ones where a sample has no steps."""
    flat, result, taken = other.array.reshape(-1), list[Array](), 0
    for source, run in sources:
        if source.kind != "state":
            raise ValueError("it should choose between last and first states")
        places, begin = run - source.start, r.states[source.name].get(source.state)
        first = flat[taken : taken + len(run)]
        taken += len(run)
        if begin is None and other.known and not first.any() and not r.is_learned(source.name):
            result.append(run)  # which is zero there anyway
        elif begin is not None and not other.known and bool((begin[places] == first).all()):
            result.append(r.mark("kept", source.name, source.stop - source.start, source.state)[places])
        else:
            raise ValueError(f"it should choose between last states and the first ones of {source.name!r}")
    return np.concatenate(result)


def _only(r: Reading, value: Value) -> Source | None:
    """What a value is that has one column."""
    return None if value.known or value.array.size != 1 else r.sources_of(value.array.reshape(-1))[0][0]
