"""From the values of an ONNX graph to layers of the runtime: which columns are whose, and what each input's axes are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn import runtime
from anyrnn.onnx import reading_layers
from anyrnn.onnx.reading_file import FLOATS, INTEGERS, Model, Port
from anyrnn.onnx.reading_values import BATCH, FEATURE, MOST_FEATURES, TIME, Axis, Value
from anyrnn.runtime.layers import Layer

Array = npt.NDArray[Any]


NOT_COMPUTED = {
    "first": "a first step is read of directions alone that go backwards, not that of",
    "kept": "what a state is where a sample has no steps can be an output of the model, not be computed with: that of",
    "index": "the numbers of steps can be compared with lengths, and nothing else",
    "there": "which steps are there can choose between outputs and zeros, and nothing else: by",
    "any": "whether there are steps can choose between last and first states, and nothing else: by",
}
"""Sources that no layer gives, though nodes may mention them."""
MOST_LAYERS = 1000
MOST_RUNS = 256
"""Of features that are taken from a layer in another order."""


@dataclass(frozen=True)
class Source:
    """What columns belong to: an input, a layer, or a state that a layer has in the end. References to its columns are the
    numbers from `start` up to `stop`, of an input as its axes' strides say.
    """

    kind: str
    name: str
    start: int
    stop: int
    state: str = ""
    steps: bool = True
    port: Port | None = None
    axes: tuple[Axis, ...] = ()
    ends: tuple[Array, Array] | None = None
    """Of a recurrent layer: for each column which step of the sequence is its direction's last (-1 or 0), and its reference as a
    state."""

    def columns(self) -> Array:
        """References to all of its columns, as a call has them, in order."""
        if self.kind != "input":
            return np.arange(self.start, self.stop)
        found = np.array(self.start)
        for axis in self.axes:
            if axis.role == FEATURE:
                found = found[..., None] + np.arange(axis.size or 0) * axis.stride
        return found.reshape(-1)


@dataclass
class Reading:
    """A model while it is read."""

    model: Model
    values: dict[str, Value] = field(default_factory=dict)
    layers: dict[str, Layer] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    lengths: dict[str, str | Array] = field(default_factory=dict)
    """Of layers whose samples have lengths: these, or the input that has them."""
    states: dict[str, dict[str, Array]] = field(default_factory=dict)
    """By layer and state, the columns of inputs that are its first values, [directions * hidden]."""
    dtype: str = ""
    """Of all weights and features."""
    widens: bool = False
    """Read float32 as float64, whatever the file says."""

    def __post_init__(self) -> None:
        self.time, self.batch = Axis("the steps", role=TIME), Axis("the samples", role=BATCH)
        self.left = 2**21 + 16 * self.model.numbers
        """How many numbers may be moved while the model is read."""
        self._of_layer: dict[str, Source] = {}
        self._made: dict[tuple[Any, ...], str] = {}
        self._starts = np.empty(0, np.int64)
        for port in self.model.inputs:
            self.values[port.name] = self._input(port)
        for name, array in self.model.constants.items():
            self.values[name] = Value.of(array)

    # constants

    def spend(self, numbers: int) -> None:
        """Before numbers, or references to columns, are moved. Raises: ValueError for more than a model of this size can need."""
        self.left -= numbers
        if self.left < 0:
            raise ValueError("the model makes more of its numbers than a model of its size can need")

    def of_dtype(self, array: Array) -> Array:
        """Weights, of the one dtype that all have. Raises: ValueError for others."""
        if self.widens and array.dtype == np.float32:
            array = array.astype(np.float64)
        if array.dtype.name not in FLOATS or array.dtype.name != (self.dtype or array.dtype.name):
            expected = f"{self.dtype}, as those of the nodes before" if self.dtype else " or ".join(FLOATS)
            raise ValueError(f"weights should be {expected}, got {array.dtype}")
        self.dtype = array.dtype.name
        self.spend(array.size)  # for they are copied
        return array

    # sources

    def _input(self, port: Port) -> Value:
        if port.dims is None or len(port.dims) > 8:
            raise ValueError(f"input {port.name!r}: its shape should be given, of at most 8 axes")
        if port.dtype not in (*FLOATS, *INTEGERS):
            raise ValueError(f"input {port.name!r}: expected {', '.join((*FLOATS, *INTEGERS))}, got {port.dtype}")
        axes: list[Axis] = []
        stride = 1
        for place, dim in reversed(list(enumerate(port.dims))):
            size = dim if isinstance(dim, int) else None
            axes.insert(0, Axis(f"axis {place} of input {port.name!r}", size, stride=stride))
            stride *= 1 if size is None else size
        if not 1 <= stride < 2**40:
            raise ValueError(f"input {port.name!r}: its shape {list(port.dims)} is too large, or has no numbers")
        source = self._source(Source("input", port.name, 0, stride, port=port, axes=tuple(axes)))
        return Value(tuple([(axis,) for axis in axes]), np.array(source.start))

    def _source(self, source: Source) -> Source:
        start = self.sources[-1].stop if self.sources else 0
        self.sources.append(replace(source, start=start, stop=start + source.stop))
        self._starts = np.append(self._starts, start)
        return self.sources[-1]

    def sources_of(self, columns: Array) -> list[tuple[Source, Array]]:
        """Runs of columns of one source each."""
        if columns.size > MOST_FEATURES:
            raise ValueError(f"expected at most {MOST_FEATURES} features, got {columns.size}")
        which = np.searchsorted(self._starts, columns, "right") - 1
        ends = [0, *(np.flatnonzero(np.diff(which)) + 1), len(columns)]
        return [(self.sources[which[a]], columns[a:b]) for a, b in pairwise(ends) if b > a]

    def add(self, layer: Layer, size: int, steps: bool) -> Array:
        """References to the columns of a new layer."""
        if len(self.layers) == MOST_LAYERS:
            raise ValueError(f"expected at most {MOST_LAYERS} layers")
        self.spend(size)
        self.layers[layer.name] = layer
        source = self._of_layer[layer.name] = self._source(Source("layer", layer.name, 0, size, steps=steps))
        return source.columns()

    def add_recurrent(self, layer: runtime.Recurrent, hidden: int) -> tuple[Array, dict[str, Array]]:
        """References to the columns of a new layer that gives all steps, and to those of its states in the end."""
        network, name = layer.network, layer.name
        size = network.directions * hidden
        states = {s: self._source(Source("state", name, 0, size, s, steps=False)).columns() for s in network.graph.state_names}
        columns = self.add(layer, size, steps=True)
        ends = np.repeat([0 if way else -1 for way in network.ways], hidden)
        self._of_layer[name] = self.sources[-1] = replace(self.sources[-1], ends=(ends, states["h"]))
        return columns, states

    def is_learned(self, name: str) -> bool:
        """Whether a recurrent layer's first states are constants of the file that are not zero."""
        layer = self.layers[name]
        return isinstance(layer, runtime.Recurrent) and layer.network.learned_state

    def mark(self, kind: str, name: str, size: int = 1, state: str = "", steps: bool = False) -> Array:
        """References to what no layer gives."""
        return self._source(Source(kind, name, 0, size, state, steps)).columns()

    def named(self, name: str) -> str:
        """A name that no layer has yet. Values have names that are used once, and layers are called as they are."""
        while name in self.layers or name in self.values:
            name += "_"
        return name

    # what layers are given

    def has_steps(self, value: Value) -> bool:
        """Raises: ValueError for values of which some have steps and some have none."""
        self.spend(value.array.size)
        found = {source.steps for source, _ in self.sources_of(value.array.reshape(-1))}
        if len(found) != 1:
            raise ValueError("features that have steps cannot stand beside those that have none, or there are no features")
        return found.pop()

    def dtype_of(self, value: Value) -> str:
        """Of features: that of the weights, or before any is read that of the input. Raises: ValueError where it is integers."""
        of_inputs = {s.port.dtype for s, _ in self.sources_of(value.array.reshape(-1)) if s.port}
        dtypes = of_inputs | ({self.dtype} if self.dtype else set())
        if len(dtypes) != 1 or not dtypes <= set(FLOATS):
            raise ValueError(f"expected features of one dtype, {' or '.join(FLOATS)}, got {', '.join(sorted(dtypes))}")
        self.dtype = dtypes.pop()
        return self.dtype

    def settled(self, value: Value) -> Value:
        """A value that is computed with, whose last axis is features if it was not told until now.

        Raises: ValueError for a constant.
        """
        if value.known:
            raise ValueError("it computes with constants alone, which is not done: fold them when the model is exported")
        last = value.axes[-1] if value.axes else ()
        if len(last) == 1 and isinstance(last[0], Axis) and last[0].role is None and not last[0].is_settled:
            last[0].be(FEATURE)
        return value.plain()

    def feed(self, columns: Array) -> str:
        """The layer or input whose columns these are, all of them and in this order; made, where there is none."""
        self.spend(columns.size)
        pieces = [self._piece(source, run) for source, run in self.sources_of(columns)]
        if not pieces:
            raise ValueError("there are no features")
        if len(pieces) == 1:
            return pieces[0]
        steps = self.sources_of(columns[:1])[0][0].steps
        return self._once(
            ("joined", *pieces), lambda: runtime.Concatenate(self.named(f"{pieces[0]}.joined"), pieces), len(columns), steps
        )

    def _once(self, key: tuple[Any, ...], make: Callable[[], Layer], size: int, steps: bool) -> str:
        if key not in self._made:
            layer = make()
            self.add(layer, size, steps)
            self._made[key] = layer.name
        return self._made[key]

    def _piece(self, source: Source, run: Array) -> str:
        if source.kind in NOT_COMPUTED:
            raise ValueError(f"{NOT_COMPUTED[source.kind]} {source.name}".rstrip())
        name = self._last_state(source) if source.kind == "state" else source.name
        everything = source.columns()
        if len(run) == len(everything) and bool((run == everything).all()):
            return name
        places = _places(everything, run)
        runs = _runs(places)
        if len(runs) > MOST_RUNS:
            raise ValueError(f"features are wanted in another order, in {len(runs)} pieces; at most {MOST_RUNS} are taken")
        dtype = self.dtype_of(Value((), run))
        return self._once(
            ("chosen", name, *runs),
            lambda: reading_layers.chosen(self.named(f"{name}.chosen"), name, len(everything), runs, dtype),
            len(places),
            source.steps,
        )

    def _last_state(self, source: Source) -> str:
        """A layer that gives a state which a recurrent layer has in the end: that of its output."""
        layer = self.layers[source.name]
        assert isinstance(layer, runtime.Recurrent)
        network = layer.network
        if source.state != "h":
            raise ValueError(
                f"the last state {source.state} of {layer.name!r} can be an output of the model, not be computed with"
            )

        def make() -> Layer:
            name = self.named(f"{layer.name}.last")
            if layer.name in self.lengths:
                self.lengths[name] = self.lengths[layer.name]
            if network.ways == (0,):
                return runtime.Last(name, [layer.name])
            self.states[name] = self.states[layer.name]  # of a direction that reads backwards, the last step is the first
            return runtime.Recurrent(name, layer.inputs, network, layer.arrays, last=True)

        return self._once(("state", layer.name), make, network.width, steps=False)

    def at_end(self, columns: Array, step: int) -> Array:
        """The columns that a sequence's columns are at its last (-1) or first (0) step. Raises: ValueError for what has none."""
        flat = columns.reshape(-1)
        result = flat.copy()
        start = 0
        for source, run in self.sources_of(flat):
            if not source.steps:
                raise ValueError("what has no steps has no last one")
            found = result[start : start + len(run)]
            ends = np.zeros(len(run), np.bool_)
            if source.ends is not None and source.name not in self.lengths:
                steps, states = source.ends
                ends = steps[run - source.start] == step
                found[ends] = states[run - source.start][ends]
            if not ends.all():
                other = self._last(source) if step else self._first(source)
                found[~ends] = other.start + np.array(_places(source.columns(), run[~ends]))
            start += len(run)
        return result.reshape(columns.shape)

    def _first(self, source: Source) -> Source:
        """A first step, which no layer gives; but maybe nothing reads those of its columns that are no direction's last step."""
        self.mark("first", source.name, len(source.columns()))
        return self.sources[-1]

    def _last(self, source: Source) -> Source:
        name = self._once(
            ("end", source.name),
            lambda: runtime.Last(self.named(f"{source.name}.end"), [source.name]),
            len(source.columns()),
            False,
        )
        return self._of_layer[name]


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """Places as runs: from a first one up to another."""
    cuts = [0, *[k for k in range(1, len(places)) if places[k] != places[k - 1] + 1], len(places)]
    return [(places[a], places[b - 1] + 1) for a, b in pairwise(cuts)]


def _places(everything: Array, some: Array) -> list[int]:
    place = {column: k for k, column in enumerate(everything.tolist())}
    if not all(column in place for column in some.tolist()):
        raise ValueError("features are read of an axis that was told to be one after a layer was made of it")
    return [place[column] for column in some.tolist()]
