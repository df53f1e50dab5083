from __future__ import annotations

import pytest

from anyrnn import cells
from anyrnn.passes.compile import plan
from anyrnn.passes.plan import Program

# All-feature dependencies on the longest cycle through one step, forward and backward, as the papers' equations have them.
STAGES = {
    "rnn_tanh": 1,
    "rnn_relu": 1,
    "lstm": 1,
    "gru": 1,
    "lstm_peephole": 1,
    "gru_before": 2,
    "mgu": 2,
    "lstm_projected": 2,
    "lstm_layernorm": 3,
    "indrnn": 0,
}


def test_every_cell_has_its_count() -> None:
    assert set(STAGES) == set(cells.names())


@pytest.mark.parametrize("which", ["inference", "training", "backward"])
@pytest.mark.parametrize("name", STAGES)
def test_stages(name: str, which: str) -> None:
    program: Program = getattr(plan(cells.load(name).trace()), which)
    assert program.stages == STAGES[name]
    assert len(program.body) == max(1, STAGES[name])
