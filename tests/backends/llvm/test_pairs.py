"""Products of pairs of numbers that are rounded to bfloat16, against float64 with products of rounded numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from anyrnn.backends.llvm import run as llvm
from anyrnn.ir.interpret import Interpreter
from tests.budget import ROUNDED, TURNED
from tests.networks import NO_PAIRS, Problem, Results, fitting, on_llvm, on_torch
from tests.zoo import EVERY

pytestmark = NO_PAIRS
# of 300 features two blocks are whole, of 130 one; odd ones leave half a pair; rows of few and of several tiles
SIZES = [(3, 1, 300, 130), (2, 3, 130, 260), (2, 2, 5, 7), (4, 50, 41, 33), (1, 11, 2, 1)]
CELLS = ["lstm", "gru", "gru_before", "lstm_heads", "indrnn", "lstm_layernorm", "nas", "rnn_relu"]


def rounded(t: torch.Tensor) -> torch.Tensor:
    return t.bfloat16().to(t.dtype)


class Product(torch.autograd.Function):
    """A product of rounded numbers, whose gradients are products of rounded numbers too."""

    @staticmethod
    def forward(ctx: Any, exact: Any, matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
        ctx.exact, (ctx.matrix, ctx.vector) = exact, map(rounded, (matrix, vector))
        result: torch.Tensor = exact(ctx.matrix, ctx.vector)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in (ctx.matrix, ctx.vector)]
            return None, *torch.autograd.grad(ctx.exact(*leaves), leaves, rounded(gradient))


def on_torch_rounded(p: Problem, monkeypatch: pytest.MonkeyPatch) -> Results:
    exact = Interpreter._product

    def product(self: Interpreter, matrix: Any, vector: Any, transposed: bool, heads: int) -> Any:
        return Product.apply(lambda m, v: exact(self, m, v, transposed, heads), matrix, vector)

    with monkeypatch.context() as patched:
        patched.setattr(Interpreter, "_product", product)
        return on_torch(p)


def distance(a: Any, b: Any) -> float:
    return float(np.linalg.norm(np.asarray(a, np.float64) - b))


def compare(p: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that lies between two others of bfloat16 may be rounded to either: most of what rounding does has to be there.
    More numbers are where float32 itself is far from float64, as in phased cells, whose time loses three digits.
    """
    found, wanted, exact = on_llvm(p, np.float32, padding=1, numbers=llvm.IN_PAIRS), on_torch_rounded(p, monkeypatch), on_torch(p)
    plain = on_llvm(p, np.float32, padding=1)
    for name, value in wanted.items():
        moved, own = distance(exact[name], value), distance(exact[name], plain[name])
        assert distance(found[name], value) <= ROUNDED * moved + TURNED * np.linalg.norm(value) + 10 * own + 1e-9, name


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("cell", [pytest.param(c, marks=pytest.mark.slow if c in ("nas", "gru_before") else ()) for c in CELLS])
def test_products_are_of_rounded_numbers(cell: str, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    compare(fitting(cell, *sizes), monkeypatch)


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("cell", EVERY)
def test_every_cell(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(fitting(cell, 3, 5, 21, 18, bidirectional=True), monkeypatch)
