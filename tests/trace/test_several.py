"""As many states as a hyper-parameter says."""

from __future__ import annotations

import numpy as np
import pytest

import anyrnn
from anyrnn import CellError, Several, State, affine, cell, cells, scope, tanh


@cell
def delayed(x, h, *past: Several("delay", init=0.5), delay=2):
    h, past = tanh(affine("n", x, h=past[-1])), (h, *past[:-1])
    return h, State(h=h, past=past)


@cell
def fixed(x, h, *past: Several(2)):
    return delayed(x, h, *past)


@cell
def further(x, h, *past: Several(3)):
    with scope("inner"):
        return delayed(x, h, *past, delay=3)


def test_states_are_named_by_number() -> None:
    states = delayed.trace(delay=3).states
    assert [(state.name, state.init) for state in states] == [("h", 0.0), ("past1", 0.5), ("past2", 0.5), ("past3", 0.5)]
    assert [state.name for state in delayed.trace().states] == ["h", "past1", "past2"]


@pytest.mark.parametrize("delay", [1, 4])
def test_a_layer_has_them(delay: int) -> None:
    """Only the step before the delay is seen: the first `delay` steps after the initial values see those."""
    layer = anyrnn.Recurrent(delayed, 3, 5, delay=delay, seed=0, backend="llvm", dtype="float64")
    x = np.random.default_rng(0).standard_normal((9, 2, 3))
    output, last = layer(x)
    p = layer.parameters
    before = [np.full((2, 5), 0.5)] * delay + [np.zeros((2, 5))]
    for t in range(9):
        seen = before[t]
        before.append(np.tanh(x[t] @ p["weight_ih_l0"].T + p["bias_ih_l0"] + seen @ p["weight_hh_l0"].T + p["bias_hh_l0"]))
        np.testing.assert_allclose(output[t], before[-1], atol=1e-12)
    assert len(last) == delay + 1


def test_cells_with_several_states_in_others() -> None:
    assert fixed.trace().states == delayed.trace().states[:1] + tuple(fixed.signature.states[1:])
    assert [state.name for state in further.trace().states] == ["h", "past1", "past2", "past3"]

    @cell
    def too_few(x, h, *past: Several(2)):
        return delayed(x, h, *past, delay=3)

    with pytest.raises(CellError, match="cell 'delayed' takes x, h, past1, past2, past3; got 4 arguments"):
        too_few.trace()


def test_of_a_cell_of_the_zoo() -> None:
    assert len(cells.tau_gru.trace().states) == 11
    assert len(cells.tau_gru.trace(delay=2).states) == 3
