"""The model that divides the work of a call, and calls that are done in pieces."""

from __future__ import annotations

import _thread
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

import anyrnn
from anyrnn.backends.llvm import run, split

START, WAIT, SHARED = split.START, split.WAIT, split.SHARED
LSTM_256 = split.UnitWork(2**21, 2**20, 2**14, 1)


@pytest.fixture
def waiting_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unlike in the other tests of backends."""
    monkeypatch.setattr(split, "START", START)
    monkeypatch.setattr(split, "WAIT", WAIT)


def work(steps: int, rows: int, *units: split.UnitWork, products: int = 1, lanes: int = 16) -> split.Work:
    return split.Work(steps, rows, max(1, 1024 // rows), products, 4, lanes, units)


def test_shorter_vectors_take_longer() -> None:
    """What is long, and how much is done between two looks for an interrupt, is a matter of seconds."""
    long, short = work(1000, 200, LSTM_256), work(1000, 200, LSTM_256, lanes=4)
    assert short.alone(kept=True) > 3 * long.alone(kept=True)
    assert len(list(short.pieces(2))) > 3 * len(list(long.pieces(2)))


@pytest.mark.parametrize(("steps", "rows", "expected"), [(1, 1, 2), (100, 1, 2), (28, 200, 2)])
def test_large_work_is_done_by_all(steps: int, rows: int, expected: int) -> None:
    assert work(steps, rows, LSTM_256).threads(expected, kept=True) == expected


@pytest.mark.usefixtures("waiting_takes_time")
def test_small_work_is_done_by_one() -> None:
    small = split.UnitWork(2**17, 2**16, 2**12, 1)
    assert work(1, 1, small).threads(2, kept=True) == 1
    assert work(1, 1, LSTM_256).threads(1, kept=True) == 1


@pytest.mark.usefixtures("waiting_takes_time")
def test_packing_counts() -> None:
    unit = split.UnitWork(2**18, 2**17, 2**12, 1)
    assert work(1, 1, unit).threads(2, kept=True) == 1
    assert work(1, 1, unit).threads(2, kept=False) == 2


@pytest.mark.usefixtures("waiting_takes_time")
def test_waiting_counts() -> None:
    """A step is short, and at the end of each stage threads wait."""
    few, many = (split.UnitWork(2**15, 2**14, 2**11, stages) for stages in (0, 3))
    assert work(1000, 1, few).threads(2, kept=True) == 2
    assert work(1000, 1, many).threads(2, kept=True) == 1


def test_threads_help_each_other_with_long_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "SHARED", SHARED)
    assert work(28, 200, LSTM_256).shares_chunks(LSTM_256, 2)
    assert not work(28, 200, LSTM_256).shares_chunks(LSTM_256, 64)
    assert not work(28, 1, LSTM_256).shares_chunks(LSTM_256, 2)


@pytest.mark.parametrize(("rows", "bytes", "threads", "expected"), [
    (1, 2**19, 2, True), (23, 2**19, 2, True), (24, 2**19, 2, False), (47, 2**19, 4, True), (200, 2**19, 2, False),
    (64, 2**20, 2, True), (96, 2**20, 2, False), (32, 2**26, 2, True), (256, 2**26, 2, False),
])  # fmt: skip
def test_columns_or_samples(rows: int, bytes: int, threads: int, expected: bool) -> None:
    assert split.splits_columns(rows, bytes, 1, threads, 64) is expected


def test_shorter_vectors_want_more_samples_a_thread() -> None:
    """A step takes longer with them, and waiting does not. Those of 16 bytes, which nobody has timed, count as those of 32."""
    for register_bytes, least in [(64, 24), (32, 48), (16, 48)]:
        assert split.splits_columns(least - 1, 2**19, 1, 2, register_bytes)
        assert not split.splits_columns(least, 2**19, 1, 2, register_bytes)
        call = work(10, least, replace(LSTM_256, recurrent_bytes=2**19), lanes=register_bytes // 4)
        assert not call.columns(call.units[0], 2)
        assert replace(call, rows=least - 1).columns(call.units[0], 2)


def test_what_a_stage_reads_counts() -> None:
    """Threads wait for each other at the end of each."""
    assert split.splits_columns(32, 2**20, 1, 2, 64)
    assert not split.splits_columns(32, 2**20, 2, 2, 64)


@pytest.mark.parametrize(("rows", "bytes", "expected"), [(95, 0, True), (96, 0, False), (200, 2**26, True)])
def test_columns_where_no_thread_waits(rows: int, bytes: int, expected: bool) -> None:
    assert split.splits_columns(rows, bytes, 0, 2, 64) is expected


def test_samples_that_end_at_different_steps_are_split_if_threads_get_about_the_same() -> None:
    call = work(10, 200, LSTM_256)
    assert not call.columns(LSTM_256, 2)
    assert replace(call, counts=(200,) * 20 + (100,) * 8).columns(LSTM_256, 2)
    assert not replace(call, counts=(200,) * 20 + (190,) * 8).columns(LSTM_256, 2)


def test_directions_are_run_at_once_where_threads_would_wait_for_each_other() -> None:
    small = split.UnitWork(2**20, 2**19, 2**14, 1)
    pair = replace(work(100, 1, *[small] * 4), directions=2)
    assert [pair.abreast(threads) for threads in (1, 2, 3, 4)] == [1, 2, 1, 2], "each direction has as many threads"
    assert replace(pair, directions=1).abreast(2) == 1
    assert replace(pair, rows=100).abreast(2) == 1, "samples are split"
    assert replace(pair, units=(replace(small, stages=0),) * 4).abreast(2) == 1, "nothing to wait for"
    large = replace(pair, units=(replace(small, recurrent_bytes=2**20),) * 4)
    assert [large.abreast(threads) for threads in (2, 4)] == [1, 2], "a core would read weights from beyond its own cache"


@pytest.mark.usefixtures("waiting_takes_time")
def test_directions_at_once_are_worth_more_threads() -> None:
    small = split.UnitWork(2**16, 2**15, 2**11, 3)
    call = work(1000, 1, small, small)
    assert [replace(call, directions=count).threads(2, kept=True) for count in (1, 2)] == [1, 2]


def test_pieces_of_directions_that_are_run_at_once() -> None:
    small = split.UnitWork(2**20, 2**19, 2**14, 1)
    call = replace(work(100_000, 1, *[small] * 4), directions=2)
    pieces, chunks = list(call.pieces(2)), -(-100_000 // call.chunk)
    assert [(group, chunk) for group, first, end in pieces for chunk in range(first, end)] == [
        (group, chunk) for group in (0, 1) for chunk in range(chunks)
    ]


def test_pieces_cover_everything_once_and_in_order() -> None:
    call = work(10_000, 64, LSTM_256, split.UnitWork(2**24, 2**23, 2**16, 1))
    pieces = list(call.pieces(2))
    chunks = -(-10_000 // call.chunk)
    covered = [(unit, chunk) for unit, first, end in pieces for chunk in range(first, end)]
    assert covered == [(unit, chunk) for unit in (0, 1) for chunk in range(chunks)]
    lengths = [end - first for _, first, end in pieces]
    assert lengths[0] > lengths[-2], "the second unit takes longer"


@pytest.mark.parametrize("cell", ["lstm", "gru_before", "lstm_layernorm"])
@pytest.mark.parametrize("rows", [1, 30])
def test_pieces_change_no_bit(cell: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    layer = anyrnn.Recurrent(cell, 5, 20, 2, bidirectional=True, seed=0, backend="llvm")
    x = rng.standard_normal((2500 // rows, rows, 5), np.float32)

    def everything() -> list[np.ndarray]:
        run.POOLS.known.clear()
        output, last, reserve = layer.forward_training(x)
        d_x, d_first, gradients = layer.backward(reserve, output)
        in_two, _, work = layer.backward_data(reserve, output)
        weights = layer.backward_weights(work)
        assert np.array_equal(in_two, d_x)
        assert all(np.array_equal(weights[name], gradient) for name, gradient in gradients.items()), "of all chunks"
        states = [*last, *d_first] if isinstance(last, tuple) else [last, d_first]
        return [output, layer(x)[0], d_x, *states, *gradients.values()]

    expected = everything()
    monkeypatch.setattr(split, "PIECE", 1e-9)
    assert all(np.array_equal(a, b) for a, b in zip(expected, everything(), strict=True))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A process that was started in the background may ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.timing
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("which", ["inference", "backward_data"])
def test_a_long_call_can_be_interrupted(which: str) -> None:
    layer = anyrnn.Recurrent("lstm", 1, 1024, seed=0, backend="llvm")
    x = np.zeros((40_000 if which == "inference" else 10_000, 1, 1), np.float32)

    def calls(steps: int) -> Callable[[], np.ndarray]:
        if which == "inference":
            return lambda: layer(x[:steps])[0]
        output, _, reserve = layer.forward_training(x[:steps])
        layer.backward_data(reserve, output)  # memory that the system has never given may take a second by itself
        return lambda: layer.backward_data(reserve, output)[0]

    short, long = calls(3), calls(len(x))
    expected = short()
    timer = threading.Timer(0.3, _thread.interrupt_main)
    start = time.perf_counter()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        long()
    assert time.perf_counter() - start < 1.3
    assert np.array_equal(short(), expected)
