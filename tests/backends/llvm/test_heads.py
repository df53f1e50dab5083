"""Block-diagonal products: blocks that end within panels and groups, and those that are whole panels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import anyrnn
from anyrnn import State, Vec, cell, cells
from anyrnn.backends.llvm.run import write_code
from anyrnn.passes.compile import plan
from anyrnn.trace.language import affine, sigmoid, tanh
from tests.budget import assert_relative, assert_within_budget
from tests.networks import on_llvm, on_reference, on_torch, problem


@cell
def mixed(x, h, s: Vec("other"), *, heads=2):
    """Blocks that are not square, of two operands, beside a dense product of one of them."""
    r = sigmoid(affine("r", h, s, heads=heads))
    s = tanh(affine("s", h=r * h, size="other", heads=heads) + affine("t", x, size="other"))
    h = tanh(affine("n", x) + affine("n", h, heads=heads) + affine("dense", whole=r))
    return h, State(h=h, s=s)


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize(("hidden", "other", "heads"), [(8, 4, 2), (6, 3, 3), (48, 16, 2), (66, 12, 6), (64, 32, 4), (40, 80, 5)])
def test_kernels_equal_the_reference(hidden: int, other: int, heads: int, rows: int) -> None:
    p = problem(mixed, 7, rows, 5, hidden, heads=heads, other=other)
    expected = on_reference(p)
    for padding in (0, 3):
        for name, value in on_llvm(p, np.float64, padding=padding).items():
            assert_relative(value, expected[name], "llvm float64 against the reference backend", name)


@pytest.mark.parametrize("sizes", [(7, 3, 5, 36), (5, 40, 8, 96)], ids=str)
@pytest.mark.parametrize("name", ["lstm_heads", "gru_block"])
def test_float32_is_within_budget(name: str, sizes: tuple[int, ...]) -> None:
    p = problem(name, *sizes, 2, True, heads=3)
    fast, peer, reference = on_llvm(p, np.float32), on_torch(p, torch.float32), on_reference(p)
    names = list(reference)
    assert_within_budget(*([results[n] for n in names] for results in (fast, peer, reference)), name)


def test_any_number_of_threads_gives_the_same_bits() -> None:
    before = torch.get_num_threads()
    p = problem("lstm_heads", 6, 5, 7, 72, heads=3)
    found: list[Any] = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(on_llvm(p, np.float32))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(np.array_equal(other[name], value) for name, value in found[0].items())


def test_changed_weights_are_seen_and_streams_equal_calls() -> None:
    layer = anyrnn.Recurrent("lstm_heads", 5, 24, heads=4, seed=0)
    x = np.random.default_rng(0).normal(size=(9, 2, 5)).astype("f")
    y = layer(x)[0]
    stream = layer.stream(2)
    assert np.array_equal(np.stack([stream(row) for row in x]), y)
    layer.parameters["weight_hh_l0"][3, 2] += 1
    assert not np.array_equal(layer(x)[0], y)


def test_only_the_blocks_are_multiplied() -> None:
    """The work of a step follows from the blocks: its loops go over a group's own features."""
    text = write_code(plan(cells.lstm_heads.trace(heads=4)), "inference", "float32").text
    assert "pack_4_blocks" in text
    assert "whole_panels" in text
    assert "whole_panels" not in write_code(plan(cells.lstm_heads.trace()), "inference", "float32").text


def test_heads_that_do_not_divide_the_features() -> None:
    with pytest.raises(ValueError, match="is not a whole number for hidden=10"):
        anyrnn.Recurrent("lstm_heads", 5, 10, heads=4)
