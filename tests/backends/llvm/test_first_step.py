"""A state that is not given is zero in the first step, and its products are not made: what is packed beside the weights says
what they would give. Nor are its rows part of the gradients of weights, unless what they are multiplied by is infinite or NaN.
"""

import numpy as np
import pytest
import torch

import anyrnn.torch
from anyrnn import State, Vec, cell, cells
from anyrnn.backends.llvm import pools, run
from anyrnn.passes.compile import plan
from anyrnn.trace.language import affine, tanh

WHOLE, REST = 3, 36
"""Columns that are packed in squares of vectors, and one by one, of 37."""


def outputs(name: str, x: torch.Tensor, change: str | None, dtype: torch.dtype) -> list[torch.Tensor]:
    """Of the kernels and of the interpreter, with one weight of a row that multiplies the state changed."""
    found = []
    for backend in ("llvm", "reference"):
        torch.manual_seed(0)
        module = anyrnn.torch.Recurrent(name, 3, 37, backend=backend, dtype=dtype).eval()
        if change is not None:
            value, column = change.split()
            with torch.no_grad():
                module.weight_hh_l0[5, int(column)] = float(value)
        with torch.no_grad():
            found.append(module(x)[0])
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("change", [None, *(f"{value} {k}" for value in ("inf", "-inf", "nan") for k in (WHOLE, REST))])
@pytest.mark.parametrize("name", ["lstm", "gru", "rnn_tanh", "gru_before"])
def test_the_first_step_is_the_interpreters(name, change, dtype):
    """Also where a weight is infinite or NaN, which gives NaN with a state of zeros."""
    x = torch.randn(2, 3, 3, dtype=dtype, generator=torch.Generator().manual_seed(1))
    ours, expected = outputs(name, x, change, dtype)
    assert torch.isnan(expected[0]).any() == (change is not None)
    torch.testing.assert_close(ours, expected, equal_nan=True)


@cell
def begins_at_one(x, h: Vec("hidden", 1.0)):
    h = tanh(affine("a", x, h))
    return h, State(h=h)


def test_a_state_that_begins_with_another_value_is_multiplied():
    torch.manual_seed(0)
    modules = [anyrnn.torch.Recurrent(begins_at_one, 3, 37, backend=backend) for backend in ("llvm", "reference")]
    modules[1].load_state_dict(modules[0].state_dict())
    x = torch.randn(1, 2, 3)
    torch.testing.assert_close(modules[0](x)[0], modules[1](x)[0])


@pytest.mark.parametrize(("which", "skips"), [("inference", True), ("training", True), ("backward", False)])
def test_which_programs_do_not_multiply_zeros(which, skips):
    assert ("is_zero" in run.write_code(plan(cells.load("lstm").trace()), which, "float32").text) == skips


def gradients(module: torch.nn.Module, x: torch.Tensor, first: object, like: torch.Tensor) -> list[torch.Tensor]:
    """Of the parameters."""
    module.zero_grad()
    module(x, first)[0].backward(like)
    return [p.grad.clone() for p in module.parameters()]


@pytest.mark.parametrize(("steps", "rows"), [(1, 3), (1, 200), (2, 5), (29, 7), (8, 40), (3, 1030), (1030, 1)])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_gradients_are_those_of_zeros_that_are_given(name, bidirectional, steps, rows):
    """One step, and more; one block of steps of a gradient's sum, and more; one chunk, and more; also of repeated calls."""
    torch.manual_seed(0)
    module = getattr(anyrnn.torch, name)(5, 19, 2, bidirectional=bidirectional, dtype=torch.float64)
    x, like = torch.randn(steps, rows, 5).double(), torch.randn(steps, rows, 19 * (1 + bidirectional)).double()
    zeros = torch.zeros(2 * (1 + bidirectional), rows, 19).double()
    given = gradients(module, x, zeros if name == "GRU" else (zeros, zeros), like)
    for _ in range(4):
        torch.testing.assert_close(gradients(module, x, None, like), given, rtol=0, atol=0)


def test_gradients_of_a_state_that_begins_with_another_value():
    torch.manual_seed(0)
    modules = [anyrnn.torch.Recurrent(begins_at_one, 3, 37, backend=backend) for backend in ("llvm", "reference")]
    modules[1].load_state_dict(modules[0].state_dict())
    x, like = torch.randn(1, 2, 3), torch.randn(1, 2, 37)
    torch.testing.assert_close(*[gradients(module, x, None, like) for module in modules])


def test_the_first_steps_rows_are_left_out_of_gradients():
    """Whatever stands in their place: here five for every zero that the forward call has kept."""
    layer = anyrnn.Recurrent("rnn_tanh", 3, 19, dtype=np.float32)
    x, d_y = np.ones((1, 2, 3), np.float32), np.ones((1, 2, 19), np.float32)
    found = []
    for first in (None, [np.zeros((1, 2, 19), np.float32)]):
        _, _, reserve = layer.forward_training(x, first)
        kept = reserve.memory.view(np.float32)
        kept[kept == 0] = 5
        found.append(layer.backward(reserve, d_y)[2]["weight_hh_l0"])
    assert (found[0] == 0).all()
    assert (found[1] != 0).any()


@pytest.mark.parametrize("number", [np.inf, np.nan])
@pytest.mark.parametrize("feature", [0, 18])
def test_cotangents_that_are_not_finite_times_zero_are_nan(number, feature):
    """As the equations have it; of other features the products with zeros are zero."""
    module = anyrnn.torch.RNN(3, 19)
    x, like = torch.randn(1, 2, 3), torch.zeros(1, 2, 19)
    like[0, 1, feature] = number
    of_states = gradients(module, x, None, like)[1]
    assert of_states[feature].isnan().all()
    assert (of_states[torch.arange(19) != feature] == 0).all()
    torch.testing.assert_close(of_states, gradients(module, x, torch.zeros(1, 2, 19), like)[1], equal_nan=True)


@pytest.mark.parametrize(("steps", "with_states", "packs"), [(1, False, False), (1, True, True), (2, False, True)])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_one_steps_backward_pass_packs_no_recurrent_weights(name, steps, with_states, packs, monkeypatch):
    """Only between steps are they read, and where gradients of first states are wanted. A number that nothing else has tells."""
    module = getattr(anyrnn.torch, name)(64, 64)
    with torch.no_grad():
        module.weight_hh_l0[3, 5] = 12345
    first = torch.zeros(1, 60, 64, requires_grad=True) if with_states else None
    output = module(torch.randn(steps, 60, 64), (first, first) if with_states and name == "LSTM" else first)[0]
    monkeypatch.setattr(pools, "MOST_RESTING", 1)  # what the backward call has worked in
    output.sum().backward()
    (scratch,) = pools.RESTING
    numbers = scratch.memory[: scratch.bytes // 4 * 4].view(np.float32)
    assert (numbers == 12345).any() == packs
