"""Cells drawn at random: the reference, llvm and torch's autograd agree, forward and backward."""

from __future__ import annotations

from collections import Counter

import hypothesis
import pytest
import torch
from hypothesis import assume, given, note, seed, settings
from hypothesis import strategies as st

from anyrnn.backends.llvm import run as llvm
from anyrnn.ir.ops import TABLE
from tests.budget import assert_relative
from tests.networks import on_llvm, on_reference, on_torch, problem
from tests.random_cells import BINARY, REDUCTIONS, UNARY, cell_of, sources

BLOCKS, EXAMPLES = 8, 25
PHASES = [hypothesis.Phase.generate, hypothesis.Phase.shrink]
SIZES = [(3, 2, 3, 5, 4), (2, 1, 1, 2, 3), (4, 3, 2, 9, 2), (2, 5, 4, 3, 17)]
"""T, N, D, H, and the size of `other`"""


def test_the_draws_know_every_op() -> None:
    elementwise = {op.name for op in TABLE.values() if op.kind == "elementwise"}
    assert elementwise - {*UNARY, *BINARY} == {"norm", "choose"}, (
        "norm is a reduction here; choose is of dropout, not of the language"
    )
    assert {op.name for op in TABLE.values() if op.kind == "reduction"} <= set(REDUCTIONS)


def agree(source: str, sizes: tuple[int, ...]) -> Counter[str]:
    """Compare all that can run the cell; what kind of cell it is."""
    T, N, D, H, other = sizes
    named = {"other": other} if '"other"' in source else {}
    p = problem(cell_of(source), T, N, D, H, **named)
    assert llvm.why_not(p.network, "float64") is None
    expected, autograd, fast = on_reference(p), on_torch(p, torch.float64), on_llvm(p)
    for name, value in expected.items():
        assert_relative(autograd[name], value, "random cells, float64", f"autograd: {name}")
        assert_relative(fast[name], value, "random cells, float64", f"llvm: {name}")
    plan = p.network.plan
    ops = {node.op for node in plan.graph.nodes}
    return Counter(
        two_stages=plan.inference.stages >= 2,
        reductions="sum" in ops,
        sizes_of_states=len({s.shape for s in p.network.graph.states if s.shape}) > 1,
        recurrent_products=plan.inference.stages >= 1,
    )


@pytest.mark.parametrize("block", range(BLOCKS))
def test_all_agree(block: int) -> None:
    counts: Counter[str] = Counter()
    drawn: set[str] = set()

    @seed(block)
    @settings(
        max_examples=EXAMPLES, database=None, deadline=None, phases=PHASES, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @given(sources(), st.sampled_from(SIZES))
    def each(source: str, sizes: tuple[int, ...]) -> None:
        assume(source not in drawn)
        note(source)
        counts.update(agree(source, sizes))
        drawn.add(source)

    each()
    assert len(drawn) >= EXAMPLES
    assert counts["recurrent_products"] == len(drawn)
    for kind in ("two_stages", "reductions", "sizes_of_states"):
        assert counts[kind] * BLOCKS >= 40, f"{kind}: {counts[kind]} of {len(drawn)} in a block; 40 are wanted in {BLOCKS} blocks"
