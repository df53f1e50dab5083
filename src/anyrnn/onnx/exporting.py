"""Recurrent layers, and networks at run time, as ONNX models."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn._files import written_aside
from anyrnn.errors import UnsupportedError
from anyrnn.numpy.parameters import taken
from anyrnn.onnx.writing_layers import Call, masked, write_layer
from anyrnn.onnx.writing_network import NODES, Nodes, lengths_of, write_recurrent
from anyrnn.onnx.writing_nodes import OPSET, Writer, library
from anyrnn.runtime import Flatten
from anyrnn.runtime import Network as Whole
from anyrnn.sequence.network import Network
from anyrnn.sequence.packing import as_array

Array = npt.NDArray[Any]
OLDEST = 15
"""The first one with all that is written."""
MOST_BYTES = 2**31 - 2**20
"""Of constants: a model is one message of at most 2 GiB."""


def export(
    layer: Any,
    file: str | os.PathLike[str] | None = None,
    *,
    states: bool = False,
    lengths: bool = False,
    nodes: Nodes = "auto",
    opset: int = OPSET,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> Any:
    """A layer or a network as an ONNX model, as calls run it that do not train.

    Layers whose cell computes what ONNX's RNN, GRU or LSTM does are such nodes, whatever the cell is called; others are a Scan
    whose body is the cell's step. The model takes sequences of any number of steps and samples (the axes `time` and `batch`), in
    the layout of the layer. It needs no package of ours to run.

    Args:
        layer: `anyrnn.Recurrent`, or a module `anyrnn.torch.Recurrent`, `LSTM`, ..., or an `anyrnn.runtime.Network`. For torch's
            models of several modules, and for cells, see `translations`.
        file: where to write the model too.
        states: whether it takes the states before the first step, [layers * directions, N, size] each, after the other inputs.
            Otherwise sequences begin with the layer's own.
        lengths: whether it takes an int32 vector that says how many steps each sample has, as the last input. In steps beyond,
            outputs are zero. Each direction begins at its own end of a sample.
        nodes: `auto`; `standard` for RNN, GRU and LSTM nodes alone, also in float64, which onnxruntime has none of, and with
            softplus, which overflows there; or `scan` for none of them.
        opset: the version of ONNX's operators, from 15.
        input_names, output_names: other names for the inputs and outputs. By default inputs are called as the cell's function
            calls them, then `h0`, `c0` and so on by the names of the states, then `lengths`; outputs are `output` (with
            merge="separate" `output` and `output_reverse`), then the last states, `h_n`, `c_n` and so on. Of a network inputs and
            outputs are called as it calls them, and states have the name of their layer and an underscore before their own.

    Returns: the `onnx.ModelProto`.

    Raises: TypeError for what is no layer; ValueError for other arguments that cannot be, and for models beyond 2 GiB;
    UnsupportedError for products of int8, where standard nodes are asked for and there are none, for lengths of what reads all
    steps at once (`runtime.Flatten`), for the last steps of two directions that are made one (`merge`), and for layers that are
    none of `anyrnn.runtime`'s own; MissingExtraError without the package onnx.

    Example:
        >>> import anyrnn, anyrnn.onnx
        >>> model = anyrnn.onnx.export(anyrnn.Recurrent("lstm", 3, 5, seed=0))
        >>> [node.op_type for node in model.graph.node]
        ['LSTM', 'Squeeze']
    """
    onnx = library()
    if nodes not in NODES:
        raise ValueError(f"export: nodes should be one of {', '.join(NODES)}, got {nodes!r}")
    newest = onnx.defs.onnx_opset_version()
    if isinstance(opset, bool) or not isinstance(opset, int) or not OLDEST <= opset <= newest:
        raise ValueError(f"export: opset should be from {OLDEST} to {newest}, got {opset!r}")
    if getattr(layer, "int8", False):
        raise UnsupportedError("export: ONNX models here have no products of int8; export what is of float32, and quantise that")
    whole = _of_network(layer, states) if isinstance(layer, Whole) else _of_layer(layer, states)
    if whole.bytes > MOST_BYTES:
        raise ValueError("export: the parameters take more than 2 GiB, which an ONNX model cannot hold")
    sides = [*whole.inputs, Port("lengths", "int32", ("batch",))] if lengths else whole.inputs
    inputs = _named("input_names", sides, input_names)
    outputs = _named("output_names", whole.outputs, output_names)
    _check_names([port.name for port in (*inputs, *outputs)])
    writer = Writer(whole.dtype, opset=opset)
    names = [writer.name(port.name) for port in inputs]
    for port in outputs:
        writer.name(port.name)
    values = whole.write(writer, names[: len(whole.inputs)], names[-1] if lengths else None, nodes)
    model = _model(onnx, writer, whole.name, inputs, outputs, values)
    if file is not None:
        with written_aside(file) as aside:
            aside.write_bytes(model.SerializeToString())
    return model


@dataclass(frozen=True)
class Port:
    """An input or output of a model."""

    name: str
    dtype: str
    dims: tuple[int | str, ...]


@dataclass(frozen=True)
class Written:
    """What is to be exported. `write` appends its nodes to a graph: given the names of the inputs, that of the lengths if there
    are any, and which nodes; it gives the values of the outputs.
    """

    name: str
    dtype: np.dtype[Any]
    bytes: int
    inputs: list[Port]
    outputs: list[Port]
    write: Callable[[Writer, Sequence[str], str | None, Nodes], list[str]]


def _of_layer(layer: Any, states: bool) -> Written:
    try:
        network, parameters = taken(layer, "export: the layer")
    except TypeError as error:
        if not hasattr(layer, "named_modules") or hasattr(layer, "network"):
            raise
        whole = "torch.onnx.export(..., dynamo=True, custom_translation_table=anyrnn.onnx.translations())"
        raise TypeError(f"{error}; models of torch with such layers are exported by {whole}") from None
    dtype = next((array.dtype for array in parameters.values()), None) or as_array(layer.initial_state(1).arrays[0]).dtype
    batch_first = layer.batch_first
    graph, both, count = network.graph, network.merge == "separate", len(network.graph.inputs)
    sizes = [shape[0].evaluate(dict(network.sizes)) if shape else 1 for _, shape in graph.inputs]
    inputs = [Port(name, dtype.name, (*_sides(batch_first), size)) for (name, _), size in zip(graph.inputs, sizes, strict=True)]
    inputs += _of_states(network, dtype, "", "0") if states else []
    width = network.output_size if both else network.width
    outputs = [Port(n, dtype.name, (*_sides(batch_first), width)) for n in ("output", *(["output_reverse"] if both else []))]

    def write(writer: Writer, given: Sequence[str], lengths: str | None, nodes: Nodes) -> list[str]:
        sequences = [_laid_out(writer, x, batch_first) for x in given[:count]]
        held = None if lengths is None else lengths_of(writer, sequences[0], lengths)
        first = given[count:] if states else None
        made = write_recurrent(writer, network, parameters, sequences, first=first, lengths=held, nodes=nodes)
        halves = [made.output]
        if both:
            halves = writer.several("Split", [made.output, writer.integers(width, width)], ["half"] * 2, axis=-1)
        return [*(_laid_out(writer, y, batch_first) for y in halves), *made.last]

    outputs += _of_states(network, dtype, "", "_n")
    return Written(graph.name, dtype, _bytes(parameters), inputs, outputs, write)


def _of_network(network: Whole, states: bool) -> Written:
    steps = next((layer.steps for layer in network.layers if isinstance(layer, Flatten)), "time")
    kind, order = network.dtype.name, _sides(network.batch_first, steps)
    inputs = [
        Port(i.name, "int64" if i.size is None else kind, order if i.size is None else (*order, i.size)) for i in network.inputs
    ]
    count = len(inputs)
    if states:
        for name, layer in network.recurrent.items():
            inputs += _of_states(layer.network, network.dtype, f"{name}_", "0")
    outputs: list[Port] = []
    for name in network.outputs:
        made = network.specs[name]
        size, features = made.size, () if made.size is None else (made.size,)
        outputs.append(Port(name, "int64" if size is None else kind, (*(order if made.steps else ("batch",)), *features)))
    for name, layer in network.recurrent.items():
        outputs += _of_states(layer.network, network.dtype, f"{name}_", "_n")

    def write(writer: Writer, given: Sequence[str], lengths: str | None, nodes: Nodes) -> list[str]:
        values = {}
        for port, x in zip(network.inputs, given, strict=False):
            values[port.name] = _laid_out(writer, x, network.batch_first, port.size is None)
        held = None if lengths is None else lengths_of(writer, next(iter(values.values())), lengths)
        left = iter(given[count:])
        before = {n: [next(left) for _ in layer.network.graph.states] for n, layer in network.recurrent.items() if states}
        call = Call(held, before, nodes)
        if held is not None:
            values = {name: masked(writer, x, held, network.specs[name].size is None, "given") for name, x in values.items()}
        for layer in network.layers:
            specs = [network.specs[name] for name in layer.inputs]
            values[layer.name] = write_layer(writer, layer, call, specs, [values[name] for name in layer.inputs])
        results = []
        for name in network.outputs:
            value, of_classes = values[name], network.specs[name].size is None
            if network.specs[name].steps:
                value = value if held is None else masked(writer, value, held, of_classes, name)
                value = _laid_out(writer, value, network.batch_first, of_classes)
            results.append(value)
        return [*results, *(value for name in network.recurrent for value in call.after[name])]

    return Written("network", network.dtype, _bytes(network.parameters), inputs, outputs, write)


def _sides(batch_first: bool, steps: int | str = "time") -> tuple[int | str, int | str]:
    return ("batch", steps) if batch_first else (steps, "batch")


def _of_states(network: Network, dtype: np.dtype[Any], before: str, after: str) -> list[Port]:
    sizes = zip(network.graph.state_names, network.state_sizes, strict=True)
    return [Port(f"{before}{state}{after}", dtype.name, (len(network.units), "batch", size)) for state, size in sizes]


def _bytes(parameters: Mapping[str, Array]) -> int:
    return sum(array.nbytes for array in parameters.values())


def _laid_out(writer: Writer, x: str, batch_first: bool, of_classes: bool = False) -> str:
    """From [T, N, ..] to the caller's layout, or back."""
    return writer.turned(x, 1, 0, *([] if of_classes else [2])) if batch_first else x


def _named(who: str, ports: Sequence[Port], names: Sequence[str] | None) -> list[Port]:
    """With other names, if they are given. Raises: ValueError."""
    if names is None:
        return list(ports)
    if isinstance(names, str) or len(names) != len(ports):
        raise ValueError(f"export: {who} should be {len(ports)} names, for {', '.join(p.name for p in ports)}; got {names!r}")
    return [replace(port, name=name) for port, name in zip(ports, names, strict=True)]


def _check_names(names: Sequence[Any]) -> None:
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) != len(names):
        came, fix = ", ".join(map(str, names)), "give others as input_names or output_names"
        raise ValueError(f"export: inputs and outputs should have names, each another one, got {came}; {fix}")


def _model(onnx: Any, writer: Writer, name: str, inputs: Sequence[Port], outputs: Sequence[Port], values: Sequence[str]) -> Any:
    for port, value in zip(outputs, values, strict=True):
        writer.nodes.append(onnx.helper.make_node("Identity", [value], [port.name], name=writer.name(f"node_{port.name}")))
    _without_copies(writer, {port.name for port in inputs})
    given, made = ([writer.port(port.name, port.dtype, port.dims) for port in ports] for ports in (inputs, outputs))
    imports = [onnx.helper.make_opsetid("", writer.opset)]
    version = onnx.helper.find_min_ir_version_for(imports)
    graph = writer.graph(writer.nodes, name, given, made, writer.read())
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=version, producer_name="anyrnn")


def _without_copies(writer: Writer, inputs: Container[str]) -> None:
    """Let values that are outputs have their names, where they are no inputs and not several outputs."""
    renamed: dict[str, str] = {}
    for node in list(writer.nodes):
        if (
            node.op_type == "Identity"
            and not {node.input[0]} & (renamed.keys() | writer.arrays.keys())
            and node.input[0] not in inputs
        ):
            renamed[node.input[0]] = node.output[0]
            writer.nodes.remove(node)
    for node in writer.nodes:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
