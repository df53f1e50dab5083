"""Gradients of sources from their parts: nothing is zeros first that is stored anyway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from anyrnn.backends.triton.products import Outer, Summed, make_gradients, new_gradients

LEFT, RIGHT = torch.randn(7, 6, dtype=torch.float64), torch.randn(7, 4, dtype=torch.float64)
MATRIX, VECTOR = torch.empty(6, 4), torch.empty(6)


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


def outer(gradient: Tensor, rows: slice, columns: slice) -> Outer:
    return Outer(gradient[rows, columns], LEFT[:, rows], RIGHT[:, columns], 1)


def summed(gradient: Tensor, rows: slice) -> Summed:
    return Summed(gradient[rows], LEFT[:, rows])


@pytest.mark.parametrize(
    ("parts", "operators"),
    [
        (lambda m, a, b: [outer(m, slice(0, 6), slice(0, 4))], ["mm", "zero_", "zero_"]),
        (
            lambda m, a, b: [outer(m, slice(0, 2), slice(0, 4)), outer(m, slice(2, 6), slice(0, 4))],
            ["mm", "mm", "zero_", "zero_"],
        ),
        (lambda m, a, b: [outer(m, slice(0, 2), slice(0, 4))], ["mm", "zero_", "zero_", "zero_"]),
        (lambda m, a, b: [outer(m, slice(0, 6), slice(0, 1))], ["addmm_", "zero_", "zero_", "zero_"]),
        (
            lambda m, a, b: [outer(m, slice(0, 6), slice(k, k + 2)) for k in (0, 2)],
            ["addmm_", "addmm_", "zero_", "zero_", "zero_"],
        ),
        (
            lambda m, a, b: [outer(m, slice(0, 4), slice(0, 4)), outer(m, slice(2, 6), slice(0, 4))],
            ["addmm_", "addmm_", "zero_", "zero_", "zero_"],
        ),
        (
            lambda m, a, b: [outer(m, slice(0, 6), slice(0, 1)), outer(m, slice(4, 6), slice(0, 4))],
            ["addmm_", "addmm_", "zero_", "zero_", "zero_"],
        ),
        (lambda m, a, b: [summed(a, slice(0, 6)), summed(b, slice(0, 6))], ["copy_", "sum", "zero_"]),
        (lambda m, a, b: [summed(a, slice(1, 3)), summed(a, slice(3, 6))], ["sum", "sum", "zero_", "zero_", "zero_"]),
        (lambda m, a, b: [Summed(torch.as_strided(a, (12,), (1,)), torch.cat([LEFT, LEFT], 1))], ["sum", "zero_"]),
    ],
    ids=[
        "whole",
        "two parts",
        "some rows",
        "a column",
        "columns",
        "rows that meet",
        "a column that meets rows",
        "two alike",
        "some of a vector",
        "two at once",
    ],
)
def test_what_is_the_only_part_is_stored(
    parts: Callable[[Tensor, Tensor, Tensor], Sequence[Outer | Summed]], operators: list[str]
) -> None:
    gradients, vectors = new_gradients([MATRIX, VECTOR, VECTOR], torch.float64, torch.device("cpu"))
    for gradient in (gradients[0], vectors):
        gradient.fill_(float("nan"))
    with Operators() as seen:
        make_gradients(parts(*gradients), gradients)
    assert sorted(name for name in seen.names if name in ("mm", "addmm_", "sum", "copy_", "zero_")) == sorted(operators)
    expected, _ = new_gradients([MATRIX, VECTOR, VECTOR], torch.float64, torch.device("cpu"))
    for gradient in expected:
        gradient.zero_()
    for part in parts(*expected):
        part.gradient.add_(part.left.T @ part.right if isinstance(part, Outer) else part.value.sum(0))
    for found, wanted in zip(gradients, expected, strict=True):
        torch.testing.assert_close(found, wanted)
    before = [gradient.clone() for gradient in gradients]
    make_gradients(parts(*gradients), [])
    for found, once, wanted in zip(gradients, before, expected, strict=True):
        torch.testing.assert_close(found - once, wanted)
