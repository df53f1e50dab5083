"""Recurrent networks as nodes of an ONNX graph: layers, directions, lengths and states around the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from anyrnn.errors import UnsupportedError
from anyrnn.numpy import parameters as numpy
from anyrnn.onnx.writing_nodes import ELEMENT_TYPES, Writer
from anyrnn.onnx.writing_steps import Steps
from anyrnn.sequence.network import Network
from anyrnn.weights.recognising import Standard, standard
from anyrnn.weights.table import SYSTEMS
from anyrnn.weights.tree import Concat, Part, Tree, parts_of

Array = npt.NDArray[Any]
Nodes = Literal["auto", "standard", "scan"]
NODES = ("auto", "standard", "scan")


@dataclass(frozen=True)
class Lengths:
    """How many steps samples have: int32 [N] as it was given, and int64 [1, N, 1]; bool [T, N, 1], which steps they have; bool
    [1, N, 1], who has any.
    """

    given: str
    count: str
    there: str
    any: str


def lengths_of(writer: Writer, x: str, given: str) -> Lengths:
    """For a sequence x [T, N, ..]; `given` is an int32 vector."""
    zero, one = writer.constant(0, "zero", np.int64), writer.constant(1, "one", np.int64)
    count = writer.node("Squeeze", writer.node("Shape", x, hint="steps", start=0, end=1), hint="count")
    steps = writer.reshaped(writer.node("Range", zero, count, one, hint="step"), -1, 1, 1, hint="step")
    column = writer.reshaped(writer.node("Cast", given, hint="lengths", to=ELEMENT_TYPES["int64"]), 1, -1, 1, hint="lengths")
    return Lengths(given, column, writer.node("Less", steps, column, hint="there"), writer.node("Less", zero, column, hint="any"))


def write_recurrent(
    writer: Writer,
    network: Network,
    parameters: Mapping[str, Array],
    inputs: Sequence[str],
    *,
    first: Sequence[str] | None = None,
    lengths: Lengths | None = None,
    nodes: Nodes = "auto",
) -> Written:
    """Append a recurrent network's nodes to a graph; its parameters become constants. For the arguments see `write_network`.

    Raises: ValueError, TypeError for parameters that do not fit; UnsupportedError as `write_network` does.
    """
    names = network.sources * len(network.units)
    found = numpy.sources(network, parameters, writer.dtype)
    constants = [writer.constant(array, name) for array, name in zip(found, names, strict=True)]
    own = numpy.own_states(network, parameters, writer.dtype)
    return write_network(writer, network, inputs, constants, first=first, own=own, lengths=lengths, nodes=nodes)


@dataclass(frozen=True)
class Written:
    """Values: the output [T, N, width]; the last states [units, N, size]; and what else steps give, [units, T, N, size]."""

    output: str
    last: list[str]
    more: list[str]


def write_network(
    writer: Writer,
    network: Network,
    inputs: Sequence[str],
    sources: Sequence[str],
    *,
    first: Sequence[str] | None = None,
    own: Sequence[Array] = (),
    lengths: Lengths | None = None,
    nodes: Nodes = "auto",
) -> Written:
    """Append a recurrent network's nodes to a graph.

    Args:
        writer: of the graph.
        network: as calls that do not train have it.
        inputs: the names of values, [T, N, features]: the input and the cell's further per-step inputs.
        sources: the names of what steps read of the parameters: `network.sources`, of all units one after the other.
        first: for each state the name of its first values, [units, N, size].
        own: where there are none, the cell's own [units, 1, size].
        lengths: how many steps samples have, see `lengths_of`. In steps beyond, outputs are zero.
        nodes: `auto` for RNN, GRU and LSTM nodes where the graph is one, in float32 (of float64 onnxruntime has none); `standard`
            for these alone; or `scan` for none of them.

    Raises: UnsupportedError when there is no standard node for the cell and one was asked for.
    """
    names = [name for name, _ in network.graph.inputs]
    count, below = len(network.sources), inputs[0]
    last: list[list[str]] = []
    more: list[list[str]] = []
    for layer in range(network.layers):
        sequences = dict(zip(names, [below, *inputs[1:]], strict=True))
        of_units = [u for u, unit in enumerate(network.units) if unit[0] == layer]
        weights = [weights_of(writer, network, layer, sources[u * count : (u + 1) * count]) for u in of_units]
        chosen = _standard(network, layer, writer.dtype, nodes)
        start: list[str] = []
        if chosen is None or first is not None or lengths is not None or any(np.any(array) for array in own):
            start = [_of_units(writer, network, first, own, k, of_units, below) for k in range(len(network.graph.states))]
        if chosen is not None:
            y, ends = _standard_node(writer, network, layer, chosen, weights, below, start, lengths.given if lengths else "")
            if lengths is not None:
                y, ends = _held(writer, y, ends, start, lengths)
            last.append(ends)
        else:
            y, ends, others = _scans(writer, network, layer, sequences, weights, start, lengths.there if lengths else None)
            last.append(ends)
            more.append(others)
        y = _merged(writer, network, y)
        below = writer.node("Add", below, y, hint="residual") if network.residual and layer else y
    joined, others = ([writer.joined(list(of_layers)) for of_layers in zip(*given, strict=True)] for given in (last, more))
    return Written(below, joined, others)


def _standard(network: Network, layer: int, dtype: np.dtype[Any], nodes: Nodes) -> Standard | None:
    if nodes == "scan" or (nodes == "auto" and dtype != np.float32):
        return None
    found = standard(network, layer)
    if found is not None and found.is_exact(dtype) and (nodes == "standard" or not found.overflows):
        return found
    if nodes == "standard":
        who, fix = f"nodes='standard': cell {network.graph.name!r}", "nodes='scan' writes a Scan"
        if found is None:
            raise UnsupportedError(f"{who} does not compute what an RNN, GRU or LSTM node does; {fix}")
        raise UnsupportedError(f"{who} has bounds or activations with numbers that float32, which nodes have, rounds; {fix}")
    return None


def weights_of(writer: Writer, network: Network, layer: int, sources: Sequence[str]) -> dict[int, str]:
    """What a unit's steps read of the parameters, by node."""
    by_name, sizes = dict(zip(network.sources, sources, strict=True)), network.layer_sizes(layer)
    shapes = dict(zip(network.sources, network.source_shapes(layer), strict=True))
    found = {}
    for weight in network.plan.phase.weights:
        value = by_name[weight.source]
        if weight.parameter is not None and weight.shape:
            rows = weight.shape[0].evaluate(sizes)
            if rows != shapes[weight.source][0]:
                value = writer.rows(value, weight.offset.evaluate(sizes), rows, weight.source)
        found[weight.node] = value
    return found


def _of_units(
    writer: Writer, network: Network, first: Sequence[str] | None, own: Sequence[Array], k: int, units: Sequence[int], x: str
) -> str:
    """A state's first values in some units, [units, N, size]."""
    if first is None:
        return writer.expanded(own[k][units[0] : units[-1] + 1], x, f"{network.graph.state_names[k]}_first")
    return first[k] if len(units) == len(network.units) else writer.rows(first[k], units[0], len(units))


def _merged(writer: Writer, network: Network, y: str) -> str:
    """The output of both directions as the layer's."""
    if not network.merges:
        return y
    halves = writer.several("Split", [y, writer.integers(*[network.output_size] * 2)], ["forward", "backward"], axis=-1)
    if network.merge == "mul":
        return writer.node("Mul", *halves, hint="merged")
    total = writer.node("Add", *halves, hint="merged")
    return total if network.merge == "sum" else writer.node("Mul", total, writer.constant(0.5), hint="merged")


# loops


def _scans(
    writer: Writer,
    network: Network,
    layer: int,
    sequences: Mapping[str, str],
    weights: Sequence[Mapping[int, str]],
    start: Sequence[str],
    there: str | None,
) -> tuple[str, list[str], list[str]]:
    """A layer as a Scan for each direction: the output, the last states [units, N, size], and what else steps give."""
    outputs: list[str] = []
    last: list[list[str]] = []
    more: list[list[str]] = []
    for k, direction in enumerate(network.ways):
        steps = Steps(writer, network, layer, direction, weights[k], sequences)
        axis = writer.integers(0)
        of_unit = [s if len(network.ways) == 1 else writer.rows(s, k, 1) for s in start]
        first = {n: writer.node("Squeeze", s, axis, hint=n) for n, s in zip(network.graph.state_names, of_unit, strict=True)}
        y, ends, others = steps.run(first, there)
        outputs.append(y)
        last.append([writer.node("Unsqueeze", s, axis, hint="last") for s in ends])
        more.append([writer.node("Unsqueeze", s, axis, hint="all") for s in others])
    ends, others = ([writer.joined(list(of_units)) for of_units in zip(*given, strict=True)] for given in (last, more))
    return writer.joined(outputs, -1, "both"), ends, others


# standard nodes


def _standard_node(
    writer: Writer,
    network: Network,
    layer: int,
    chosen: Standard,
    weights: Sequence[Mapping[int, str]],
    x: str,
    start: Sequence[str],
    lengths: str,
) -> tuple[str, list[str]]:
    """A layer as one node: its output [T, N, directions * H], and the last states by the graph's order. Without first states
    in `start` they are zero.
    """
    units, states = len(network.ways), network.graph.state_names
    sizes = {"input": network.layer_sizes(layer)[network.input_name], "hidden": network.output_size}
    arrays = {
        name: writer.joined(
            [writer.reshaped(_array(writer, chosen, tree, of_unit, sizes), 1, *shape) for of_unit in weights], 0, name
        )
        for name, (tree, shape) in _shaped(chosen, sizes).items()
    }
    first = [start[states.index(s)] for s in chosen.states if start]
    inputs = [x, arrays["W"], arrays["R"], arrays.get("B", ""), lengths, *(first or [""] * len(states)), arrays.get("P", "")]
    ways = "bidirectional" if units == 2 else "reverse" if network.ways[0] else "forward"
    hints = ["y", *(f"{s}_last" for s in chosen.states)]
    attributes = {**chosen.attributes(units), "direction": ways, "hidden_size": network.output_size}
    y, *last = writer.several(chosen.op, inputs, hints, **attributes)  # y: [T, directions, N, H]
    if units == 1:
        output = writer.node("Squeeze", y, writer.integers(1), hint="output")
    else:
        output = writer.reshaped(writer.turned(y, 0, 2, 1, 3), 0, 0, units * network.output_size, hint="output")
    return output, [last[chosen.states.index(s)] for s in states]


def _shaped(chosen: Standard, sizes: Mapping[str, int]) -> dict[str, tuple[Tree, tuple[int, ...]]]:
    """The arrays of a node that are not zero, as the table has them, with their shapes in one direction."""
    arrays = SYSTEMS["onnx"][chosen.cell].arrays
    gates = sum(1 for part in parts_of(arrays["R"]))
    hidden = sizes["hidden"]
    shapes = {
        "W": (gates * hidden, sizes["input"]),
        "R": (gates * hidden, hidden),
        "B": (2 * gates * hidden,),
        "P": (3 * hidden,),
    }
    there = {name for name, tree in arrays.items() if name in "WR" or any(chosen.weights.get(part) for part in parts_of(tree))}
    return {name: (tree, shapes[name]) for name, tree in arrays.items() if name in there}


def _array(writer: Writer, chosen: Standard, tree: Tree, of_unit: Mapping[int, str], sizes: Mapping[str, int]) -> str:
    """An array of a node in one direction."""
    if isinstance(tree, Concat):
        return writer.joined([_array(writer, chosen, child, of_unit, sizes) for child in tree.of], tree.axis)
    assert isinstance(tree, Part)
    given = [writer.turned(of_unit[i], 1, 0) if turned else of_unit[i] for i, turned in chosen.weights.get(tree, ())]
    if given:
        return writer.total(given)
    hidden = sizes["hidden"]
    columns = {"weight_ih": (sizes["input"],), "weight_hh": (hidden,)}.get(tree.parameter, ())
    return writer.constant(np.zeros((hidden, *columns), writer.dtype), "zeros")


def _held(writer: Writer, y: str, last: Sequence[str], start: Sequence[str], lengths: Lengths) -> tuple[str, list[str]]:
    """What ONNX leaves open: outputs of steps that a sample does not have, and last states of samples without steps."""
    held = [writer.node("Where", lengths.any, new, old, hint="last") for new, old in zip(last, start, strict=True)]
    return writer.node("Where", lengths.there, y, writer.constant(0.0), hint="output"), held
