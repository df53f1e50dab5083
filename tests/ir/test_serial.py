"""Graphs as data: what is written is read, and what no trace would write is refused."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings

from anyrnn import State, Vec, affine, cell, cells, where
from anyrnn.ir.dims import Dim
from anyrnn.ir.ops import TABLE
from anyrnn.ir.serial import INSIDE, BadDataError, graph_from_data, graph_to_data
from anyrnn.sequence.options import LayerOptions
from tests.random_cells import cell_of, sources
from tests.zoo import EVERY


def through_json(graph):
    return graph_from_data(json.loads(json.dumps(graph_to_data(graph), allow_nan=False)))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("bias", [True, False])
def test_cells_are_read_as_they_were_written(name, bias):
    graph = cells.load(name).trace(bias)
    found = through_json(graph)
    assert found == graph
    assert found.identity == graph.identity
    assert (found.name, [n.name for n in found.nodes]) == (graph.name, [n.name for n in graph.nodes])
    assert [p.gates for p in found.parameters] == [p.gates for p in graph.parameters]
    assert not any(node.source for node in found.nodes)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(sources(True, True, True))
def test_random_cells_are_read_as_they_were_written(source):
    graph = cell_of(source).trace()
    assert through_json(graph).identity == graph.identity


@cell
def odd(x, h: Vec(init=0.5), g: Vec(init=float("-inf")), *, scale=2.0):
    tied = affine("a", x, h) + where(h > float("-inf"), scale * h, float("inf"))
    return tied, State(h=tied, g=g * h)


def test_numbers_that_json_has_not_are_read_as_they_were_written():
    graph = odd.trace()
    assert through_json(graph).identity == graph.identity
    assert through_json(graph).states == graph.states


@pytest.mark.parametrize("size", [
    Dim(), Dim.of(3), Dim.of("hidden") * 4 + 1, Dim.of("hidden") / 2 - 3, Dim.of("a") * 7 / 3 - "b", Dim.of(1) / 2,
])  # fmt: skip
def test_sizes_are_read_as_they_are_written(size):
    assert Dim.parse(str(size)) == size


@pytest.mark.parametrize("text", [
    "", "4*", "hidden/0", "a b", "4**h", "1e5", "9999999999*h", "h-1.5", "h +", "h+-1", "a + " * 99 + "a",
])  # fmt: skip
def test_other_sizes_are_refused(text):
    with pytest.raises(ValueError, match="a size should be written as"):
        Dim.parse(text)


def test_graphs_of_training_are_not_kept():
    graph = LayerOptions(zoneout=0.5).trained(cells.gru.trace(), between_layers=False)
    with pytest.raises(ValueError, match="cannot be kept: it is one of training calls"):
        graph_to_data(graph)


def data():
    return graph_to_data(cells.gru.trace())


def set_to(*path_and_value):
    *path, last, value = path_and_value

    def change(graph):
        for key in path:
            graph = graph[key]
        graph[last] = value

    return change


WRONG = [
    (set_to("nodes", 0, 0, "load"), r"graph.nodes\[0\]: unknown op 'load'"),
    (set_to("nodes", 0, 0, "no_op"), r"graph.nodes\[0\]: unknown op 'no_op'"),
    (set_to("nodes", 0, 0, 3), r"graph.nodes\[0\]\[0\]: expected text, got an integer"),
    (set_to("nodes", 0, []), r"graph.nodes\[0\]: expected a list of 6 values, got a list of 0 values"),
    (set_to("nodes", {}), r"graph.nodes: expected a list, got an object"),
    (set_to("nodes", [["input", [], [], [], True, ""]] * 10_001), "graph.nodes: expected at most 10000, got 10001"),
    (set_to("nodes", 0, 2, ["hidden"] * 3), "expected a shape of at most 2 sizes, got 3"),
    (set_to("nodes", 0, 2, ["hidden"]), "multiplies .hidden, input. and .hidden."),
    (set_to("nodes", 0, 2, [True]), "expected text, got true or false"),
    (set_to("nodes", 0, 3, ["q"]), "input 'q' is not declared"),
    (set_to("nodes", 0, 3, []), "input should have 1 attributes, got 0"),
    (set_to("nodes", 0, 4, 1), r"graph.nodes\[0\]\[4\]: expected true or false, got an integer"),
    (set_to("nodes", 0, 4, False), "says not per sample and is the opposite"),
    (set_to("nodes", -1, 1, [0, 10**9]), "reads node 1000000000, which does not come before it"),
    (set_to("nodes", -1, 1, [-1, -2]), "reads node -1, which does not come before it"),
    (set_to("nodes", -1, 1, [0]), "has 1 inputs; add has 2"),
    (set_to("nodes", -1, 1, [0, 1.0]), "inputs: expected an integer, got a number"),
    (set_to("outputs", []), "must have the outputs y, h"),
    (set_to("outputs", [["y", 10**6], ["h", 0]]), "output 'y' is node 1000000, which does not exist"),
    (set_to("outputs", [["y", -1], ["h", 0]]), "output 'y' is node -1, which does not exist"),
    (set_to("inputs", []), "has no input"),
    (set_to("inputs", [["x", []]]), "but is declared as"),
    (set_to("states", 0, 2, "0"), "graph.states: expected a number, got text"),
    (set_to("parameters", 0, 2, [["r", "hidden"]]), "weight_ih: the rows of its gates are not all of its rows"),
    (set_to("parameters", 2, 1, ["hidden"]), "bias_ih: the rows of its gates are not all of its rows"),
    (set_to("parameters", 0, ["weight_ih", ["hidden", "input"], []]), "'weight_ih' has shape .* but is declared as .hidden"),
    (set_to("hypers", [1]), r"graph.hypers\[0\]: expected text, got an integer"),
    (set_to("name", None), "graph.name: expected text, got nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_what_no_trace_would_write_is_refused(change, message):
    changed = copy.deepcopy(data())
    change(changed)
    with pytest.raises(BadDataError, match=message):
        graph_from_data(changed)


@pytest.mark.parametrize("other", [None, [], "graph", 3, True])
def test_what_is_no_object_is_refused(other):
    with pytest.raises(BadDataError, match="graph: expected an object, got"):
        graph_from_data(other)


def test_sizes_that_no_value_has_are_refused():
    changed = data()
    changed["nodes"].append(["size", [], [], ["unheard"], False, ""])
    with pytest.raises(BadDataError, match="no value has the size 'unheard'"):
        graph_from_data(changed)


def test_products_say_how_they_are_made():
    affine_at = next(i for i, node in enumerate(data()["nodes"]) if node[0] == "affine")
    for value, message in (([[False, 0]], "expected a number of heads, got 0"), ([[0, 1]], "expected true or false")):
        changed = data()
        changed["nodes"][affine_at][3] = value
        with pytest.raises(BadDataError, match=message):
            graph_from_data(changed)


def test_every_op_is_kept_or_declined():
    """Which are which is said by one list, and no op is forgotten by it."""
    kept = {node.op for name in cells.names() for node in cells.load(name).trace().nodes} | {
        node.op for node in odd.trace().nodes
    }
    assert not kept & set(INSIDE)
    assert set(INSIDE) < set(TABLE)
