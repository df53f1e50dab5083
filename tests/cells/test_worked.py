"""Every built-in cell against a few lines of NumPy written from its paper, and against torchrecurrent where that has it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import anyrnn
from anyrnn import cells
from tests.budget import assert_relative
from tests.cells.worked import Worked, all_worked, by_gate
from tests.networks import Problem, on_reference, problem
from tests.zoo import input_size, sizes_of

ALL = all_worked()
FIXED = [one for one in ALL if one.fixed]
WITH_PEER = [one for one in ALL if one.torchrecurrent]


def small(one: Worked, seed: int = 3) -> Problem:
    """A cell of two units."""
    return problem(one.name, T=4, N=3, D=3, H=2, seed=seed, **one.hypers)


def by_hand(one: Worked, p: Problem) -> dict[str, Any]:
    """The output and the last states, sample by sample."""
    graph = p.network.graph
    values = cells.load(one.name).values(one.hypers)
    w = by_gate(graph, dict(p.network.sizes), p.parameters[0])
    output, last = [], []
    for n in range(p.rows):
        states = [first[n] for first in p.first[0]]
        ys = []
        for t in range(p.steps):
            y, states = one.step(w, *(a[t, n] for a in p.inputs), *states, **values)
            ys.append(np.broadcast_to(y, (p.network.output_size,)))
        output.append(ys)
        last.append([np.broadcast_to(s, (size,)) for s, size in zip(states, p.network.state_sizes, strict=True)])
    found = {"output": np.array(output).swapaxes(0, 1)}
    for k, state in enumerate(graph.states):
        found[f"last {state.name}{p.network.suffix(*p.network.units[0])}"] = np.array([states[k] for states in last])
    return found


def test_every_cell_is_worked_through() -> None:
    assert {one.name for one in ALL} == set(cells.names())


def test_every_parameter_that_is_not_trained_is_worked_out() -> None:
    for one in ALL:
        graph = cells.load(one.name).trace(**one.hypers)
        assert set(one.fixed) == {parameter.name for parameter in graph.parameters if not parameter.trained}, one.name


@pytest.mark.parametrize("one", FIXED, ids=lambda one: f"{FIXED.index(one)}-{one}")
@pytest.mark.parametrize("size", [4, 12])
def test_what_is_not_trained(one: Worked, size: int) -> None:
    """Of layers, in every layer and direction."""
    sizes = sizes_of(one.name, size + 1)
    layer = anyrnn.Recurrent(
        one.name, input_size(one.name, 3, 2 * size), size, 2, bidirectional=True, dtype="float64", seed=0, **sizes, **one.hypers
    )
    values = cells.load(one.name).values(one.hypers)
    for unit in layer.network.units:
        for name, of in one.fixed.items():
            made = layer.parameters[f"{name}{layer.network.suffix(*unit)}"]
            assert_relative(made, of(made, **values), "float64 against torch.nn", f"{one}: {name}", least=1e-3)


@pytest.mark.parametrize("one", ALL, ids=lambda one: f"{ALL.index(one)}-{one}")
def test_by_hand(one: Worked) -> None:
    p = small(one)
    found = on_reference(p)
    for name, value in by_hand(one, p).items():
        assert_relative(found[name], value, "llvm float64 against the reference backend", f"{one}: {name}")


def in_ours(one: Worked, w: Any, states: Sequence[Any]) -> list[Any]:
    """Our states [N, size] of theirs."""
    if one.ours is None:
        return list(states)
    of_samples = [one.ours(w, *(state[n] for state in states)) for n in range(len(states[0]))]
    return [np.array(each) for each in zip(*of_samples, strict=True)]


def on_all_states(cell: Any, x: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
    """A step of a cell that takes and gives all its states."""
    new = cell(x, states if len(states) > 1 else states[0])
    return new if isinstance(new, tuple) else (new,)


@pytest.mark.parametrize("one", WITH_PEER, ids=lambda one: f"{WITH_PEER.index(one)}-{one}")
def test_against_torchrecurrent(one: Worked) -> None:
    """Their own cells, with our parameters, step by step."""
    library = importlib.import_module("torchrecurrent")
    p = small(one)
    w = by_gate(p.network.graph, dict(p.network.sizes), p.parameters[0])
    first = p.first[0]
    if one.ours is not None:
        first = [first[0], p.inputs[0][-1]]
        p = replace(p, first=[in_ours(one, w, first)])
    theirs = getattr(library, one.torchrecurrent)(3, 2, **one.options).double()
    given = (one.theirs or vars)(w)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter.copy_(torch.tensor(np.asarray(given[name])))
        states, run = tuple(map(torch.tensor, first)), one.run or on_all_states
        outputs = []
        for x in p.inputs[0]:
            states = run(theirs, torch.tensor(x), states)
            outputs.append(states[0].numpy())
    expected = on_reference(p)
    assert_relative(np.array(outputs), expected["output"], "float64 against torch.nn", f"{one}: output")
    last = [state.numpy() for state in states]
    for state, value in zip(p.network.graph.states, in_ours(one, w, last), strict=True):
        assert_relative(value, expected[f"last {state.name}_l0"], "float64 against torch.nn", f"{one}: {state.name}")
