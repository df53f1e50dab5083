"""Cells with other defaults of their hyper-parameters."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

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
        (cells.ctrnn.with_defaults(tau=2.0).with_defaults(dt=0.5), "ctrnn(dt=0.5, tau=2.0)"),
        (cells.ctrnn.with_defaults(dt=np.float64(0.5)), "ctrnn(dt=0.5)"),
        (cells.ctrnn.with_defaults(dt=0.5).with_defaults(dt=0.25), "ctrnn(dt=0.25)"),
        (cells.ctrnn.with_defaults(), "ctrnn"),
        (delayed.with_defaults(f=relu), "delayed(f=relu)"),
        (residual(cells.ctrnn.with_defaults(dt=0.5)), "residual(ctrnn(dt=0.5))"),
        (residual(cells.ctrnn).with_defaults(dt=0.5), "residual(ctrnn)(dt=0.5)"),
    ],
)
def test_names_and_copies(made: Cell, name: str) -> None:
    assert made.name == name
    assert copy.deepcopy(made) is copy.copy(made) is made
    again = pickle.loads(pickle.dumps(made))
    assert (again.name, again.trace().identity, again.values({})) == (name, made.trace().identity, made.values({}))


def test_values_are_taken_when_they_are_given() -> None:
    number = torch.tensor(0.5)
    made = cells.ctrnn.with_defaults(dt=number)
    number.fill_(2)
    assert pickle.loads(pickle.dumps(made)).values({}) == made.with_defaults(tau=1.0).values({}) == {"dt": 0.5, "tau": 1.0}


def test_a_hyper_parameter_may_have_any_name() -> None:
    @cell
    def mine(x, h, *, self=0.5, hypers=2.0):
        h = self * tanh(hypers * affine("n", x, h))
        return h, State(h=h)

    assert mine.with_defaults(self=1, hypers=3).values({}) == {"self": 1.0, "hypers": 3.0}


def test_first_values_are_still_checked() -> None:
    """Whether there are such parameters; those of other structure may have fewer."""

    @cell(init={"bias_ih m": 1.0})
    def mine(x, h, *, rate=0.5, deep=True):
        h = rate * tanh(affine("n", x, h) + (affine("m", x) if deep else 0.0))
        return h, State(h=h)

    assert mine.with_defaults(deep=False).trace().parameters
    wrong = replace(mine, init={"bias_ih k": 1.0}, _graphs={})
    with pytest.raises(CellError, match="init names 'bias_ih k'"):
        wrong.with_defaults(rate=0.25).trace()


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
        ({"gain": "much"}, TypeError, "'gain' of cell 'delayed' should be a number, got 'much'"),
        ({"gain": True}, TypeError, "'gain' of cell 'delayed' should be a number, got True"),
        ({"gain": 10**400}, TypeError, "'gain' of cell 'delayed' should be a number, got 1000"),
        ({"f": "relu"}, TypeError, "'f' of cell 'delayed' should be a function, got 'relu'"),
        ({"f": cells.lstm}, TypeError, "'f' of cell 'delayed' should be a function, got a Cell"),
        ({"delay": 0}, CellError, r".past should be at least one state; 'delay' is 0"),
    ],
)
def test_what_cannot_be(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        delayed.with_defaults(**given)
