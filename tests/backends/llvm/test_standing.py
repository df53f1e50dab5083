"""Weights that few rows are multiplied by where they stand: the bits are those of packed ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anyrnn
from anyrnn.backends.llvm import run, unit
from anyrnn.backends.llvm.frame import Frame
from anyrnn.backends.llvm.target import machine


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
    x = random.normal(size=(steps, rows, layer.network.input_size)).astype(np.float32)
    first = [np.ones((len(layer.network.units), rows, size), np.float32) for size in layer.network.state_sizes]
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


@pytest.mark.parametrize("cell", ["lstm", "gru", "gru_before", "lstm_layernorm", "indrnn"])
@pytest.mark.parametrize(("sizes", "stand"), [((64, 128), True), ((128, 64), True), ((70, 60), False), ((3, 64), True)])
def test_the_bits_are_those_of_packed_weights(
    cell: str, sizes: tuple[int, int], stand: bool, standing: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    features, hidden = sizes
    layer = anyrnn.Recurrent(cell, features, hidden, num_layers=2, bidirectional=features == 64, seed=0)
    for steps, rows, from_zero in ((1, 1, False), (1, 1, True), (3, 2, False)):
        standing.clear()
        found = results(layer, steps, rows, from_zero)
        if stand and 64 in sizes and 128 in sizes:  # whole groups of vectors of any machine
            assert [stands > 0 for stands in standing] == [steps == 1, steps == 1, True]
        elif machine().lanes(4) == 16:
            assert [stands > 0 for stands in standing] == [stand and steps == 1, stand and steps == 1, stand]
        with monkeypatch.context() as patch:
            patch.setattr(unit, "STANDING_ROWS", {})
            run.POOLS.known.clear()
            standing.clear()
            expected = results(layer, steps, rows, from_zero)
            assert not any(standing)
        run.POOLS.known.clear()
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, name)


def test_many_rows_are_worth_packing(standing: list[int]) -> None:
    results(anyrnn.Recurrent("gru", 64, 64, seed=0), max(unit.STANDING_ROWS.values()) + 1, 1)
    assert len(standing) == 3
    assert not any(standing)


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
