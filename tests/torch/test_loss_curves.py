"""Training for 200 steps gives the losses of torch.nn with the same seed and data.

Problems and learning rates are such that rounding errors do not grow: torch.nn itself with its rows in another order keeps
within the same bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.budget import assert_relative
from tests.torch.layers import KINDS

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

D, H, STEPS = 3, 8, 200
kinds = pytest.mark.parametrize("kind", KINDS)
dtypes = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)


def data(dtype: torch.dtype) -> torch.Tensor:
    random = torch.Generator().manual_seed(4)
    return torch.randn(10, 16, D, dtype=torch.float64, generator=random).to(dtype)


def train(make: Any, dtype: torch.dtype, rate: float, loss_of: Any, outputs: int) -> list[float]:
    """The losses of a layer with a linear head, under Adam."""
    torch.manual_seed(3)
    layer = make(D, H, dtype=dtype)
    head = torch.nn.Linear(layer.proj_size or H, outputs, dtype=dtype)
    adam = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=rate)
    x, losses = data(dtype), []
    for _ in range(STEPS):
        adam.zero_grad()
        loss = loss_of(head(layer(x)[0]), x)
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return losses


def regression(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The sine of all that was seen so far."""
    return torch.nn.functional.mse_loss(y, x.sum(-1, keepdim=True).cumsum(0).sin())


def classification(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The signs of the sums of two features, from the last output."""
    label = (x.sum(0)[:, :2] > 0).long() @ torch.tensor([1, 2])
    return torch.nn.functional.cross_entropy(y[-1], label)


def assert_equal_curves(kind: str, dtype: torch.dtype, *problem: Any) -> None:
    ours, theirs = (np.array(train(make, dtype, *problem)) for make in KINDS[kind])
    assert theirs[-1] < 0.7 * theirs[0], "it learns"
    row = f"loss curve in {str(dtype).removeprefix('torch.')} against torch.nn"
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert_relative(a, b, row, f"step {step}")


@kinds
@dtypes
def test_regression(kind: str, dtype: torch.dtype) -> None:
    assert_equal_curves(kind, dtype, 0.003, regression, 1)


@kinds
@dtypes
def test_classification(kind: str, dtype: torch.dtype) -> None:
    assert_equal_curves(kind, dtype, 0.01, classification, 4)
