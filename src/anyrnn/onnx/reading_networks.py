"""What RNN, GRU and LSTM nodes compute: networks of anyrnn, with their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn import cells, weights
from anyrnn.onnx.reading_file import FLOATS, Node
from anyrnn.sequence.network import Network, traced
from anyrnn.sequence.options import first_parameter
from anyrnn.trace import Cell
from anyrnn.weights import operators as general
from anyrnn.weights.operators import RELU, SIGMOID, TANH, Function, functions

Array = npt.NDArray[Any]

DIRECTIONS = {"forward": (0,), "foward": (0,), "reverse": (1,), "bidirectional": (0, 1)}
"""The way of each direction. The second name is how the first version of GRU spells its default."""
WEIGHTS = {"W": 1, "R": 2, "B": 3, "P": 7}
"""Which inputs of a node its weights are."""


@dataclass(frozen=True)
class Operator:
    """One of ONNX's recurrent operators: its gates, states and usual functions."""

    gates: int
    states: tuple[str, ...]
    usual: tuple[Function, ...]


OPERATORS = {
    "RNN": Operator(1, ("h",), (TANH,)),
    "GRU": Operator(3, ("h",), (SIGMOID, TANH)),
    "LSTM": Operator(4, ("h", "c"), (SIGMOID, TANH, TANH)),
}


@dataclass(frozen=True)
class Share:
    """Directions of a node that are one network: all of them, or where they have different functions one."""

    network: Network
    parameters: dict[str, Array]
    directions: tuple[int, ...]


@dataclass(frozen=True)
class Recurrence:
    """What a node computes, apart from its input: by direction and state, features first."""

    shares: tuple[Share, ...]
    states: tuple[str, ...]
    directions: int
    input_size: int
    hidden_size: int
    batch_first: bool


def recurrence(node: Node, arrays: Mapping[str, Array], first: Mapping[str, Array]) -> Recurrence:
    """A node as networks.

    Args:
        arrays: W, R, and B and P where they are given, as ONNX has them.
        first: by state, first values that all samples share, [directions, hidden].

    Raises: ValueError for attributes and arrays that cannot be.
    """
    operator = OPERATORS[node.op]
    ways = DIRECTIONS.get(node.text("direction", "forward"))
    if ways is None:
        raise ValueError(f"direction should be forward, reverse or bidirectional, got {node.text('direction', '')!r}")
    inputs, hidden = _checked(node, operator, arrays, len(ways))
    node.flag("output_sequence", False)  # in the first version of the operators; what is read of a node says as much
    names = node.texts("activations")
    found = list(operator.usual) * len(ways)
    if names:
        if len(names) != len(found):
            raise ValueError(f"expected {len(found)} activations, got {len(names)}")
        found = functions(names, node.numbers("activation_alpha"), node.numbers("activation_beta"))
    per_way = len(operator.usual)
    by_direction = [tuple(found[k * per_way : (k + 1) * per_way]) for k in range(len(ways))]
    together = len(set(by_direction)) == 1
    shares = [
        _share(node, arrays, first, ways, inputs, hidden, chosen, by_direction[chosen[0]])
        for chosen in ([tuple(range(len(ways)))] if together else [(k,) for k in range(len(ways))])
    ]
    return Recurrence(tuple(shares), operator.states, len(ways), inputs, hidden, node.flag("layout", False))


def _checked(node: Node, operator: Operator, arrays: Mapping[str, Array], directions: int) -> tuple[int, int]:
    """The sizes of the input and the state. Raises: ValueError."""
    w, r = arrays["W"], arrays["R"]
    if w.ndim != 3 or r.ndim != 3:
        raise ValueError(f"W and R should have 3 axes, got shapes {w.shape} and {r.shape}")
    inputs, hidden = w.shape[2], r.shape[2]
    rows = operator.gates * hidden
    wanted = {"W": (rows, inputs), "R": (rows, hidden), "B": (2 * rows,), "P": (3 * hidden,)}
    for name, array in arrays.items():
        if array.shape != (directions, *wanted[name]):
            raise ValueError(f"{name} should have shape {(directions, *wanted[name])}, got {array.shape}")
        if array.dtype != w.dtype or array.dtype.name not in FLOATS:
            raise ValueError(f"the weights should all be float32 or all float64, {name} is {array.dtype}")
    if not inputs or not hidden or node.integer("hidden_size", hidden) != hidden:
        sizes = f"{inputs} inputs and {hidden} hidden features"
        raise ValueError(f"its weights have {sizes}, hidden_size is {node.integer('hidden_size', hidden)}; both are at least 1")
    return inputs, hidden


def _share(
    node: Node,
    arrays: Mapping[str, Array],
    first: Mapping[str, Array],
    ways: tuple[int, ...],
    inputs: int,
    hidden: int,
    chosen: tuple[int, ...],
    used: tuple[Function, ...],
) -> Share:
    cell, hypers, named = _cell(node, used, "P" in arrays)
    options = {**hypers, "reverse": len(chosen) == 1 and ways[chosen[0]] == 1, "learned_state": bool(first)}
    network = traced(cell, inputs, hidden, 1, "B" in arrays, len(chosen) == 2, options).with_dropout(0.0).evaluation
    parameters: dict[str, Array] = {}
    for k, direction in enumerate(chosen):
        suffix = network.suffix(0, k)
        of_way = weights.convert({name: a[direction] for name, a in arrays.items()}, named, source="onnx", target="anyrnn")
        parameters |= {name + suffix: array for name, array in _wanted(network, named, of_way).items()}
        if first:
            zeros = np.zeros((hidden,), arrays["W"].dtype)
            begin = {state: first[state][direction] if state in first else zeros for state in network.graph.state_names}
            parameters |= {first_parameter(state) + suffix: array.copy() for state, array in begin.items()}
    return Share(network, parameters, chosen)


def _cell(node: Node, used: tuple[Function, ...], peepholes: bool) -> tuple[Cell, dict[str, Any], str]:
    """A cell that computes what a node says, its hyper-parameters, and the built-in cell whose weights are laid out as its are:
    a built-in one where there is one, as others may know it by its equations.
    """
    clip = node.number_of("clip", None)
    if clip is not None and clip <= 0:
        raise ValueError(f"clip should be above 0, got {clip}")
    clipped = {} if clip is None else {"clip": clip}
    plain = clip is None and used == OPERATORS[node.op].usual
    if node.op == "RNN":
        if clip is None and used in ((TANH,), (RELU,)):
            return (cells.rnn_tanh if used == (TANH,) else cells.rnn_relu), {}, "rnn_tanh"
        return general.rnn, {"function": used[0], **clipped}, "rnn_tanh"
    if node.op == "GRU":
        after = node.flag("linear_before_reset", False)
        built_in = cells.gru if after else cells.gru_before
        given = {"gates": used[0], "candidate": used[1], "after": after, **clipped}
        return (built_in, {}, built_in.name) if plain else (general.gru, given, built_in.name)
    coupled = node.flag("input_forget", False)
    if plain and not coupled:
        return (cells.lstm_peephole if peepholes else cells.lstm), {}, "lstm_peephole"
    if plain and not peepholes:
        return cells.lstm_coupled, {}, "lstm_peephole"
    given = {"gates": used[0], "candidate": used[1], "squash": used[2], "peepholes": peepholes, "coupled": coupled}
    return general.lstm, {**given, **clipped}, "lstm_peephole"


def _wanted(network: Network, named: str, found: Mapping[str, Array]) -> dict[str, Array]:
    """Of the parameters of a built-in cell, the gates that another one has: a coupled one has no forget gate of its own."""
    gates = {p.name: [name for name, _ in p.gates] for p in cells.load(named).trace().parameters}
    result: dict[str, Array] = {}
    for parameter, _ in network.parameters(0):
        if parameter.name not in found:
            continue
        blocks = dict(
            zip(gates[parameter.name], np.split(found[parameter.name], max(1, len(gates[parameter.name]))), strict=False)
        )
        chosen = [blocks[name] for name, _ in parameter.gates]
        result[parameter.name] = np.concatenate(chosen) if chosen else found[parameter.name]
    return result
