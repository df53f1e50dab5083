"""Weights that few rows are multiplied by where they stand: the bits are those of packed ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import anyrnn
from anyrnn.backends.llvm import run, split, squares, target, unit
from anyrnn.backends.llvm.frame import Frame
from anyrnn.backends.llvm.target import machine

CALLS = [(1, 1, False), (1, 1, True), (3, 2, False), (1, 2, False), (1, 3, True), (1, 4, False), (1, 7, True), (1, 8, False)]
CALLS += [(1, 9, False), (1, 30, True), (1, 48, False)]
"""Steps, samples, whether the caller gives no first states."""


@pytest.fixture
def standing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many weights stand, of each frame that is made."""
    found: list[int] = []
    make = Frame.__init__

    def noted(frame: Frame, *given: Any) -> None:
        make(frame, *given)
        found.append(sum(len(one.standing) for one in frame.units))

    monkeypatch.setattr(Frame, "__init__", noted)
    run.POOLS.known.clear()
    return found


def results(layer: anyrnn.Recurrent, steps: int, rows: int, from_zero: bool = False) -> dict[str, Any]:
    random = np.random.default_rng(0)
    x = random.normal(size=(steps, rows, layer.network.input_size)).astype(layer.dtype)
    first = [np.ones((len(layer.network.units), rows, size), layer.dtype) for size in layer.network.state_sizes]
    inferred, _ = layer(x, None if from_zero else tuple(first))
    y, last, reserve = layer.forward_training(x, None if from_zero else first)
    last = last if isinstance(last, tuple) else (last,)
    d_x, d_first, found = layer.backward(reserve, np.cos(y), [np.sin(s) for s in last])
    return {
        "y": y,
        "inferred": inferred,
        "last": np.concatenate(last, -1),
        "d x": d_x,
        "d first": np.concatenate(d_first if isinstance(d_first, tuple) else [d_first], -1),
        **found,
    }


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "cell", ["lstm", "rnn_tanh", *(pytest.param(c, marks=pytest.mark.slow) for c in ("gru_before", "indrnn"))]
)
@pytest.mark.parametrize("sizes", [(64, 128), (70, 61)])
@pytest.mark.parametrize("vector_bytes", [32, 16])
@pytest.mark.usefixtures("quick_compile")
def test_the_bits_on_shorter_vectors(
    sizes: tuple[int, int], vector_bytes: int, cell: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fewer registers, and so with tiles of other heights."""
    machine = replace(target.machine(), vector_bytes=vector_bytes, registers=16)
    monkeypatch.setattr(target, "machine", lambda: machine)
    run.compiled.cache_clear()
    layer = anyrnn.Recurrent(cell, *sizes, seed=0, dtype=np.dtype(dtype))
    try:
        for call in CALLS:
            run.POOLS.known.clear()
            found = results(layer, *call)
            with monkeypatch.context() as patch:
                patch.setattr(unit.Unit, "_stands", lambda *_: False)
                run.POOLS.known.clear()
                expected = results(layer, *call)
            for name, value in expected.items():
                np.testing.assert_array_equal(found[name], value, name)
    finally:
        run.compiled.cache_clear()
        run.POOLS.known.clear()


@pytest.mark.parametrize("number", [np.inf, np.nan, None])
@pytest.mark.parametrize("sizes", [(5, 19), (64, 64), (70, 130)])
def test_a_step_from_zeros_sees_weights_that_are_not_finite(sizes: tuple[int, int], number: float | None) -> None:
    """Of packed weights it reads the products with zeros alone, which are NaN for their features."""
    layer = anyrnn.Recurrent("gru", *sizes, seed=0)
    hidden = sizes[1]
    if number is not None:
        layer.parameters["weight_hh_l0"][hidden + 3, hidden - 1] = number
    for rows in (1, 3, 60):
        x = np.random.default_rng(0).normal(size=(1, rows, sizes[0])).astype(np.float32)
        zeros = np.zeros((1, rows, hidden), np.float32)
        y, _, _ = layer.forward_training(x)
        np.testing.assert_array_equal(y, layer.forward_training(x, [zeros])[0])
        np.testing.assert_array_equal(y, layer(x)[0])
        wrong = np.zeros(hidden, bool)
        wrong[3] = number is not None
        np.testing.assert_array_equal(np.isnan(y[0]), np.broadcast_to(wrong, (rows, hidden)))


@pytest.mark.parametrize("cell", ["lstm", "gru", "gru_before", "lstm_layernorm", "indrnn"])
@pytest.mark.parametrize(("sizes", "stand"), [((64, 128), True), ((128, 64), True), ((70, 60), False), ((3, 64), True)])
def test_the_bits_are_those_of_packed_weights(
    cell: str, sizes: tuple[int, int], stand: bool, standing: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    features, hidden = sizes
    layer = anyrnn.Recurrent(cell, features, hidden, num_layers=2, bidirectional=features == 64, seed=0)
    for steps, rows, from_zero in CALLS:
        standing.clear()
        found = results(layer, steps, rows, from_zero)
        one, few = steps == 1, rows <= squares.MOST_IN_SQUARES
        if machine().lanes(4) == 16 or (64 in sizes and 128 in sizes):  # whole groups of vectors of any machine
            in_place = stand and steps * rows <= squares.MOST_IN_ROWS
            assert [stands > 0 for stands in standing] == [one and few and stand, one, one or in_place]
        with monkeypatch.context() as patch:
            patch.setattr(unit.Unit, "_stands", lambda *_: False)
            run.POOLS.known.clear()
            standing.clear()
            expected = results(layer, steps, rows, from_zero)
            assert not any(standing)
        run.POOLS.known.clear()
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, name)


@pytest.mark.parametrize("cell", ["lstm", "gru_before"])
@pytest.mark.parametrize("sizes", [(64, 128), (70, 60)])
def test_inference_in_blocks(cell: str, sizes: tuple[int, int], standing: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of weights that are too large to be looked at."""
    monkeypatch.setattr(unit, "LOOKED_AT_BYTES", 0)
    layer = anyrnn.Recurrent(cell, *sizes, num_layers=2, seed=0)
    for rows in (1, 9, 30, unit.ROWS_OF_A_STEP):
        standing.clear()
        run.POOLS.known.clear()
        found = results(layer, 1, rows)["inferred"]
        assert standing[0] > 0
        with monkeypatch.context() as patch:
            patch.setattr(unit.Unit, "_stands", lambda *_: False)
            run.POOLS.known.clear()
            np.testing.assert_array_equal(found, results(layer, 1, rows)["inferred"])


@pytest.mark.parametrize("rows", [1, 4, 30])
def test_several_threads(rows: int, standing: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Which divide the columns."""
    before = torch.get_num_threads()
    monkeypatch.setattr(split.Work, "threads", lambda _, most, *__: most)
    monkeypatch.setattr(unit, "LOOKED_AT_BYTES", 0)
    layer = anyrnn.Recurrent("gru", 64, 256, num_layers=2, seed=0)
    try:
        torch.set_num_threads(1)
        expected = results(layer, 1, rows)
        assert all(standing)
        torch.set_num_threads(3)
        found = results(layer, 1, rows)
    finally:
        torch.set_num_threads(before)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, name)


def test_many_rows_are_worth_packing(standing: list[int]) -> None:
    for steps, rows in ((2, squares.MOST_IN_ROWS), (1, unit.ROWS_OF_A_STEP + 1)):
        standing.clear()
        results(anyrnn.Recurrent("gru", 64, 64, seed=0), steps, rows)
        assert standing == [0, 0, 0]


def test_a_stream_packs_its_weights_once(standing: list[int]) -> None:
    layer = anyrnn.Recurrent("gru", 64, 64, seed=0)
    stream, x = layer.stream(), np.ones((1, 1, 64), np.float32)
    assert standing == [0]
    np.testing.assert_array_equal(stream(x[0]), layer(x)[0][0])
    assert [stands > 0 for stands in standing] == [False, True]


@pytest.mark.parametrize("cell", ["lstm", "gru", "mgu"])
def test_batches_of_no_samples_write_nothing(cell: str) -> None:
    layer = anyrnn.Recurrent(cell, 64, 128, seed=0)
    before = {name: value.copy() for name, value in layer.parameters.items()}
    x = np.zeros((3, 0, 64), np.float32)
    layer(x)
    y, _, reserve = layer.forward_training(x)
    layer.backward(reserve, y)
    for name, value in before.items():
        np.testing.assert_array_equal(layer.parameters[name], value, name)
