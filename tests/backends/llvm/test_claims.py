"""Threads help each other: what is left of a share is claimed by whoever is free, and groups of columns that are left when all
have as many are divided by rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import c_int64

import numpy as np
import pytest
import torch

from anyrnn import Recurrent, Stream
from anyrnn.backends.llvm import driver, extent, run, split, target
from anyrnn.backends.llvm.claims import BARRIER_BYTES, COUNT_BYTES, COUNTS_BYTES, SHARE
from anyrnn.backends.llvm.frame import Frame
from anyrnn.backends.llvm.outer import PANELS_TOGETHER, group_of
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


def claims(of: Frame) -> list[list[int]]:
    """For each stage that was shared, how often a piece of each thread was claimed in the last round, or a claim was late."""
    state = int(of.view[STACK.index("barriers")]) + BARRIER_BYTES
    words = [
        [c_int64.from_address(state + COUNTS_BYTES * k + COUNT_BYTES * word).value for k in range(THREADS)]
        for word in range(COUNTS_BYTES // COUNT_BYTES)
    ]
    return [of_word for of_word in words if any(of_word)]


def of_stream(stream: Stream) -> list[list[int]]:
    assert stream._native is not None
    return claims(stream._native.frame)


def claimed(pieces: int) -> list[int]:
    """Claims of so many pieces of each share: then as many as there are threads find that nothing is left."""
    return [pieces // SHARE + THREADS] * THREADS


def test_a_part_of_each_share_is_claimed() -> None:
    ours = stream()
    for _ in range(3):
        ours(np.ones((1, 3), np.float32))
        assert of_stream(ours) == [claimed(GROUPS // THREADS)]


@pytest.mark.parametrize(
    ("cell", "rows", "forward", "backward", "gradients"),
    [
        ("lstm", 16, 2, 10, 8),
        ("lstm", 1000, 0, 8, 8),
        pytest.param("ltc", 1000, 0, 1, 1, id="terms of one gradient are not shared"),
    ],
)
def test_a_part_of_what_is_done_for_a_chunk_is_claimed(
    cell: str, rows: int, forward: int, backward: int, gradients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products with the input and their gradient where columns are split, as steps are; gradients of matrices in any case."""
    size, frames, call = 2 * GROUPS * target.machine().lanes(4), [], Frame.call_again

    def call_again(frame: Frame, threads: int) -> None:
        frames.append(frame)
        call(frame, threads)

    monkeypatch.setattr(Frame, "call_again", call_again)
    layer = Recurrent(cell, size, size, seed=0, backend="llvm")
    x = np.ones((3, rows, size), np.float32)
    layer.backward(layer.forward_training(x)[2], x)
    of_forward, of_backward = map(claims, frames)
    assert of_forward == [claimed(GROUPS)] * forward
    assert len(of_backward) == backward
    tasks = 2 * GROUPS * (2 * GROUPS // group_of(target.machine())) // THREADS
    assert of_backward[-gradients:] == [claimed(tasks // PANELS_TOGETHER)] * gradients


@pytest.mark.parametrize("rows", [1, 16, 70])
def test_helping_changes_no_bit(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = fitting("lstm", 20, rows, 200, 200)
    monkeypatch.setattr(extent, "CHUNK_ROWS", extent.BLOCK_ROWS)
    helped = on_llvm(problem, np.float32)
    run.POOLS.known.clear()
    monkeypatch.setattr(split, "SHARED", np.inf)
    for name, value in on_llvm(problem, np.float32).items():
        np.testing.assert_array_equal(helped[name], value, err_msg=name)


def test_a_stream_that_is_helped_has_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((20, 1, 3), np.float32)
    helped = stream()
    outputs = [helped(step).copy() for step in x]
    run.POOLS.known.clear()
    monkeypatch.setattr(split, "SHARED", np.inf)
    alone = stream()
    for step, output in zip(x, outputs, strict=True):
        np.testing.assert_array_equal(alone(step), output)
    assert not of_stream(alone)


def test_what_an_earlier_piece_of_a_call_counted_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces may have different threads, so a thread may find what it counted long ago."""
    layer = Recurrent("lstm", 3, GROUPS * target.machine().lanes(4), seed=0, backend="llvm")
    x = np.random.default_rng(0).standard_normal((9, 1, 3), np.float32)
    expected = layer(x)[0]
    run.POOLS.known.clear()
    monkeypatch.setattr(split, "PIECE", 1e-9)
    monkeypatch.setattr(extent, "CHUNK_ROWS", 2)
    set_word = Frame.set_call_word

    def stack(frame: Frame, name: str, value: int) -> None:
        set_word(frame, name, value)
        if name == "chunk_to":
            counts = int(frame.view[STACK.index("barriers")]) + BARRIER_BYTES
            for word in range(THREADS * COUNTS_BYTES // COUNT_BYTES):
                c_int64.from_address(counts + COUNT_BYTES * word).value = GROUPS

    monkeypatch.setattr(Frame, "set_call_word", stack)
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
