from __future__ import annotations

import inspect
import sys

import pytest

from anyrnn import State, Vec, cell, cells
from anyrnn.passes import stage
from anyrnn.passes.check import check_program
from anyrnn.passes.compile import make_plan, plan
from anyrnn.passes.levels import MOST_WAYS
from anyrnn.passes.options import with_zoneout
from anyrnn.passes.plan import MOVES, Program
from anyrnn.trace.language import affine, concat, mean, split, tanh

# All-feature dependencies on the longest cycle through one step, forward and backward, as the papers' equations have them.
STAGES = {
    "rnn_tanh": 1,
    "rnn_relu": 1,
    "lstm": 1,
    "gru": 1,
    "lstm_peephole": 1,
    "lstm_coupled": 1,
    "gru_before": 2,
    "mgu": 2,
    "lstm_projected": 2,
    "lstm_layernorm": 3,
    "indrnn": 0,
}


@pytest.mark.parametrize("split_at_first", [False, True])
def test_long_steps_need_no_deep_stack(split_at_first: bool) -> None:
    @cell
    def long(x, h):
        v, u = split(affine("v u", x, h), 2) if split_at_first else (affine("v", x, h), affine("u", x, h))
        total = v
        for k in range(150):
            h = h + 0.01 * tanh(v * h)
            total = total + tanh(k * u)
        return total * h, State(h=h)

    graph, before = long.trace(), sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        made = make_plan(graph)
    finally:
        sys.setrecursionlimit(before)
    assert len(made.graph.nodes) > 900


def test_values_that_are_read_twice_again_and_again_are_planned_at_once() -> None:
    """Each of forty is made of the one before, twice: there are as many ways to the first as there are grains on a chessboard."""

    @cell
    def iterated(x, h):
        v = affine("a", x, h)
        for _ in range(40):
            v = v * (2 - v)
        h = tanh(v)
        return h, State(h=h)

    made = plan(iterated.trace())
    assert len(made.saves.kept) <= 2


def test_what_is_made_of_memory_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a chain of a hundred ops: it was counted from each link to the first."""

    @cell
    def chained(x: Vec("hidden"), h):  # type: ignore[valid-type]
        for _ in range(50):
            h = 0.5 * h + 1.0
        h = h + x
        return h, State(h=h)

    graph, calls, count = chained.trace(), [0], stage.Stager._count_ops

    def counted(stager: stage.Stager, i: int) -> int:
        calls[0] += 1
        return count(stager, i)

    monkeypatch.setattr(stage.Stager, "_count_ops", counted)
    plan(graph)
    assert 0 < calls[0] < 10 * len(graph.nodes)


def test_vectors_that_are_turned_again_and_again_are_planned_at_once() -> None:
    """Each of forty reads the one before in two places; kernels read few of them at once."""

    @cell
    def turned(x, h):
        u = h
        for _ in range(40):
            first, others = split(u, [1, "hidden - 1"])
            u = concat(others, first)
        h = tanh(affine("n", x, h=u))
        return h, State(h=h)

    made = plan(turned.trace())
    for program in (made.inference, made.training, made.backward):
        check_program(program)
        for kernel in program.kernels:
            ways = [0 if n.op in MOVES else 1 for n in kernel.nodes]
            for i, node in enumerate(kernel.nodes):
                ways[i] += sum(ways[s] for s in node.inputs) if node.op in MOVES else 0
            assert max(ways) <= 2 * MOST_WAYS


@pytest.mark.parametrize("which", ["inference", "training", "backward"])
@pytest.mark.parametrize("name", STAGES)
def test_stages(name: str, which: str) -> None:
    program: Program = getattr(plan(cells.load(name).trace()), which)
    assert program.stages == STAGES[name]
    assert len(program.body) == max(1, STAGES[name])


@pytest.mark.parametrize("name", ["rnn_tanh", "rnn_relu"])
def test_zoneout_keeps_nothing_beside_the_states(name: str) -> None:
    """Where the activation's value is chosen it is the new state, and elsewhere it has no gradient."""
    graph = cells.load(name).trace()
    with_random = plan(with_zoneout(graph, {"h": "zoneout.0"}, at_random=True))
    assert with_random.saves.kept == plan(graph).saves.kept == ()


def test_numbers_of_a_sample_are_made_of_what_columns_made() -> None:
    """Every thread makes them for itself, so costly ops on whole rows stay with the columns, however late they could be made."""

    def scaled(x, h: Vec("hidden"), c: Vec("hidden")):  # type: ignore[no-untyped-def]
        s = tanh(c) * h
        h = tanh(affine("a", x, h) + mean(0.5 * s)) + 0.3 * s + 0.1 * c * h
        return h, State(h=h, c=0.5 * c + 0.1 * tanh(h))

    program = plan(cell(scaled).trace()).inference
    scalars = [kernel for stage in program.body for kernel in stage.kernels if kernel.dim is None]
    assert scalars
    assert not any(node.row.costly and node.shape for kernel in scalars for node in kernel.nodes)


def test_what_a_later_stage_needs_is_made_there() -> None:
    """The first backward stage of the layer-normalised LSTM makes the output gate alone: the others' values are at hand later."""
    turn = plan(cells.load("lstm_layernorm").trace()).backward.body[0].kernels[-1]
    assert sum(node.op == "sigmoid" for node in turn.nodes) == 1
