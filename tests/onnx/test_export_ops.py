"""Every op of the table in an ONNX graph, and cells drawn at random."""

from __future__ import annotations

import itertools

import hypothesis
from hypothesis import given, note, seed, settings
from hypothesis import strategies as st

import anyrnn
from anyrnn.ir.ops import TABLE
from anyrnn.onnx.writing_steps import DECLINED, LEAVES, SPELLED
from tests.onnx.exported import check
from tests.random_cells import cell_of, sources

KINDS = list(itertools.product([False, True], repeat=3))
THOROUGH = hypothesis.settings.get_current_profile_name() == "thorough"


def test_every_op_is_spelled_or_declined() -> None:
    known = [*SPELLED, *LEAVES, *DECLINED]
    assert sorted(known) == sorted(TABLE), "each op of the table once, and no other"


@seed(0)
@settings(
    max_examples=1000 if THOROUGH else 40,
    database=None,
    deadline=None,
    phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
    suppress_health_check=list(hypothesis.HealthCheck),
)
@given(source=st.sampled_from(KINDS).flatmap(lambda kind: sources(*kind)))
def test_random_cells_run_in_onnxruntime(source: str) -> None:
    note(source)
    sizes = {"other": 4} if '"other"' in source else {}
    check(anyrnn.Recurrent(cell_of(source), 3, 5, seed=0, dtype="float64", **sizes), T=3, N=3, states=True, lengths=[3, 1, 0])
