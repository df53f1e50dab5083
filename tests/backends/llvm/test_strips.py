"""Weights that no cache holds are multiplied piece by piece, and gradients are added bundle by bundle: no bit depends on it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from anyrnn.backends.llvm import gradients, products, run, tiles
from tests.networks import Results, fitting, on_llvm

# 60 rows are more than a strip; features are several blocks of 64 and a part of one
SIZES = [(3, 60, 200, 130), (2, 7, 70, 65), (2, 3, 129, 40), (9, 1, 70, 65)]
CELLS = ["lstm", "gru_before", "lstm_heads", "lstm_layernorm", "lmu", "rnn_relu", "indrnn"]


@pytest.fixture(autouse=True)
def code_of_its_own() -> Iterator[None]:
    def forget() -> None:
        run.compiled.cache_clear()
        run.POOLS.known.clear()

    forget()
    yield
    forget()


def solve(cell: str, sizes: tuple[int, ...], dtype: type) -> Results:
    return on_llvm(fitting(cell, *sizes, 1, True), dtype)


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cell", CELLS)
def test_pieces_change_no_bit(cell: str, dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [solve(cell, sizes, dtype) for sizes in SIZES]
    for piece, most in ((1, 8), (2**15, 2)):
        monkeypatch.setattr(products, "LARGE_BYTES", -1)
        monkeypatch.setattr(products, "PIECE_BYTES", piece)
        monkeypatch.setattr(tiles, "STRIP_TILES", most)
        monkeypatch.setattr(gradients, "BUNDLE", piece)
        run.compiled.cache_clear()
        run.POOLS.known.clear()
        for sizes, right in zip(SIZES, expected, strict=True):
            found = solve(cell, sizes, dtype)
            for name, value in right.items():
                assert np.array_equal(found[name], value), f"{sizes} {name}"
