"""Cells drawn at random: the reference, llvm and torch's autograd agree, forward and backward."""

from __future__ import annotations

import itertools
import random

import hypothesis
import pytest
import torch
from hypothesis import given, note, seed, settings
from hypothesis import strategies as st

from anyrnn.backends.llvm import run as llvm
from anyrnn.ir.ops import TABLE
from anyrnn.passes.check import check_phase, check_program
from anyrnn.sequence.network import Network
from anyrnn.torch import Recurrent
from tests.budget import assert_agree, assert_relative
from tests.networks import on_llvm, on_reference, on_torch, problem
from tests.random_cells import BINARY, REDUCTIONS, UNARY, cell_of, sources

KINDS = list(itertools.product([False, True], repeat=3))
"""With two stages, with a reduction, with states of two sizes."""
DRAWS, CELLS = 36, 25
"""Draws of each of the eight kinds, and how many different cells are wanted of them: 200, of which half have two stages, half a
reduction, half states of two sizes. `make test-all` draws eight times as many, `make test` a ninth.
"""
PHASES = [hypothesis.Phase.generate, hypothesis.Phase.shrink]
THOROUGH = hypothesis.settings.get_current_profile_name() == "thorough"
FACTOR, SEED = (8, random.randrange(10**6)) if THOROUGH else (1 / 9, 0)
"""`make test-all` draws others every time; what fails is printed with its source."""
DRAWING = settings(
    max_examples=round(DRAWS * FACTOR),
    database=None,
    deadline=None,
    phases=PHASES,
    suppress_health_check=list(hypothesis.HealthCheck),
)
SIZES = [(3, 2, 3, 5, 4), (2, 1, 1, 2, 3), (4, 3, 2, 9, 2), (2, 5, 4, 3, 17)]
"""T, N, D, H, and the size of `other`"""


def test_the_draws_know_every_op() -> None:
    elementwise = {op.name for op in TABLE.values() if op.kind == "elementwise"}
    assert elementwise - {*UNARY, *BINARY} == {"norm", "choose"}, (
        "norm is a reduction here; choose is of dropout, not of the language"
    )
    assert {op.name for op in TABLE.values() if op.kind == "reduction"} <= set(REDUCTIONS)


def agree(source: str, sizes: tuple[int, ...]) -> Network:
    """Compare all that can run the cell."""
    T, N, D, H, other = sizes
    named = {"other": other} if '"other"' in source else {}
    p = problem(cell_of(source), T, N, D, H, **named)
    assert llvm.why_not(p.network, "float64") is None
    for which in ("inference", "training", "backward"):
        check_program(getattr(p.network.plan, which))
    check_phase(p.network.plan.phase)
    expected, autograd, fast = on_reference(p), on_torch(p, torch.float64), on_llvm(p)
    normalises = {"sum", "sqrt"} <= {node.op for node in p.network.graph.nodes}
    again = (lambda random: on_reference(p.rounded(random))) if normalises else None
    for who, found in (("autograd", autograd), ("llvm", fast)):
        assert_agree(found, expected, "random cells, float64", who, 1e-4, again)
    return p.network


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize(("two_stages", "reduces", "two_sizes"), KINDS)
def test_all_agree(two_stages: bool, reduces: bool, two_sizes: bool) -> None:
    drawn: set[str] = set()

    @seed(SEED + KINDS.index((two_stages, reduces, two_sizes)))
    @DRAWING
    @given(sources(two_stages, reduces, two_sizes), st.sampled_from(SIZES))
    def each(source: str, sizes: tuple[int, ...]) -> None:
        note(source)
        network = agree(source, sizes)
        drawn.add(source)
        assert network.plan.inference.stages >= (2 if two_stages else 1)
        assert "sum" in {node.op for node in network.plan.graph.nodes} or not reduces
        assert (len({state.shape for state in network.graph.states if state.shape}) == 2) is two_sizes

    each()
    assert len(drawn) >= CELLS * FACTOR


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_all_agree_under_zoneout() -> None:
    """Against torch's own derivatives; NumPy's reference has the kernels' adjoint."""

    @seed(SEED + len(KINDS))
    @DRAWING
    @given(st.sampled_from(KINDS).flatmap(lambda kind: sources(*kind)), st.sampled_from(SIZES))
    def each(source: str, sizes: tuple[int, ...]) -> None:
        note(source)
        T, N, D, H, other = sizes
        named = {"other": other} if '"other"' in source else {}
        results = []
        for backend in ("reference", "llvm"):
            torch.manual_seed(0)
            layer = Recurrent(cell_of(source), D, H, zoneout=0.3, backend=backend, dtype=torch.float64, **named)
            x = torch.randn(T, N, D, dtype=torch.float64, requires_grad=True)
            output, last = layer(x)
            loss = sum(value.square().sum() for value in (output, *(last if isinstance(last, tuple) else (last,))))
            leaves = {"x": x, **dict(layer.named_parameters())}
            (loss + 0 * x.sum()).backward()  # which may not depend on the input
            gradients = {name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for name, leaf in leaves.items()}
            results.append({"output": output.detach(), **gradients})
        for (name, theirs), ours in zip(results[0].items(), results[1].values(), strict=True):
            # the norm of two features is one and its opposite, so that gradients through it are little but rounding
            assert_relative(ours, theirs, "random cells, float64", name, 1e-3)

    each()
