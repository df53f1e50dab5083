"""Weights that no cache holds are multiplied piece by piece, gradients are added bundle by bundle, and processors differ in what
they fetch ahead: no bit depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from anyrnn.backends.llvm import outer, products, run, shapes, target
from tests.networks import Results, fitting, on_llvm, on_processor

# 60 rows are more than a strip; 4 (with more registers 7) are a tall tile, and so is what 52 and 55 leave behind a strip
# features are several blocks of 64 and a part of one
SIZES = [(3, 60, 200, 130), (2, 4, 200, 130), (2, 7, 70, 65), (2, 52, 40, 33), (2, 55, 40, 33), (2, 3, 129, 40), (9, 1, 70, 65)]
CELLS = ["lstm", "gru", "gru_before", "lstm_heads", "lstm_layernorm", "lmu", "rnn_relu", "indrnn"]
LONG = ("lstm_heads", "lstm_layernorm", "lmu")
"""to compile"""


def forget() -> None:
    run.compiled.cache_clear()
    run.POOLS.known.clear()


@pytest.fixture(autouse=True)
def code_of_its_own() -> Iterator[None]:
    forget()
    yield
    forget()


def solve(cell: str, sizes: tuple[int, ...], dtype: type) -> Results:
    return on_llvm(fitting(cell, *sizes, 1, True), dtype)


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cell", [pytest.param(c, marks=pytest.mark.slow if c in LONG else ()) for c in CELLS])
def test_pieces_change_no_bit(cell: str, dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [solve(cell, sizes, dtype) for sizes in SIZES]
    ways = (
        (False, False, False, -1, 1, 48, 1, 3),
        (False, False, False, -1, 2**15, 16, 2, 1),
        (True, False, False, -1, 1, 16, 8, 16),
        (False, True, False, 2**23, 1, 48, 8, 16),
        (False, True, True, 2**23, 1, 48, 8, 16),
        (False, False, False, 2**23, 1, 48, 8, 16),
    )
    for low, wide, of_a_block, large, piece, most, groups, panels in ways:
        monkeypatch.setattr(target.Machine, "low_tiles", low)
        monkeypatch.setattr(target.Machine, "wide", wide)
        on_processor(monkeypatch, strips_of_a_block=of_a_block)
        monkeypatch.setattr(products, "FAR_BYTES", large)
        monkeypatch.setattr(products, "PIECE_BYTES", piece)
        monkeypatch.setattr(shapes, "STRIP_ROWS", most)
        monkeypatch.setattr(outer, "BUNDLE", piece)
        monkeypatch.setattr(outer, "GROUPS_TOGETHER", groups)
        monkeypatch.setattr(outer, "PANELS_TOGETHER", panels)
        forget()
        for sizes, right in zip(SIZES, expected, strict=True):
            found = solve(cell, sizes, dtype)
            for name, value in right.items():
                assert np.array_equal(found[name], value), f"{sizes} {name}"


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("cell", ["lstm", "indrnn"])
def test_what_is_fetched_ahead_changes_no_bit(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, texts = [], []
    for ahead in (False, True):
        monkeypatch.setattr(target.Machine, "wide", ahead)
        on_processor(monkeypatch, tile_ahead=ahead, fetching=target.Fetching(4096, 0, 0) if ahead else None)
        forget()
        p = fitting(cell, 3, 20, 33, 70)
        found.append(on_llvm(p, np.float32))
        texts.append("".join(run.write_code(p.network.plan, which, "float32").text for which in ("training", "backward")))
    for name in ("rows_ahead", "panel_ahead", "group_ahead"):
        assert [name in text for text in texts] == [False, True]
    for name, value in found[0].items():
        assert np.array_equal(found[1][name], value), name


def test_each_tile_of_a_strip_fetches_for_its_own_rows() -> None:
    """From the same place on in the table of what the pointwise part touches, whatever the tile before has fetched."""
    plan = fitting("lstm", 3, 20, 33, 70).network.plan
    for which in ("training", "backward"):
        text = run.write_code(plan, which, "float32").text
        (products_of_strips,) = re.findall(r"(?ms)^define internal void @products_\w+(?<!_few_rows)\(.*?^}", text)
        loops = re.findall(r"^tile\.body.*?^tile\.exit", products_of_strips, re.MULTILINE | re.DOTALL)
        assert loops
        for loop in loops:
            assert "store i64 %cursor" in loop


@pytest.mark.parametrize("pays", [False, True])
def test_whether_strips_need_another_block_of_weights(pays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one block, how high strips are is a figure of the processor."""
    monkeypatch.setattr(target.Machine, "low_tiles", False)
    monkeypatch.setattr(target.Machine, "wide", True)
    on_processor(monkeypatch, strips_of_a_block=pays)
    text = run.write_code(fitting("indrnn", 3, 20, 33, 70).network.plan, "inference", "float32").text
    assert ("another_block" in text) == (not pays)
