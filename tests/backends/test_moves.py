"""Cells that cut vectors and join them run on native kernels, and give what the interpreter and torch's autograd give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import anyrnn
import anyrnn.torch
from anyrnn import Vec
from anyrnn.backends.llvm import run as llvm
from anyrnn.passes.check import check_program
from tests.budget import assert_agree
from tests.moving_cells import CELLS
from tests.networks import on_llvm, on_reference, on_torch, problem

SHAPES = [(1, 1, 1, 6), (5, 3, 4, 12), (4, 17, 3, 18), (3, 130, 20, 48), (3, 2, 7, 102)]
"""T, N, D, H: cuts in the midst of a vector of the machine, at its ends, and in the one after it."""
each = pytest.mark.parametrize("cell", CELLS, ids=str)
STRUCTURES: list[dict[str, Any]] = [
    {"num_layers": 2, "bidirectional": True},
    {"num_layers": 2, "residual": True},
    {"reverse": True, "weight_dropout": 0.3, "zoneout": 0.2, "learned_state": True},
]
PAIRS = [(c, s) for c in CELLS for s in STRUCTURES if not (s.get("residual") and c.name in ("two_sizes", "thirds"))]
"""Those of an output that has not the size of the input have no residual layers."""


@pytest.mark.parametrize("shape", SHAPES)
@each
def test_as_the_interpreter_and_autograd(cell: Any, shape: tuple[int, ...]) -> None:
    p = problem(cell, *shape)
    assert llvm.why_not(p.network, "float64") is None
    for which in ("inference", "training", "backward"):
        check_program(getattr(p.network.plan, which))
    expected = on_reference(p)
    for who, found in (("autograd", on_torch(p, torch.float64)), ("llvm", on_llvm(p))):
        assert_agree(found, expected, "random cells, float64", who, 1e-4, None)


@pytest.mark.parametrize("call", [{}, {"lengths": [4, 0, 7]}, {"reset": np.arange(21).reshape(7, 3) % 5 == 1}], ids=str)
@pytest.mark.parametrize(("cell", "structure"), PAIRS, ids=str)
def test_in_layers_and_over_samples_of_different_lengths(cell: Any, structure: dict[str, Any], call: dict[str, Any]) -> None:
    random, results = np.random.default_rng(0), []
    x, sizes = random.normal(size=(7, 3, 12)), {"other": 5} if cell.name == "two_sizes" else {}
    d_y = None
    for backend in ("llvm", "reference"):
        layer = anyrnn.Recurrent(cell, 12, 12, seed=0, dtype="float64", backend=backend, **sizes, **structure)
        y, last, reserve = layer.forward_training(x, seed=3, **call)
        d_y = np.cos(y) if d_y is None else d_y
        d_x, d_first, gradients = layer.backward(reserve, d_y)
        many = [*(last if isinstance(last, tuple) else [last]), *(d_first if isinstance(d_first, tuple) else [d_first])]
        results.append(
            [
                y,
                layer(x, **call)[0],
                d_x,
                *many,
                *gradients.values(),
                *layer.backward_weights(layer.backward_data(reserve, d_y)[2]).values(),
            ]
        )
    for found, expected in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@each
def test_the_same_bits_for_any_number_of_threads(cell: Any) -> None:
    before, results, sizes = torch.get_num_threads(), [], {"other": 7} if cell.name == "two_sizes" else {}
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            module = anyrnn.torch.Recurrent(cell, 20, 96, **sizes)
            x = torch.randn(5, 20, 20, requires_grad=True)
            y, _ = module(x)
            results.append([y, *torch.autograd.grad(y.cos().sum(), [x, *module.parameters()])])
    finally:
        torch.set_num_threads(before)
    for one, two, three in zip(*results, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)


def test_numbers_beside_are_not_read() -> None:
    """A state that is not finite in one half spoils the other no more than its equations say."""

    @anyrnn.cell
    def shifted(x: Vec("hidden"), h):  # type: ignore[no-untyped-def, valid-type]
        _, b = anyrnn.split(h, 2)
        h = anyrnn.concat(b + anyrnn.split(x, 2)[0], 0.5 * b)
        return h, anyrnn.State(h=h)

    layer = anyrnn.Recurrent(shifted, 10, 10)
    state = np.ones((1, 2, 10), np.float32)
    state[..., :5] = np.nan
    y, _ = layer(np.ones((3, 2, 10), np.float32), state)
    assert np.isfinite(y).all()
    assert layer.backend_name == "llvm"
