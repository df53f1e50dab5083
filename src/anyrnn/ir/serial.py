"""Graphs as data that JSON can hold, and back. What is read back may come from anywhere, so all of it is checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from anyrnn.ir.check import check_graph
from anyrnn.ir.dims import Dim, Shape
from anyrnn.ir.graph import Graph, Node, Parameter, State
from anyrnn.ir.ops import RANDOM, TABLE

MOST_NODES = 10_000
"""Of a graph that is read. The built-in cells have 20 to 100."""
INSIDE = ("cotangent", "load", *RANDOM)
"""Ops that passes make, and training calls; they are not a part of what is kept."""


class BadDataError(ValueError):
    """Data that is no graph; the message says what is wrong where."""


def graph_to_data(graph: Graph) -> dict[str, Any]:
    """A graph in lists, dicts, text and numbers; of where its equations stand in the source nothing is kept."""
    for node in graph.nodes:
        if node.op in INSIDE:
            raise ValueError(f"a graph with {node.op!r} cannot be kept: it is one of training calls")
    return {
        "name": graph.name,
        "inputs": [[name, _shape_to_data(shape)] for name, shape in graph.inputs],
        "states": [[state.name, _shape_to_data(state.shape), number_to_data(state.init)] for state in graph.states],
        "parameters": [
            [p.name, _shape_to_data(p.shape), [[gate, str(rows)] for gate, rows in p.gates]] for p in graph.parameters
        ],
        "hypers": list(graph.hypers),
        "nodes": [
            [n.op, list(n.inputs), _shape_to_data(n.shape), _attributes_to_data(n), n.per_sample, n.name] for n in graph.nodes
        ],
        "outputs": [list(output) for output in graph.outputs],
    }


def graph_from_data(data: Any) -> Graph:
    """The graph that `graph_to_data` wrote. Raises BadDataError for what it cannot have written."""
    found = Record(data, "graph")
    nodes = found.rows("nodes", (str, list, list, list, bool, str))
    if len(nodes) > MOST_NODES:
        raise BadDataError(f"graph.nodes: expected at most {MOST_NODES}, got {len(nodes)}")
    graph = Graph(
        nodes=tuple([_node(f"graph.nodes[{i}]", *row) for i, row in enumerate(nodes)]),
        outputs=tuple([(name, i) for name, i in found.rows("outputs", (str, int))]),
        inputs=tuple([(name, _shape("graph.inputs", dims)) for name, dims in found.rows("inputs", (str, list))]),
        states=tuple(
            [
                State(name, _shape("graph.states", dims), number_from_data("graph.states", init))
                for name, dims, init in found.rows("states", (str, list, object))
            ]
        ),
        parameters=tuple([_parameter(*row) for row in found.rows("parameters", (str, list, list))]),
        hypers=tuple(found.texts("hypers")),
        name=found.text("name"),
    )
    try:
        check_graph(graph)
    except AssertionError as error:
        raise BadDataError(f"graph: {error}") from None
    known = set(graph.size_names)
    for i, node in enumerate(graph.nodes):
        unknown = {name for value in node.attributes if isinstance(value, Dim) for name in value.names} - known
        if unknown:
            raise BadDataError(f"graph.nodes[{i}]: no value has the size {min(unknown)!r}")
    if len(graph.inputs[0][1]) != 1 or len(graph.inputs[0][1][0].names) != 1:
        raise BadDataError("graph.inputs: the first should be a vector of a named size")
    return graph


class Record:
    """A dict of which each entry is looked at before it is used. Raises BadDataError, with the entry's place."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, dict):
            raise BadDataError(f"{where}: expected an object, got {_kind(data)}")
        self.data, self.where = data, where

    def of(self, name: str, kinds: type | tuple[type, ...], default: Any = None) -> Any:
        """An entry of one of these types; the default where there is none, if there is one."""
        value = self.data.get(name, default)
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        if value is default and default is not None:
            return value
        return _checked(value, kinds, f"{self.where}.{name}")

    def text(self, name: str) -> str:
        value: str = self.of(name, str)
        return value

    def texts(self, name: str) -> list[str]:
        return [_checked(value, (str,), f"{self.where}.{name}[{i}]") for i, value in enumerate(self.of(name, list))]

    def rows(self, name: str, kinds: tuple[type, ...]) -> list[tuple[Any, ...]]:
        """An entry that is a list of lists of values of these types."""
        result = []
        for i, row in enumerate(self.of(name, list)):
            where = f"{self.where}.{name}[{i}]"
            if not isinstance(row, list) or len(row) != len(kinds):
                raise BadDataError(f"{where}: expected a list of {len(kinds)} values, got {_kind(row)}")
            values = zip(row, kinds, range(len(row)), strict=True)
            result.append(tuple([_checked(value, (kind,), f"{where}[{k}]") for value, kind, k in values]))
        return result


def _checked(value: Any, kinds: tuple[type, ...], where: str) -> Any:
    if float in kinds and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        value = float(value)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise BadDataError(f"{where}: expected {' or '.join(NAMES[kind] for kind in kinds)}, got {_kind(value)}")
    return value


NAMES: Mapping[type, str] = {
    object: "a value", str: "text", int: "an integer", float: "a number", bool: "true or false", list: "a list",
    dict: "an object", type(None): "nothing",
}  # fmt: skip


def _kind(value: Any) -> str:
    return f"a list of {len(value)} values" if isinstance(value, list) else NAMES[type(value)]


def number_to_data(value: float) -> float | str:
    """As JSON has it, which has no infinities: these are text."""
    return float(value) if math.isfinite(value) else str(float(value))


# sizes


def _shape_to_data(shape: Shape) -> list[str]:
    return [str(dim) for dim in shape]


def _shape(where: str, data: list[Any]) -> Shape:
    if len(data) > 2:
        raise BadDataError(f"{where}: expected a shape of at most 2 sizes, got {len(data)}")
    return tuple([_dim(where, dim) for dim in data])


def _dim(where: str, data: Any) -> Dim:
    try:
        return Dim.parse(_checked(data, (str,), where))
    except ValueError as error:
        raise error if isinstance(error, BadDataError) else BadDataError(f"{where}: {error}") from None


def _parameter(name: str, dims: list[Any], gates: list[Any]) -> Parameter:
    where = f"graph.parameters: {name}"
    shape = _shape(where, dims)
    rows = [(gate, _dim(where, size)) for gate, size in Record({"gates": gates}, where).rows("gates", (str, str))]
    if rows and (not shape or sum((size for _, size in rows), Dim()) != shape[0]):
        raise BadDataError(f"{where}: the rows of its gates are not all of its rows")
    return Parameter(name, shape, gates=tuple(rows))


# nodes


def _attributes_to_data(node: Node) -> list[Any]:
    if node.op == "affine":
        return [list(term) for term in node.attributes]
    if node.op == "constant":
        return [number_to_data(node.attributes[0])]
    return [str(value) if isinstance(value, Dim) else value for value in node.attributes]


def _node(where: str, op: str, inputs: list[Any], dims: list[Any], attributes: list[Any], per_sample: bool, name: str) -> Node:
    if op not in TABLE or op in INSIDE:
        raise BadDataError(f"{where}: unknown op {op!r}")
    sources = tuple([_checked(value, (int,), f"{where}: inputs") for value in inputs])
    shape, kinds = _shape(where, dims), _ATTRIBUTES.get(op, ())
    if op == "affine":
        found: tuple[Any, ...] = tuple([_term(f"{where}: attributes", term) for term in attributes])
    elif op == "fill":
        found = _shape(where, attributes)
    elif len(attributes) != len(kinds):
        raise BadDataError(f"{where}: {op} should have {len(kinds)} attributes, got {len(attributes)}")
    else:
        found = tuple([read(f"{where}: attributes", value) for read, value in zip(kinds, attributes, strict=True)])
    return Node(op, sources, shape, found, per_sample, name)


def _term(where: str, data: Any) -> tuple[bool, int]:
    ((transposed, heads),) = Record({"": [data]}, where).rows("", (bool, int))
    if not 1 <= heads < 2**31:
        raise BadDataError(f"{where}: expected a number of heads, got {heads}")
    return transposed, heads


def _text(where: str, data: Any) -> Any:
    return _checked(data, (str,), where)


def number_from_data(where: str, data: Any) -> Any:
    """What `number_to_data` made. Raises BadDataError for anything else."""
    return float(data) if data in ("inf", "-inf", "nan") else _checked(data, (float,), where)


_ATTRIBUTES: Mapping[str, tuple[Callable[[str, Any], Any], ...]] = {
    **dict.fromkeys(("input", "state", "parameter", "hyper"), (_text,)),
    "constant": (number_from_data,),
    "size": (_dim,),
    "slice": (_dim, _dim),
}
"""What an op's attributes are, one by one; of `affine` they are its products, of `fill` its shape, and the others have none."""
