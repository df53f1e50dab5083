"""The operators behind the modules of anyrnn.torch, for torch's own ONNX exporter."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anyrnn.errors import MissingExtraError, UnsupportedError
from anyrnn.onnx.writing_network import write_network
from anyrnn.onnx.writing_nodes import ELEMENT_TYPES, Writer, library

_NUMBERS = itertools.count()
"""Of calls that have been translated: values of one model need names of their own."""


class States(list[Any]):
    """The exporter names what a translation gives, one after the other; these are several values in one place."""

    name = ""

    def producer(self) -> None:
        """No node alone."""


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """What `torch.onnx.export` needs to export models with modules of anyrnn.torch, in evaluation mode.

    Layers and cells become RNN, GRU or LSTM nodes where their cell computes what these do, and without softplus, otherwise a
    Scan; sequences may be of any number of steps and samples where the exporter is told so. Layers that are called with lengths
    or masks are not exported; `anyrnn.onnx.export` exports layers that take lengths.

    Returns: a table for `custom_translation_table`.

    Raises: MissingExtraError without torch, onnx and onnxscript.

    Example:
        torch.onnx.export(model.eval(), (x,), "model.onnx", dynamo=True, custom_translation_table=anyrnn.onnx.translations())
    """
    library()
    try:
        _onnxscript()
        torch = importlib.import_module("torch")
        importlib.import_module("anyrnn.torch")  # which defines the operators
    except ImportError as error:
        message = 'torch.onnx.export needs torch, onnx and onnxscript: pip install "anyrnn[torch,onnx]"'
        raise MissingExtraError(message) from error
    return {torch.ops.anyrnn.forward.default: _forward}


def _forward(
    inputs: Sequence[Any],
    first: Sequence[Any],
    sources: Sequence[Any],
    seed: Any,
    counts: Sequence[int] | None,
    places: Any,
    number: int,
    keep: bool,
) -> tuple[Any, States, Any]:
    """`anyrnn::forward` as nodes: see `anyrnn.torch.operators`."""
    from anyrnn.torch.calls import CALLS

    call = CALLS[number]
    network = call.network
    if network.probabilities and seed is not None:
        raise UnsupportedError(f"cell {network.graph.name!r}: random choices cannot be exported; call eval() on the model first")
    if call.products == "int8":
        raise UnsupportedError(f"cell {network.graph.name!r}: ONNX models here have no products of int8; freeze() ends them")
    if counts is not None:
        sides = "samples of different lengths cannot be exported here; anyrnn.onnx.export(layer, lengths=True) takes lengths"
        raise UnsupportedError(f"cell {network.graph.name!r}: {sides}")
    name = {kind: name for name, kind in ELEMENT_TYPES.items()}.get(int(inputs[0].dtype))
    if name is None:
        raise UnsupportedError(f"cell {network.graph.name!r}: parameters should be float32 or float64 to be exported")
    dtype = np.dtype(name)
    writer = Writer(dtype, f"anyrnn{next(_NUMBERS)}_")
    given = {writer.name("given"): value for value in (*inputs, *first, *sources)}
    names = iter(given)
    of_inputs, of_first, of_sources = ([next(names) for _ in values] for values in (inputs, first, sources))
    own = [
        np.full((call.units, 1, size), s.init, dtype) for s, size in zip(network.graph.states, network.state_sizes, strict=True)
    ]
    written = write_network(writer, network, of_inputs, of_sources, first=of_first or None, own=own)
    output = _ends(writer, network, written.output) if call.ends else written.output
    output, *states = _recorded(writer, given, [output, *written.last, *written.more])
    steps, rows, _ = inputs[0].shape
    shapes = [[call.units, rows, size] for size in call.state_sizes] + [
        [call.units, steps, rows, size] for size in call.more_sizes
    ]
    for state, shape in zip(states, shapes, strict=True):  # the exporter does so for values that are not in a list
        state.shape, state.dtype = type(inputs[0].shape)(shape), inputs[0].dtype
    return output, States(states), _nothing()


def _ends(writer: Writer, network: Any, output: str) -> str:
    """The last step that each direction takes, [N, width]."""
    halves = [output]
    if network.directions == 2:
        halves = writer.several("Split", [output, writer.integers(*[network.output_size] * 2)], ["half"] * 2, axis=-1)
    steps = [writer.constant(0 if way else -1, "step", np.int64) for way in network.ways]
    return writer.joined([writer.node("Gather", y, step, hint="end") for y, step in zip(halves, steps, strict=True)], -1)


def _onnxscript() -> tuple[Any, Any]:
    """Its representation of graphs, and what records nodes now."""
    return importlib.import_module("onnxscript.ir"), importlib.import_module("onnxscript.evaluator").default()


def _nothing() -> Any:
    """What a backward call would need."""
    ir, tracer = _onnxscript()
    tracer.nodes.append(
        node := ir.node("Constant", [], {"value": ir.tensor(np.empty(0, np.uint8))}, version=tracer.opset.version)
    )
    return node.outputs[0]


def _recorded(writer: Writer, given: dict[str, Any], made: Sequence[str]) -> list[Any]:
    """Hand the nodes to the exporter. `given`: its values, by the names that they have here. Returns: its values for `made`."""
    ir, tracer = _onnxscript()
    read = writer.read()
    kinds = {name: writer.arrays[name].dtype.name for name in read}
    ports = [writer.port(name, kind, [None]) for name, kind in kinds.items()]
    ports += [writer.port(name, writer.dtype.name, [None]) for name in given]
    ends = [writer.port(name, writer.dtype.name, [None]) for name in made]
    graph = ir.from_proto(writer.graph(writer.nodes, "network", ports, ends, []))
    results = list(graph.outputs)
    for result in results:
        result.shape = None  # was not known
    constants = {name: ir.node("Constant", [], {"value": ir.tensor(writer.arrays[name], name=name)}) for name in read}
    for port in list(graph.inputs):
        value = constants[port.name].outputs[0] if port.name in constants else given[port.name]
        port.replace_all_uses_with(value)
    for name, node in constants.items():
        node.outputs[0].name = name
    graph.outputs.clear()
    nodes = list(graph)
    graph.remove(nodes)
    for node in (*constants.values(), *nodes):
        node.version = tracer.opset.version
        tracer.nodes.append(node)
    return results
