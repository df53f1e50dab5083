"""Options of layers and of calls in any combination: the kernels against the reference, in float64."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anyrnn
from anyrnn import cells
from anyrnn.ir.dims import Dim
from tests.budget import MOVED, movement, rounded
from tests.options import options_of
from tests.zoo import FEW, OCCURRING, further, input_size, occurring, sizes_of

THOROUGH = settings.get_current_profile_name() == "thorough"
EXAMPLES, CELLS = (1000, cells.names()) if THOROUGH else (30, list(FEW))
probabilities = st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])
bounds = st.sampled_from([0.1, 0.5, 2.0])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "input_dropout": probabilities,
    "recurrent_dropout": probabilities,
    "weight_dropout": probabilities,
    "output_dropout": probabilities,
    "zoneout": probabilities,
    "clip_state": st.one_of(bounds, st.tuples(st.just(-0.2), bounds)),
    "clip_preactivation": bounds,
    "clip_gradient": bounds,
    "cut_gradient": st.just(True),
    "activations": st.just({"tanh": "sigmoid", "sigmoid": "tanh"}),
    "learned_state": st.just(True),
    "skip_input": st.just(True),
}


@st.composite
def networks(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of a layer."""
    cell = draw(st.sampled_from(CELLS))
    names = draw(st.sets(st.sampled_from(sorted(VALUES)), max_size=4))
    options = {name: draw(VALUES[name]) for name in sorted(names) if name in options_of(cell, names)}
    if "activations" in options:
        options["activations"] = options_of(cell, ["activations"])["activations"]
    hidden, layers = draw(st.integers(1, 21)), draw(st.integers(1, 3))
    way = draw(st.sampled_from(["", "reverse", "bidirectional"]))
    merge = draw(st.sampled_from(["concat", "sum", "mean", "mul", "separate"])) if way == "bidirectional" else "concat"
    graph, named = cells.load(cell).trace(), sizes_of(cell, draw(st.integers(1, 21)), hidden)
    output = graph.nodes[graph.output("y")].shape[0]
    if "skip_input" in options and output != Dim.of("hidden"):
        named |= dict.fromkeys(sizes_of(cell), hidden)
    width = output.evaluate({"hidden": hidden, **named}) * (
        2 if way == "bidirectional" and merge in ("concat", "separate") else 1
    )
    if "skip_input" in options and width != hidden:
        layers = 1
    options |= {way: True} if way else {}
    options |= {"merge": merge} if merge != "concat" else {}
    options |= {"residual": True} if layers > 1 and draw(st.booleans()) else {}
    options["bias"] = draw(st.sampled_from(["both", "input", "recurrent", "none"]))
    inputs = hidden if "skip_input" in options else draw(st.integers(1, 40))
    inputs = input_size(cell, inputs, width) if layers > 1 else inputs
    shape = {"cell": cell, "input_size": inputs, "hidden_size": hidden, "num_layers": layers, **named}
    return {**shape, "dropout": draw(probabilities) if layers > 1 else 0.0, **options}


@st.composite
def calls(draw: st.DrawFn, steps: int, rows: int, options: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a call."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    call: dict[str, Any] = {}
    kind = draw(st.sampled_from(["dense", "lengths", "mask", "reset", "all"]))
    if kind in ("lengths", "all"):
        call["lengths"] = random.integers(0, steps + 1, rows).tolist()
    if kind in ("mask", "all"):
        call["mask"] = random.random((steps, rows)) < 0.7
    if kind in ("reset", "all"):
        call["reset"] = random.random((steps, rows)) < 0.2
    if kind not in ("dense", "reset"):
        call["padding"] = draw(st.sampled_from([0.0, 1.5, "last"]))
    merges = options.get("merge") in ("sum", "mean", "mul")
    call["return_outputs"] = draw(
        st.sampled_from(["all", "none"] if merges and "residual" in options else ["all", "last", "none"])
    )
    call["return_states"] = draw(st.sampled_from(["last", "all"]))
    return call


def results(layer: anyrnn.Recurrent, x: Any, state: Any, call: dict[str, Any]) -> dict[str, Any]:
    """Everything that calls give, by name."""
    y, last, reserve = layer.forward_training(x, state, seed=3, **call)
    outputs = () if y is None else y if isinstance(y, tuple) else (y,)
    states = last if isinstance(last, tuple) else (last,)
    d_outputs, d_states = tuple(np.cos(o) for o in outputs), tuple(np.sin(s + 1) for s in states)
    d_output = None if y is None else d_outputs if isinstance(y, tuple) else d_outputs[0]
    d_x, d_first, gradients = layer.backward(reserve, d_output, d_states if isinstance(last, tuple) else d_states[0])
    evaluated, ends = layer(x, state, **call)
    of_call = {"output": outputs, "last": states, "evaluated": evaluated, "ends": ends, "d first": d_first, "d x": d_x}
    flat = {**gradients}
    for name, values in of_call.items():
        some = () if values is None else values if isinstance(values, tuple) else (values,)
        flat |= {f"{name} {k}": value for k, value in enumerate(some)}
    return flat


def rounded_results(
    layer: anyrnn.Recurrent, x: Any, state: Any, call: dict[str, Any], random: np.random.Generator
) -> dict[str, Any]:
    """Those of neighbouring parameters and inputs."""
    near = copy(layer)
    near.parameters = {name: rounded(value, random) for name, value in layer.parameters.items()}
    return results(near, rounded(x, random), state, call)


@pytest.mark.usefixtures("quick_compile")
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_the_kernels_equal_the_reference(data: st.DataObject) -> None:
    options = data.draw(networks())
    steps, rows = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 7))
    call = data.draw(calls(steps, rows, options))
    layers = [anyrnn.Recurrent(**options, backend=b, dtype="float64", seed=1) for b in ("llvm", "reference")]
    random = np.random.default_rng(0)
    learned = {f"{state.name}0" for state in layers[0].network.graph.states} if "learned_state" in options else ()
    for name in [n for n in layers[0].parameters if n.rpartition("_l")[0] in learned]:  # which begin at zero
        for layer in layers:
            value = np.sin(np.arange(layer.parameters[name].size, dtype=float)).reshape(layer.parameters[name].shape)
            layer.parameters[name] = np.asarray(1 + value**2) if options["cell"] in OCCURRING else value
    x, network = random.normal(size=(steps, rows, options["input_size"])), layers[0].network
    call |= further(network, steps, rows, dtype=float)
    state = None
    if data.draw(st.booleans()):
        states = {s.name: size for s, size in zip(network.graph.states, network.state_sizes, strict=True)}
        drawn = {name: random.normal(size=(len(network.units), rows, size)) for name, size in states.items()}
        state = list(occurring(cells.load(options["cell"]), drawn).values())
    found, expected = (results(layer, x, state, call) for layer in layers)
    assert found.keys() == expected.keys()
    allowed = {name: 1e-9 * max(1.0, np.abs(value).max(initial=0.0)) for name, value in expected.items()}
    wrong = [name for name, value in found.items() if not np.allclose(value, expected[name], rtol=0, atol=allowed[name])]
    normalises = {"sum", "sqrt"} <= {node.op for node in network.graph.nodes}
    smooth = not any(node.row.jumps for node in network.plan.adjoint.nodes)
    moved = dict.fromkeys(wrong, 0.0)
    if wrong and (normalises or smooth):
        moved = movement(expected, partial(rounded_results, layers[1], x, state, call))
    for name in wrong:
        atol = allowed[name] + MOVED * moved[name]
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=atol, err_msg=name)


def test_a_layer_without_parameters() -> None:
    """Whose parameter phase computes something all the same."""
    make = partial(anyrnn.Recurrent, "hgrn", 3, 3, skip_input=True, bias="recurrent", dtype="float64")
    layers = [make(backend=backend) for backend in ("llvm", "reference")]
    assert not layers[0].parameters
    assert layers[0].network.plan.phase.computed
    x = np.random.default_rng(0).normal(size=(4, 2, 3))
    found, expected = (results(layer, x, None, {}) for layer in layers)
    assert found.keys() == expected.keys()
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=0, atol=1e-12, err_msg=name)


def test_no_option_is_left_out() -> None:
    """Those that are drawn with the shape of a network aside."""
    assert {*VALUES, "merge", "residual", "reverse"} == set(anyrnn.LayerOptions.__dataclass_fields__)
