"""A state that is not given is zero in the first step, and its products are not made: what is packed beside the weights says
what they would give.
"""

import pytest
import torch

import anyrnn.torch
from anyrnn import State, Vec, cell, cells
from anyrnn.backends.llvm import run
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
