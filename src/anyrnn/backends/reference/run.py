"""A network over a sequence, one step after the other, by the interpreter. No cleverness: this is what the other backends must
equal.

Arrays are time-major: inputs [T, N, D], outputs [T, N, S * H], states [N, size]. Where sequences end at different steps there are
`counts`: step t has the first `counts[t]` samples, and of inputs and outputs the rows of all steps follow each other,
[sum of counts, features]. What the step reads of the parameters comes as one mapping for each unit (layer and direction) from
nodes of the simplified graph to arrays: see `parameter_values` and `source_values`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from anyrnn.ir.interpret import Interpreter, evaluation_order
from anyrnn.ir.philox import Randomness
from anyrnn.passes.parameters import Weight
from anyrnn.sequence.network import Network

Arrays = Mapping[str, Any]


def leaf_values(nodes: Sequence[Any], given: Mapping[str, Arrays]) -> dict[int, Any]:
    """The arrays of a graph's leaves, from `given[op][name]`."""
    return {i: given[op][name] for i, op, name in leaves(nodes, given)}


def leaves(nodes: Sequence[Any], ops: Container[str]) -> list[tuple[int, str, str]]:
    """Of a graph those leaves that are one of some ops: (node, op, name)."""
    return [(i, n.op, n.attributes[0]) for i, n in enumerate(nodes) if n.op in ops]


def parameter_values(network: Network, number: Callable[[float], Any], parameters: Arrays) -> dict[int, Any]:
    """From the parameters of a unit, by name."""
    hypers = {name: number(value) for name, value in network.hypers}
    return leaf_values(network.plan.graph.nodes, {"parameter": parameters, "hyper": hypers})


def source_values(network: Network, layer: int, sources: Sequence[Any]) -> dict[int, Any]:
    """From the arrays named by `network.sources`."""
    by_name, sizes = dict(zip(network.sources, sources, strict=True)), network.layer_sizes(layer)
    return {weight.node: _rows(weight, by_name, sizes) for weight in network.plan.phase.weights}


def _rows(weight: Weight, sources: Arrays, sizes: Mapping[str, int]) -> Any:
    """A weight's own rows of its source."""
    array = sources[weight.source]
    if weight.parameter is None or not weight.shape:
        return array
    offset = weight.offset.evaluate(sizes)
    return array[offset : offset + weight.shape[0].evaluate(sizes)]


def forward(
    network: Network,
    xp: Any,
    number: Callable[[float], Any],
    inputs: Sequence[Any],
    parameters: Sequence[dict[int, Any]],
    first: Sequence[Sequence[Any]],
    randomness: Randomness | None = None,
    counts: Sequence[int] | None = None,
) -> tuple[Any, list[list[Any]], list[list[Any]]]:
    """Run the network on arrays of any namespace.

    Args:
        inputs: the per-step inputs, [T, N, features] each; the first goes to the first layer, the others to every layer.
        first: for each unit, the states before the first step.
        randomness: of the cell's random choices; without it nothing is dropped.
        counts: the samples of each step, never more than of the step before; None: all in every step.

    Returns: the output [T, N, S * H]; for each unit the states after the last step, and what else its steps give, [T, N, size]
    each.
    """
    output = inputs[0]
    last: list[list[Any]] = []
    more: list[list[Any]] = []
    for layer in range(network.layers):
        streams = [output, *inputs[1:]]
        output, states, others = _layer(network, xp, number, layer, streams, parameters, first, randomness, counts)
        last, more = last + states, more + others
    return output, last, more


def _layer(
    network: Network,
    xp: Any,
    number: Callable[[float], Any],
    layer: int,
    streams: Sequence[Any],
    parameters: Sequence[dict[int, Any]],
    first: Sequence[Sequence[Any]],
    randomness: Randomness | None,
    counts: Sequence[int] | None,
) -> tuple[Any, list[list[Any]], list[list[Any]]]:
    """One layer in its directions: the output, each direction's last states, and what else its steps give."""
    outputs, last, more = [], [], []
    join = xp.stack if counts is None else xp.concatenate
    for position, direction in enumerate(network.ways):
        unit = layer * network.directions + position
        given, history = _unit(network, xp, number, layer, direction, streams, parameters[unit], first[unit], randomness, counts)
        y, *others = [join(of_steps) for of_steps in zip(*given, strict=True)]
        outputs.append(y)
        last.append(history[-1])
        more.append(others)
    return outputs[0] if len(outputs) == 1 else xp.concatenate(outputs, -1), last, more


def _unit(
    network: Network,
    xp: Any,
    number: Callable[[float], Any],
    layer: int,
    direction: int,
    streams: Sequence[Any],
    once: dict[int, Any],
    first: Sequence[Any],
    randomness: Randomness | None,
    counts: Sequence[int] | None,
) -> tuple[list[list[Any]], list[list[Any]]]:
    """What each step gives (the output, then what else) in the order of the sequence, and the states before each step and after
    the last, in the order of the run. A sample that has not begun has its first state, one that has ended its last.
    """
    graph = network.plan.graph
    by_step = [rows_by_step(stream, counts) for stream in streams]
    before = rows_before(counts, len(by_step[0]))
    outputs: list[Any] = [None] * len(by_step[0])
    history = [list(first)]
    of_step = leaves(graph.nodes, ("input", "state"))
    in_order = evaluation_order(graph.nodes, {*once, *(i for i, _, _ in of_step)}, [i for _, i in graph.outputs])
    for t in run_order(len(outputs), direction):
        rows = by_step[0][t].shape[0]
        given = {
            "input": {name: s[t] for (name, _), s in zip(graph.inputs, by_step, strict=True)},
            "state": {s.name: first_of(state, rows) for s, state in zip(graph.states, history[-1], strict=True)},
        }
        chances = None if randomness is None else randomness.at(layer, direction, t, before[t])
        interpreter = Interpreter(xp, number, network.layer_sizes(layer), chances)
        values = interpreter.run_in(in_order, graph.nodes, {**once, **{i: given[op][name] for i, op, name in of_step}})
        outputs[t] = [values[i] for i in (graph.output("y"), *(i for _, i in graph.more_outputs))]
        after = [values[graph.output(s.name)] for s in graph.states]
        history.append([with_others(xp, new, old) for new, old in zip(after, history[-1], strict=True)])
    return outputs, history


def rows_by_step(stream: Any, counts: Sequence[int] | None) -> Any:
    """The rows of each step; of a NumPy array, views of it."""
    if counts is None:
        return stream
    return [stream[begin:end] for begin, end in pairwise(accumulate(counts, initial=0))]


def rows_before(counts: Sequence[int] | None, steps: int) -> list[int]:
    """Packed rows before each step; none where all samples have all steps."""
    return [0] * steps if counts is None else list(accumulate(counts, initial=0))


def first_of(array: Any, rows: int) -> Any:
    """Its first rows: the array itself where there are no others."""
    return array if array.shape[0] == rows else array[:rows]  # `len` would fix the size that an export leaves open


def with_others(xp: Any, some: Any, before: Any) -> Any:
    """The new values of the first samples; the others, which do not have this step, keep what they had before."""
    return some if some.shape[0] == before.shape[0] else xp.concatenate([some, before[some.shape[0] :]])


def run_order(steps: int, direction: int) -> list[int]:
    """The steps as a direction goes through them."""
    return list(range(steps)) if direction == 0 else list(reversed(range(steps)))


def backward(
    network: Network,
    inputs: Sequence[Any],
    parameters: Sequence[Arrays],
    first: Sequence[Sequence[Any]],
    d_output: Any,
    d_last: Sequence[Sequence[Any]],
    randomness: Randomness | None = None,
    counts: Sequence[int] | None = None,
    d_more: Sequence[Sequence[Any]] | None = None,
) -> tuple[list[Any], list[dict[str, Any]], list[list[Any]]]:
    """Gradients on NumPy arrays, through the symbolic adjoint: of the inputs, of each unit's parameters, of the first states.
    `d_more`: for each unit, the cotangents of what its steps give beside the output.

    Runs the forward pass again and keeps every state.
    """
    dtype = inputs[0].dtype
    number = dtype.type
    values = [parameter_values(network, number, p) for p in parameters]
    layer_inputs = [inputs[0]]
    for layer in range(network.layers - 1):
        streams = [layer_inputs[-1], *inputs[1:]]
        layer_inputs.append(_layer(network, np, number, layer, streams, values, first, randomness, counts)[0])
    d_inputs = [np.zeros_like(a) for a in inputs]
    d_parameters: list[dict[str, Any]] = [{name: np.zeros_like(a) for name, a in unit.items()} for unit in parameters]
    d_first: list[list[Any]] = [[] for _ in network.units]
    d_layer = d_output
    for layer in reversed(range(network.layers)):
        d_below = np.zeros_like(layer_inputs[layer])
        for position, direction in enumerate(network.ways):
            unit = layer * network.directions + position
            columns = slice(position * network.output_size, (position + 1) * network.output_size)
            streams = [layer_inputs[layer], *inputs[1:]]
            d_streams, d_states = _unit_backward(
                network,
                layer,
                direction,
                streams,
                parameters[unit],
                first[unit],
                d_layer[..., columns],
                d_last[unit],
                d_parameters[unit],
                randomness,
                counts,
                d_more[unit] if d_more else (),
            )
            d_below += d_streams[0]
            for total, part in zip(d_inputs[1:], d_streams[1:], strict=True):
                total += part
            d_first[unit] = d_states
        d_layer = d_below
    d_inputs[0] = d_layer
    return d_inputs, d_parameters, d_first


def _unit_backward(
    network: Network,
    layer: int,
    direction: int,
    streams: Sequence[Any],
    parameters: Arrays,
    first: Sequence[Any],
    d_y: Any,
    d_last: Sequence[Any],
    d_parameters: dict[str, Any],
    randomness: Randomness | None,
    counts: Sequence[int] | None,
    d_more: Sequence[Any],
) -> tuple[list[Any], list[Any]]:
    adjoint, graph = network.plan.adjoint, network.plan.graph
    number = d_y.dtype.type
    names = [s.name for s in graph.states]
    stream_names = [name for name, _ in graph.inputs]
    once = parameter_values(network, number, parameters)
    _, history = _unit(network, np, number, layer, direction, streams, once, first, randomness, counts)
    d_streams = [np.zeros_like(s) for s in streams]
    by_step, d_by_step = ([rows_by_step(s, counts) for s in some] for some in (streams, d_streams))
    d_y, d_others = rows_by_step(d_y, counts), [rows_by_step(d, counts) for d in d_more]
    order, before = run_order(len(d_y), direction), rows_before(counts, len(d_y))
    d_weights: dict[int, Any] = {}
    d_states = dict(zip(names, d_last, strict=True))
    of_step = leaves(adjoint.nodes, ("input", "state", "cotangent"))
    in_order = evaluation_order(adjoint.nodes, {*once, *(i for i, _, _ in of_step)}, adjoint.roots)
    for position, t in reversed(list(enumerate(order))):
        rows = len(d_y[t])
        given = {
            "input": {n: s[t] for (n, _), s in zip(graph.inputs, by_step, strict=True)},
            "state": {name: first_of(state, rows) for name, state in zip(names, history[position], strict=True)},
            "cotangent": {
                "y": d_y[t],
                **{name: first_of(d, rows) for name, d in d_states.items()},
                **{name: d[t] for (name, _), d in zip(graph.more_outputs, d_others, strict=True)},
            },
        }
        chances = None if randomness is None else randomness.at(layer, direction, t, before[t])
        interpreter = Interpreter(np, number, network.layer_sizes(layer), chances)
        values = interpreter.run_in(in_order, adjoint.nodes, {**once, **{i: given[op][name] for i, op, name in of_step}})
        for name, index in adjoint.inputs:
            d_by_step[stream_names.index(name)][t] += values[index]
        d_new = {name: np.broadcast_to(values[i], given["state"][name].shape) for name, i in adjoint.states}
        d_states = {name: with_others(np, d, d_states[name]) for name, d in d_new.items()}
        for p in adjoint.products:
            left, right = (np.broadcast_to(values[i], (rows, values[i].shape[-1])) for i in (p.left, p.right))
            d_weights[p.matrix] = d_weights.get(p.matrix, 0) + _outer(left, right, p.heads)
        for weight, index in adjoint.sums:
            total = values[index].sum(0)
            d_weights[weight] = d_weights.get(weight, 0) + (total if adjoint.nodes[weight].shape else total.sum())
    chances = None if randomness is None else randomness.at(layer, direction, 0)
    _parameter_gradients(network, Interpreter(np, number, network.layer_sizes(layer), chances), once, d_weights, d_parameters)
    return d_streams, [d_states[name] for name in names]


def _outer(left: Any, right: Any, heads: int) -> Any:
    if heads == 1:
        return left.T @ right
    rows, columns = (x.reshape(len(x), heads, x.shape[1] // heads) for x in (left, right))
    return np.einsum("nhr,nhc->hrc", rows, columns).reshape(-1, columns.shape[-1])


def _parameter_gradients(
    network: Network, interpreter: Interpreter, once: dict[int, Any], d_weights: dict[int, Any], d_parameters: dict[str, Any]
) -> None:
    """Through the parameter phase, from the gradients of what the step reads (by node) to those of the parameters."""
    phase, weights = network.plan.phase_adjoint, network.plan.phase.weights
    sizes = interpreter.sizes
    zeros = {w.name: np.zeros([d.evaluate(sizes) for d in w.shape], interpreter.number(0).dtype) for w in weights}
    given = zeros | {w.name: d_weights[w.node] for w in weights if w.node in d_weights}
    leaves = leaf_values(phase.nodes, {"cotangent": given})
    values = interpreter.run(phase.nodes, once | leaves, [t.value for t in phase.terms])
    for term in phase.terms:
        gradient = d_parameters[term.parameter]
        if gradient.shape == ():
            d_parameters[term.parameter] = gradient + values[term.value]
        else:
            offset = term.offset.evaluate(sizes)
            gradient[offset : offset + term.rows.evaluate(sizes)] += values[term.value]


def through_parameter_phase(
    network: Network, unit: tuple[int, int], parameters: Arrays, d_sources: Arrays, randomness: Randomness | None
) -> dict[str, Any]:
    """Gradients of a unit's parameters from those of its sources (see `Network.sources`), by name. That of a parameter that steps
    read as it is counts once, however many of its rows they read by themselves.
    """
    if not parameters:
        return {}
    layer = unit[0]
    number = next(iter(parameters.values())).dtype.type
    sizes = network.layer_sizes(layer)
    d_weights = {weight.node: d_sources[weight.source] for weight in network.plan.phase.computed}
    d_parameters = {name: np.array(d_sources[name]) if name in d_sources else np.zeros_like(a) for name, a in parameters.items()}
    interpreter = Interpreter(np, number, sizes, None if randomness is None else randomness.at(*unit, 0))
    _parameter_gradients(network, interpreter, parameter_values(network, number, parameters), d_weights, d_parameters)
    return d_parameters
