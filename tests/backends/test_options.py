"""Every cell with every option of layers, alone and all together: the kernels against the reference."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import Any

import numpy as np
import pytest

import anyrnn
from anyrnn import cells
from anyrnn.errors import CellError
from anyrnn.ir.graph import affine_parts
from tests.budget import MOVED, movement, rounded
from tests.options import COMBINATIONS, VALUES, options_of, refused, shape_of, title
from tests.zoo import FEW, further, sizes_of

CASES = [
    pytest.param(
        cell, names, marks=() if cell in FEW and number % 2 == 0 else pytest.mark.slow, id=title(cell) + "-" + title(names)
    )
    for cell in cells.names()
    for number, names in enumerate(COMBINATIONS, list(FEW).index(cell) if cell in FEW else 0)
    if options_of(cell, names)
]
"""`make test` takes every second combination of a few cells, now those with even numbers, now the others."""


def training_results(layer: anyrnn.Recurrent, x: Any, **call: Any) -> dict[str, Any]:
    """Everything that a training call gives, by name."""
    y, last, reserve = layer.forward_training(x, seed=2**40 + 3, **call)
    last = last if isinstance(last, tuple) else (last,)
    d_state = tuple(np.sin(s + 1) for s in last)
    d_x, d_first, gradients = layer.backward(reserve, np.cos(y), d_state if len(last) > 1 else d_state[0])
    d_first = d_first if isinstance(d_first, tuple) else (d_first,)
    states = {f"last {k}": s for k, s in enumerate(last)} | {f"d first {k}": s for k, s in enumerate(d_first)}
    d_x = d_x if isinstance(d_x, tuple) else (d_x,)
    of_inputs = {f"d input {k}": d for k, d in enumerate(d_x)}
    return {"output": y, "evaluated": layer(x, **call)[0], **of_inputs, **states, **gradients}


def rounded_results(layer: anyrnn.Recurrent, x: Any, call: dict[str, Any], random: np.random.Generator) -> dict[str, Any]:
    """Those of neighbouring parameters and inputs."""
    near = copy(layer)
    near.parameters = {name: rounded(value, random) for name, value in layer.parameters.items()}
    return training_results(near, rounded(x, random), **call)


@pytest.mark.filterwarnings("ignore:dropout acts between layers")
@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("uneven", [pytest.param(False, marks=pytest.mark.slow, id="dense"), pytest.param(True, id="uneven")])
@pytest.mark.parametrize(("cell", "names"), CASES)
def test_the_kernels_equal_the_reference(cell: str, names: list[str], uneven: bool) -> None:
    options = options_of(cell, names)
    shape = {**shape_of(cell, options, 19, 5), "dropout": 0.2, "dtype": "float64", "seed": 1}
    layers = [anyrnn.Recurrent(cell, backend=b, **shape, **options) for b in ("llvm", "reference")]
    random = np.random.default_rng(0)
    x = random.normal(size=(6, 3, shape["input_size"]))
    call: dict[str, Any] = dict(further(layers[0].network, 6, 3, dtype=float))
    if uneven:
        call |= {"lengths": [4, 0, 6], "reset": random.random((6, 3)) < 0.2}
    found, expected = (training_results(layer, x, **call) for layer in layers)
    moved = dict.fromkeys(expected, 0.0)
    if {"sum", "sqrt"} <= {node.op for node in layers[0].network.graph.nodes} and "clip" in "".join(options):
        # a normalisation of clipped, hence nearly equal, features magnifies what rounding leaves of their differences
        moved = movement(expected, partial(rounded_results, layers[1], x, call))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-10, atol=1e-10 + MOVED * moved[name], err_msg=name)


OF_STATES = ("recurrent_dropout", "weight_dropout", "cut_gradient")
REASONS = {
    **dict.fromkeys(OF_STATES, "has no product that reads a state"),
    "clip_preactivation": "has no activation function of products or inputs, so there is no pre-activation to clip",
    "activations": "has none of them",
    "skip_input": "skip_input",
}


@pytest.mark.parametrize("cell", cells.names())
def test_an_option_that_a_cell_cannot_have_is_refused_by_name(cell: str) -> None:
    given = {"hidden_size": 8, "input_size": 8, "backend": "reference", **sizes_of(cell, 8)}
    for name, value in VALUES.items():
        reason = refused(cell, name)
        assert not reason or REASONS[name] in reason
        if reason and name != "activations":
            with pytest.raises((ValueError, CellError), match=name):
                anyrnn.Recurrent(cell, **given, **{name: value})


@pytest.mark.parametrize("cell", cells.names())
def test_products_that_read_states_are_found(cell: str) -> None:
    graph = cells.load(cell).trace()
    of_states: list[bool] = []
    reads = False
    for node in graph.nodes:
        operands = [operand for _, operand, _, _ in affine_parts(node)[0]] if node.op == "affine" else []
        reads = reads or any(of_states[operand] for operand in operands)
        of_states.append(node.op == "state" or (not operands and any(of_states[s] for s in node.inputs)))
    assert {not refused(cell, name) for name in OF_STATES} == {reads}
