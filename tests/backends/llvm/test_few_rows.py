"""Few rows multiply two blocks of weights at once: no bit depends on it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from anyrnn import cells
from anyrnn.backends.llvm import few_rows, products, run, target
from anyrnn.backends.llvm.target import Fetching
from anyrnn.passes.compile import plan
from tests.networks import NO_PAIRS, Results, fitting, on_llvm, on_processor

# of 330 features five blocks are whole, of 200 three: some are left behind two at once, and then the next operand's come
SIZES = [(3, 1, 330, 200), (3, 2, 200, 330), (2, 3, 129, 330), (1, 2, 330, 260), (5, 1, 40, 640), (2, 11, 40, 330)]
CELLS = ["lstm", "gru", "rnn_relu", "gru_before", "lstm_heads", "nas"]


def forget() -> None:
    run.compiled.cache_clear()
    run.POOLS.known.clear()


@pytest.fixture(autouse=True)
def code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With many registers."""
    monkeypatch.setattr(target.Machine, "low_tiles", False)
    forget()
    yield
    forget()


def solve(cell: str, dtype: type | None) -> list[Results]:
    forget()
    how = {"dtype": np.float32, "numbers": run.IN_PAIRS} if dtype is None else {"dtype": dtype}
    return [on_llvm(fitting(cell, *sizes), **how) for sizes in SIZES]


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, pytest.param(None, id="pairs", marks=NO_PAIRS)])
@pytest.mark.parametrize("cell", [pytest.param(c, marks=pytest.mark.slow if c in ("lstm_heads", "nas") else ()) for c in CELLS])
def test_two_blocks_at_once_change_no_bit(cell: str, dtype: type | None, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setattr(products, "pays", lambda machine, kind: False)
        expected = solve(cell, dtype)
    for near, most_apart, in_two in ((0, 32, True), (0, 32, False), (2**40, 32, True), (0, 1, True)):
        on_processor(monkeypatch, fetching=Fetching(4096, near, near, in_two))
        monkeypatch.setattr(few_rows, "MOST_APART", most_apart)
        for sizes, right, found in zip(SIZES, expected, solve(cell, dtype), strict=True):
            for name, value in right.items():
                assert np.array_equal(found[name], value), f"{sizes} {name} {near} {most_apart} {in_two}"


@pytest.mark.skipif("avx512vl" not in target.machine().features, reason="reads AVX-512 assembly")
def test_weights_are_part_of_the_multiplications() -> None:
    """A processor looks ahead over so many instructions."""
    text = target.assembly(run.write_code(plan(cells.load("gru").trace()), "inference", "float32").text)
    body = text[text.index("products_0_2_3_by_1_by_8_of_squares_ours_of_few_rows:") :].partition("retq")[0]
    loops = [body[: body.index(f"\tjl\t{label}\n")].rpartition(f"{label}:")[2] for label in re.findall(r"jl\t(\.LBB\w+)\n", body)]
    innermost = [loop for loop in loops if "\n.LBB" not in loop]
    found = [(len(re.findall("vfmadd", loop)), len(re.findall(r"vfmadd.*\(", loop))) for loop in innermost]
    assert [counts for counts in found if counts[0]] == [(6, 6), (12, 12), (18, 18)], "all of them with weights in memory"


@pytest.mark.parametrize("in_two", [False, True])
def test_where_two_blocks_at_once_pay(in_two: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four sums keep a row busy while weights are near; on which processors two blocks come sooner from far is known of few."""
    on_processor(monkeypatch, fetching=Fetching(4096, few_in_two=in_two))
    texts = {cell: run.write_code(plan(cells.load(cell).trace()), "inference", "float32").text for cell in ("gru", "lstm")}
    assert ["of_few_rows" in text for text in texts.values()] == [True, in_two]
    monkeypatch.setattr(target.Machine, "low_tiles", True)
    assert "of_few_rows" not in run.write_code(plan(cells.load("gru").trace()), "inference", "float32").text
