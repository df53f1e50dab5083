"""Threads that split the columns of a step help each other: what is left of a share is claimed by whoever is free, and what is
left when all have as many is divided by rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import c_int64

import numpy as np
import pytest
import torch

from anyrnn import Recurrent, Stream
from anyrnn.backends.llvm import driver, extent, run, split, target
from anyrnn.backends.llvm.claims import BARRIER_BYTES, LINE_BYTES, SHARE
from anyrnn.backends.llvm.frame import Frame
from anyrnn.backends.llvm.stack import STACK
from tests.networks import fitting, on_llvm

GROUPS = 12
THREADS = 2


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(before)


def stream() -> Stream:
    return Recurrent("lstm", 3, GROUPS * target.machine().lanes(4), seed=0, backend="llvm").stream()


def claims(of: Stream) -> list[int]:
    """How often a group of each thread was claimed in the last step, and a claim came too late."""
    assert of._native is not None
    frame = of._native.frame
    state = int(frame.view[STACK.index("barriers")]) + BARRIER_BYTES
    return [c_int64.from_address(state + LINE_BYTES * thread).value for thread in range(THREADS)]


def test_a_part_of_each_share_is_claimed() -> None:
    """Then as many claims as there are threads find that nothing is left."""
    ours = stream()
    for _ in range(3):
        ours(np.ones((1, 3), np.float32))
        assert claims(ours) == [GROUPS // THREADS // SHARE + THREADS] * THREADS


def test_helping_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((20, 1, 3), np.float32)
    helped = stream()
    outputs = [helped(step).copy() for step in x]
    run.POOLS.known.clear()
    monkeypatch.setattr(split, "SHARED", np.inf)
    alone = stream()
    for step, output in zip(x, outputs, strict=True):
        np.testing.assert_array_equal(alone(step), output)
    assert claims(alone) == [0] * THREADS


def test_what_an_earlier_piece_of_a_call_counted_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces may have different threads, so a thread may find what it counted long ago."""
    layer = Recurrent("lstm", 3, GROUPS * target.machine().lanes(4), seed=0, backend="llvm")
    x = np.random.default_rng(0).standard_normal((9, 1, 3), np.float32)
    expected = layer(x)[0]
    run.POOLS.known.clear()
    monkeypatch.setattr(split, "PIECE", 1e-9)
    monkeypatch.setattr(extent, "CHUNK_ROWS", 2)
    set_word = Frame.stack

    def stack(frame: Frame, name: str, value: int) -> None:
        set_word(frame, name, value)
        if name == "chunk_to":
            counts = int(frame.view[STACK.index("barriers")]) + BARRIER_BYTES
            for word in range(THREADS * LINE_BYTES // 8):
                c_int64.from_address(counts + 8 * word).value = GROUPS

    monkeypatch.setattr(Frame, "stack", stack)
    np.testing.assert_array_equal(layer(x)[0], expected)


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("cell", ["lstm", "lstm_layernorm", "gru_before", "lmu"])
def test_dividing_what_is_left_by_rows_changes_no_bit(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "ROWS_PER_THREAD", ((None, 10**6),))
    monkeypatch.setattr(split, "SHARED", 0.0)
    problems = [fitting(cell, 3, rows, 20, 70, 2, True) for rows in (8, 13, 30)]

    def solve(least: int) -> list[dict[str, np.ndarray]]:
        monkeypatch.setattr(driver, "LEAST_ROWS", least)
        run.compiled.cache_clear()
        run.POOLS.known.clear()
        return [on_llvm(p, np.float32) for p in problems]

    expected = solve(10**6)
    for threads in (2, 3):
        torch.set_num_threads(threads)
        for found, right in zip(solve(4), expected, strict=True):
            for name, value in right.items():
                assert np.array_equal(found[name], value), f"{threads} threads: {name}"
    run.compiled.cache_clear()
    run.POOLS.known.clear()
