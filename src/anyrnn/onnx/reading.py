"""ONNX models as networks of the runtime.

Nothing is computed while a model is read: each of its nodes says what its values are, in terms of the layers of a network, or is
refused by name. The network has sequences [T, N, features], however the model turns them around; what an `Imported` is given and
gives is as the model has it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn import runtime
from anyrnn.numpy.state import RecurrentState
from anyrnn.onnx.reading_arithmetic import ARITHMETIC
from anyrnn.onnx.reading_file import FLOATS, Model, Node, Port, Source, library, read_model
from anyrnn.onnx.reading_graph import Reading
from anyrnn.onnx.reading_graph import Source as Columns
from anyrnn.onnx.reading_lengths import LENGTHS
from anyrnn.onnx.reading_networks import OPERATORS, WEIGHTS
from anyrnn.onnx.reading_pieces import PIECES
from anyrnn.onnx.reading_products import PRODUCTS
from anyrnn.onnx.reading_recurrent import RECURRENT
from anyrnn.onnx.reading_shapes import SHAPES, Handler
from anyrnn.onnx.reading_values import BATCH, FEATURE, TIME, Axis, Size, Value
from anyrnn.runtime.layers import Call, Layer
from anyrnn.sequence.packing import check_unmasked, integers

Array = npt.NDArray[Any]

NODES: Mapping[str, Handler] = {**SHAPES, **PIECES, **ARITHMETIC, **PRODUCTS, **RECURRENT, **LENGTHS}
"""What is read, by the names of ONNX's operators."""
MOST_NODES = 10_000


def read(source: Source, weights: Mapping[str, Any] | None = None) -> Imported:
    """An ONNX model: recurrent nodes, and the usual ones around them.

    Args:
        source: the content of a file, its path, or an `onnx.ModelProto`. Tensors outside of the file are read where they are in
            its own folder.
        weights: arrays for inputs of the model that are weights, by name; see `weight_inputs`.

    Returns: an `Imported`. Its `run({name: array})` takes and gives what the model does, in the model's layout; its `network`
    always has sequences [T, N, features], also where the model has samples first.

    Raises: ValueError for what is no such model, naming the node and what it cannot be; OSError; MissingExtraError without the
    package onnx. Nothing is computed before all is known.
    """
    try:
        return _read(with_weights(read_model(source), weights or {}), widens=False)
    except ValueError as error:
        name = "the bytes" if isinstance(source, bytes) else source if isinstance(source, (str, os.PathLike)) else "the model"
        raise ValueError(f"{name}: {error}") from None


def _read(model: Model, widens: bool) -> Imported:
    if len(model.nodes) > MOST_NODES:
        raise ValueError(f"expected at most {MOST_NODES} nodes, got {len(model.nodes)}")
    if unbound := [port.name for port in model.inputs if port.name in _named_as_weights(model)]:
        raise ValueError(f"inputs {', '.join(unbound)} are weights of recurrent nodes: give them as `weights`")
    r = Reading(model, widens=widens)
    with np.errstate(all="ignore"):  # constants may be any numbers
        for node in model.nodes:
            try:
                found = _results(r, node)
            except (ValueError, TypeError, IndexError, OverflowError, ZeroDivisionError) as error:  # the file may say anything
                raise ValueError(f"{node.label}: {error}") from None
            r.values |= found
        return _imported(r)


def weight_inputs(source: Source) -> list[str]:
    """The inputs of a model that are weights of its recurrent nodes. Raises: as `read`."""
    model = read_model(source)
    named = _named_as_weights(model)
    return [port.name for port in model.inputs if port.name in named]


def _named_as_weights(model: Model) -> set[str]:
    return {node.inputs[k] for node in model.nodes if node.op in OPERATORS for k in WEIGHTS.values() if k < len(node.inputs)}


def with_weights(model: Model, weights: Mapping[str, Any]) -> Model:
    """With some of its inputs as constants. Raises: ValueError for others."""
    if not weights:
        return model
    ports = {port.name: port for port in model.inputs}
    arrays: dict[str, Array] = {}
    for name, given in weights.items():
        if name not in ports:
            raise ValueError(f"weights: the model has no input {name!r}; it has {', '.join(ports)}")
        check_unmasked(given, f"weights: {name}")
        arrays[name] = np.asarray(given)
        _check(ports[name], arrays[name])
    inputs = tuple([port for port in model.inputs if port.name not in arrays])
    return replace(model, constants={**model.constants, **arrays}, inputs=inputs)


def _results(r: Reading, node: Node) -> dict[str, Value]:
    """What a node makes, by name."""
    handler = NODES.get(node.op) if node.domain in ("", "ai.onnx") else None
    if handler is None:
        if node.op == "Scan":
            raise ValueError("a Scan is not read; of a cell that was exported from here keep the .safetensors")
        raise ValueError(f"nodes of this kind are not read; those that are: {', '.join(sorted(NODES))}")
    _check_node(node, r.model.opset)
    given = [_plain(r, name) if name else None for name in node.inputs]
    found = handler(r, node, given)
    ignored = node.attributes.keys() - node.used
    if ignored:
        raise ValueError(f"attribute {min(ignored)!r} is not read")
    if missing := [name for name in node.outputs[len(found) :] if name]:
        raise ValueError(f"its output {missing[0]!r} is not among those that are read")
    return {name: value for name, value in zip(node.outputs, found, strict=False) if name}


def _plain(r: Reading, name: str) -> Value:
    """A value with what has turned out to be features."""
    value, found = r.values[name], r.values[name].plain()
    if found.array.size > value.array.size:
        r.spend(found.array.size)
        r.values[name] = found
    return found


def _check_node(node: Node, opset: int) -> None:
    """Raises: ValueError for what the model's version of an operator does not have."""
    defs = library().defs
    try:
        schema = defs.get_schema(node.op, opset)
    except defs.SchemaError:
        raise ValueError(f"version {opset} of ONNX's operators has none of this name") from None
    if not schema.min_input <= len(node.inputs) <= schema.max_input or len(node.outputs) > schema.max_output:
        counts = f"{len(node.inputs)} inputs and {len(node.outputs)} outputs"
        raise ValueError(
            f"expected {schema.min_input} to {schema.max_input} inputs and up to {schema.max_output} outputs, got {counts}"
        )
    unknown = node.attributes.keys() - schema.attributes.keys()
    if unknown:
        raise ValueError(f"it has no attribute {min(unknown)!r}; it has {', '.join(sorted(schema.attributes)) or 'none'}")


def _check(port: Port, array: Array) -> None:
    """Raises: TypeError, ValueError for an array that is not as a model has it."""
    if array.dtype.name != port.dtype:
        raise TypeError(f"{port.name} should be an array of {port.dtype}, got {array.dtype}")
    dims = port.dims
    if dims is not None and (
        array.ndim != len(dims) or any(isinstance(d, int) and d != n for d, n in zip(dims, array.shape, strict=True))
    ):
        raise ValueError(f"{port.name} should have shape {_shown(dims)}, got {list(array.shape)}")


def _shown(dims: tuple[int | str | None, ...]) -> str:
    return f"[{', '.join('?' if d is None else str(d) for d in dims)}]"


# from columns to a network


def _imported(r: Reading) -> Imported:
    outputs: dict[str, Value] = {}
    for port in r.model.outputs:
        value = r.values[port.name].plain()
        try:
            outputs[port.name] = _output(r, value)
        except ValueError as error:
            raise ValueError(f"output {port.name!r}: {error}") from None
    shown = dict.fromkeys(
        source.name
        for value in outputs.values()
        if not value.known
        for source, _ in r.sources_of(value.array.reshape(-1))
        if source.kind not in ("state", "kept")
    )
    layers = _wanted(r, outputs)
    read = {name for layer in layers for name in layer.inputs}
    ports = {source.name: source for source in r.sources if source.kind == "input"}
    given: list[runtime.Input] = []
    for name, source in ports.items():
        if name in read or name in shown:
            _check_axes(r, source, steps=True)
            assert source.port is not None
            dtype = source.port.dtype
            if dtype in FLOATS and dtype != (r.dtype or dtype):
                raise ValueError(f"input {name!r} should be {r.dtype}, as the weights are, got {dtype}")
            given.append(runtime.Input(name, len(source.columns()) if dtype in FLOATS else None))
    for by_state in (r.states.get(layer.name, {}) for layer in layers):
        for columns in by_state.values():
            for source, _ in r.sources_of(columns):
                _check_axes(r, source, steps=False)
    if not layers or not given:
        raise ValueError("no layer computes its outputs of its inputs")
    network = runtime.Network(given, layers, list(shown) or None)
    if r.dtype and network.dtype.name != r.dtype:
        raise ValueError(f"its weights should be {r.dtype}, got {network.dtype}")
    return Imported(network, r, outputs)


def _output(r: Reading, value: Value) -> Value:
    """The same value, as columns of layers that the network has."""
    if value.known:
        if any(isinstance(n, Size) for n in value.array.reshape(-1).tolist()):
            raise ValueError("it is made of the sizes of what a call is given")
        return Value.of(value.numbers)
    flat = value.array.reshape(-1)
    if all(source.kind in ("state", "kept") for source, _ in r.sources_of(flat)):
        return value
    steps = r.has_steps(value)
    name = r.feed(flat)
    roles = [axis.role for axis in value.outer]
    if None in roles or len(set(roles)) != len(roles) or (TIME in roles and not steps):
        raise ValueError(f"cannot tell which of its axes are steps and samples: {value.sizes}")
    source = next(s for s in r.sources if s.name == name and s.kind in ("layer", "input"))
    return Value(value.axes, source.columns().reshape(value.array.shape))


def _wanted(r: Reading, outputs: Mapping[str, Value]) -> list[Layer]:
    """The layers that outputs need, in order."""
    needed = {source.name for value in outputs.values() if not value.known for source, _ in r.sources_of(value.array.reshape(-1))}
    for layer in reversed(list(r.layers.values())):
        if layer.name in needed:
            needed |= set(layer.inputs)
    return [layer for layer in r.layers.values() if layer.name in needed]


def _check_axes(r: Reading, source: Columns, steps: bool) -> None:
    """Raises: ValueError unless the axes of an input are known to be steps, samples and features."""
    roles = [axis.role for axis in source.axes]
    unclear = [axis.label for axis in source.axes if axis.role is None]
    if unclear:
        raise ValueError(f"{unclear[0]}: no node says whether it is steps, samples or features")
    for role, axis, wanted in ((TIME, r.time, steps), (BATCH, r.batch, True)):
        if roles.count(role) > int(wanted) or (wanted and role not in roles and axis.size != 1):
            how = "is" if wanted else "should not be"
            raise ValueError(f"input {source.name!r}: one axis {how} {role}, got {[str(r) for r in roles]}")


class Imported:
    """A model that was read.

    `network` is what runs: it takes and gives sequences [T, N, features], and can be called step after step where no layer needs
    whole sequences. `inputs` and `outputs` are the model's own. `run` calls it as the model is called: by its names, with its
    shapes.

    Example:
        >>> from onnx import TensorProto, helper, numpy_helper
        >>> import numpy as np
        >>> from anyrnn.onnx import reading
        >>> weights = {"W": np.ones((1, 5, 3)), "R": np.ones((1, 5, 5))}
        >>> graph = helper.make_graph(
        ...     [helper.make_node("RNN", ["x", "W", "R"], ["y"])],
        ...     "example",
        ...     [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["T", "N", 3])],
        ...     [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["T", 1, "N", 5])],
        ...     [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
        ... )
        >>> model = reading.read(helper.make_model(graph).SerializeToString())
        >>> model.run({"x": np.zeros((7, 2, 3), np.float32)})["y"].shape
        (7, 1, 2, 5)
    """

    def __init__(self, network: runtime.Network, reading: Reading, outputs: Mapping[str, Value]) -> None:
        self.network = network
        self.inputs, self.outputs = reading.model.inputs, reading.model.outputs
        self._r, self._values = reading, outputs

    @property
    def fixed_lengths(self) -> bool:
        """Whether the model itself says how long samples are; the network by itself does not."""
        return any(not isinstance(lengths, str) for lengths in self._r.lengths.values())

    @property
    def lengths(self) -> list[str]:
        """The inputs that say how many steps samples have, of any recurrent layer."""
        return list(dict.fromkeys(given for given in self._r.lengths.values() if isinstance(given, str)))

    @property
    def with_lengths(self) -> set[str]:
        """The layers that look at what samples have by such an input."""
        return {name for name, given in self._r.lengths.items() if isinstance(given, str)}

    def steps(self, usual: int) -> int:
        """Of a call of so many where the model does not fix them."""
        return self._r.time.size or usual

    def shape_of(self, port: Port, steps: int, samples: int) -> list[int]:
        """Of an input in a call of so many steps and samples where the model does not fix them."""
        sizes = {TIME: self.steps(steps), BATCH: self._r.batch.size or samples}
        source = next(source for source in self._r.sources if source.kind == "input" and source.name == port.name)
        return [axis.size or sizes.get(axis.role or BATCH, samples) for axis in source.axes]

    @property
    def batch_first(self) -> bool:
        """Whether samples stand before steps in all of its inputs that have both."""
        orders = [[axis.found().role for axis in source.axes] for source in self._r.sources if source.kind == "input"]
        both = [order for order in orders if TIME in order and BATCH in order]
        return bool(both) and all(order.index(BATCH) < order.index(TIME) for order in both)

    def in_float64(self) -> Imported:
        """The same model with weights and inputs of float64 where it has float32: what it computes in exact arithmetic, or
        nearly. Raises: ValueError as `read`.
        """
        model = self._r.model
        inputs = tuple([replace(port, dtype="float64") if port.dtype == "float32" else port for port in model.inputs])
        return _read(replace(model, inputs=inputs), widens=True)

    def __repr__(self) -> str:
        return (
            f"Imported: {', '.join(p.name for p in self.inputs)} -> {', '.join(p.name for p in self.outputs)}\n{self.network!r}"
        )

    def run(self, given: Mapping[str, Array] | Any) -> dict[str, Array]:
        """The model's outputs by name, for its inputs by name, in the model's shapes. Lengths may be any integers.

        Raises: TypeError, ValueError for wrong dtypes and shapes, and names that the model does not have.
        """
        if not isinstance(given, Mapping):
            form = ", ".join(f"{port.name!r}: .." for port in self.inputs)
            raise TypeError(f"expected the inputs by name, {{{form}}}, got {type(given).__name__}")
        if set(given) != {port.name for port in self.inputs}:
            wanted = ", ".join(port.name for port in self.inputs)
            raise ValueError(f"expected the inputs {wanted}, got {', '.join(given) or 'none'}")
        sizes: dict[Axis, int] = {}
        values: dict[tuple[str, str], Array] = {}
        for source in self._r.sources:
            if source.kind == "input":
                values["input", source.name] = self._canonical(source, given[source.name], sizes)
        steps, samples = (sizes.get(axis.found(), 1) for axis in (self._r.time, self._r.batch))
        call = Call(None, self._states(values, samples))
        by_layer = {name: array for (_, name), array in values.items()}
        for layer in self.network.layers:
            lengths = self._r.lengths.get(layer.name)
            call.lengths = self._lengths(lengths, values, steps, samples)
            by_layer[layer.name] = values["layer", layer.name] = layer.run(call, *[by_layer[name] for name in layer.inputs])
        for name, state in call.after.items():
            lengths = self._lengths(self._r.lengths.get(name), values, steps, samples)
            for key, array in zip(state.names, state.arrays, strict=True):
                flat = samples, len(array) * array.shape[-1]
                values[f"kept {key}", name] = array.transpose(1, 0, 2).reshape(flat)
                if lengths is not None:  # as onnxruntime has it, the states of samples without steps are zero
                    array = np.where((lengths > 0)[:, None], array, np.zeros_like(array))
                values[f"state {key}", name] = array.transpose(1, 0, 2).reshape(flat)
        return {name: self._given_back(value, values, sizes) for name, value in self._values.items()}

    def _canonical(self, source: Columns, array: Any, sizes: dict[Axis, int]) -> Array:
        """An input as the network has it: [T, N, features], or of classes [T, N]; one step where it has no steps."""
        port = source.port
        assert port is not None
        if port.name in self.lengths:
            array, port = integers(array, port.name), replace(port, dtype="int64")
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{port.name} should be a NumPy array, got a {type(array).__name__}")
        check_unmasked(array, port.name)
        _check(port, array)
        for axis, size in zip(source.axes, array.shape, strict=True):
            expected = sizes.setdefault(axis.found(), size) if axis.size is None else sizes.setdefault(axis.found(), axis.size)
            if size != expected:
                raise ValueError(f"{port.name}: {axis.label} should have the size {expected}, as elsewhere, got {size}")
        found = [axis.found() for axis in source.axes]
        order = [k for role in (TIME, BATCH, FEATURE) for k, axis in enumerate(found) if axis.role == role]
        if len(order) != array.ndim:
            return array  # one that no layer reads
        turned = array.transpose(order)
        sides = [sizes[axis.found()] if axis in found else 1 for axis in (self._r.time.found(), self._r.batch.found())]
        features = [] if port.dtype not in FLOATS else [len(source.columns())]
        return np.ascontiguousarray(turned).reshape(*sides, *features)

    def _states(self, values: Mapping[tuple[str, str], Array], samples: int) -> dict[str, RecurrentState]:
        """First states that the model is given, by layer."""
        found = {}
        for name, layer in self.network.recurrent.items():
            by_state = self._r.states.get(name)
            if not by_state:
                continue
            usual = layer.runner.initial_state(samples) if samples else layer.runner.initial_state(1).index([])
            arrays = []
            for state, array in zip(usual.names, usual.arrays, strict=True):
                if state in by_state:
                    (flat,) = self._gathered(by_state[state], values)  # inputs have steps, states one
                    sides = samples, len(array), array.shape[-1]
                    array = np.ascontiguousarray(flat.reshape(sides).transpose(1, 0, 2))
                arrays.append(array)
            found[name] = RecurrentState(usual.names, tuple(arrays))
        return found

    def _gathered(self, columns: Array, values: Mapping[tuple[str, str], Array]) -> Array:
        """Columns of what inputs, layers and states hold, side by side."""
        found = []
        for source, run in self._r.sources_of(columns):
            kind = f"{source.kind} {source.state}" if source.state else source.kind
            everything, array = source.columns(), values[kind, source.name]
            whole = len(run) == len(everything) and bool((run == everything).all())
            place = {} if whole else {column: k for k, column in enumerate(everything.tolist())}
            found.append(array if whole else array[..., [place[column] for column in run.tolist()]])
        return found[0] if len(found) == 1 else np.concatenate(found, -1)

    def _lengths(
        self, lengths: str | Array | None, values: Mapping[tuple[str, str], Array], steps: int, samples: int
    ) -> Array | None:
        if lengths is None:
            return None
        array = values["input", lengths].reshape(-1) if isinstance(lengths, str) else lengths
        who = lengths if isinstance(lengths, str) else "sequence_lens"
        if array.shape != (samples,) or (samples and (array.min() < 0 or array.max() > steps)):
            raise ValueError(f"{who} should be {samples} lengths from 0 to {steps}, got {array.tolist()}")
        return array

    def _given_back(self, value: Value, values: Mapping[tuple[str, str], Array], sizes: Mapping[Axis, int]) -> Array:
        """An output as the model has it."""
        if value.known:
            return value.numbers.copy()
        array = self._gathered(value.array.reshape(-1), values)  # [T, N, features] or [N, features]
        array = array.reshape(*array.shape[: array.ndim - 1], *value.array.shape)
        outer = array.ndim - value.array.ndim
        place = {TIME: outer - 2, BATCH: outer - 1}
        order: list[int] = []
        shape: list[int] = []
        inside = outer
        for parts in value.axes:
            size = 1
            for part in parts:
                if isinstance(part, Axis):
                    order.append(place[part.role or ""])
                else:
                    order.append(inside)
                    inside += 1
                size *= array.shape[order[-1]]
            shape.append(size)
        left = [k for k in range(array.ndim) if k not in order]  # steps or samples of which there is one
        return np.ascontiguousarray(array.transpose([*left, *order])).reshape(shape)
