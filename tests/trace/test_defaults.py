"""Cells with other defaults of their hyper-parameters."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import anyrnn
from anyrnn import CellError, Several, State, affine, cell, cells, relu, tanh
from anyrnn.cells.wrappers import residual
from anyrnn.trace import Cell
from anyrnn.workbench import check


@cell
def delayed(x, h, *past: Several("delay"), delay=2, f=tanh, gain=1.0):
    h, past = gain * f(affine("n", x, h=past[-1])), (h, *past[:-1])
    return h, State(h=h, past=past)


@pytest.mark.parametrize("given", [{"delay": 3}, {"f": relu}, {"gain": 0.5}, {"delay": 1, "f": relu, "gain": 2}], ids=" ".join)
@pytest.mark.parametrize("backend", ["reference", "llvm"])
def test_a_layer_is_that_which_is_given_them(given: dict[str, Any], backend: str) -> None:
    x = np.random.default_rng(0).standard_normal((6, 2, 3))
    of_layer = anyrnn.Recurrent(delayed, 3, 5, seed=0, backend=backend, dtype="float64", **given)
    of_cell = anyrnn.Recurrent(delayed.with_defaults(**given), 3, 5, seed=0, backend=backend, dtype="float64")
    plain = anyrnn.Recurrent(delayed, 3, 5, seed=0, backend=backend, dtype="float64")
    y, last = of_cell(x)
    np.testing.assert_array_equal(y, of_layer(x)[0])
    assert len(last) == 1 + given.get("delay", 2)
    assert not np.array_equal(y, plain(x)[0])


def test_layers_may_still_be_given_others() -> None:
    x = np.random.default_rng(0).standard_normal((6, 2, 3))
    changed = delayed.with_defaults(delay=4, gain=0.5)
    layers = [anyrnn.Recurrent(c, 3, 5, seed=0, dtype="float64", delay=1) for c in (changed, delayed.with_defaults(gain=0.5))]
    np.testing.assert_array_equal(*(layer(x)[0] for layer in layers))


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (cells.ctrnn.with_defaults(dt=1), "ctrnn(dt=1.0)"),
        (cells.ctrnn.with_defaults(dt=0.5).with_defaults(tau=2.0), "ctrnn(dt=0.5, tau=2.0)"),
        (cells.ctrnn.with_defaults(dt=0.5).with_defaults(dt=0.25), "ctrnn(dt=0.25)"),
        (cells.ctrnn.with_defaults(), "ctrnn"),
        (delayed.with_defaults(f=relu), "delayed(f=relu)"),
        (residual(cells.ctrnn.with_defaults(dt=0.5)), "residual(ctrnn(dt=0.5))"),
        (residual(cells.ctrnn).with_defaults(dt=0.5), "residual(ctrnn)(dt=0.5)"),
    ],
)
def test_names_and_copies(made: Cell, name: str) -> None:
    assert made.name == name
    assert copy.deepcopy(made) is made
    again = pickle.loads(pickle.dumps(made))
    assert (again.name, again.trace().identity, again.values({})) == (name, made.trace().identity, made.values({}))


def test_hyper_parameters_that_nothing_reads_are_still_told() -> None:
    @cell
    def leaky(x, h, *, leak=0.5, depth=2):
        h = leak * tanh(affine("n", x, h))
        return h, State(h=h)

    for one in (leaky, leaky.with_defaults(leak=0.25), leaky.with_defaults(depth=3)):
        assert "depth" in str(check(one, timed=False)), one


def test_wrappers_have_as_many_states_as_the_cell() -> None:
    names = [s.name for s in residual(delayed.with_defaults(delay=3)).trace().states]
    assert names == ["h", "past1", "past2", "past3"]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (
            {"dellay": 3},
            TypeError,
            "cell 'delayed' has no hyper-parameter 'dellay' .did you mean 'delay'.*it has: delay, f, gain",
        ),
        ({"delay": 3.0}, TypeError, "'delay' of cell 'delayed' should be a whole number, got 3.0"),
        ({"gain": "much"}, TypeError, "'gain' of cell 'delayed' should be a number, got a str"),
        ({"delay": 0}, CellError, "delay"),
    ],
)
def test_what_cannot_be(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        delayed.with_defaults(**given)
