"""What `explain` says of the triton backend, and the model of a device behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from triton.runtime.errors import OutOfResources

import anyrnn
import anyrnn.torch
from anyrnn import cells
from anyrnn.backends.triton import choosing, split, tape, telling
from anyrnn.backends.triton.device import Device
from anyrnn.backends.triton.launch import Kernels
from anyrnn.backends.triton.lower import Lowered
from anyrnn.backends.triton.split import Blocks, choose
from anyrnn.backends.triton.unit import Unit
from anyrnn.passes.compile import plan
from tests.backends.triton.twins import hold_weights, make, run
from tests.budget import assert_agree

H100 = Device(132)
SLOW_BARRIER = Device(132, read_block=0.0, barrier=1.0)


def test_in_the_interpreter() -> None:
    layer = anyrnn.torch.LSTM(4, 40, backend="triton")
    told = str(anyrnn.explain(layer, torch.zeros(3, 20, 4)))
    assert "backend   triton: generated kernels" in told
    assert "forward   2 blocks of 16 samples on 1 multiprocessor, a program for each: no barriers" in told
    assert "backward  2 blocks" in told
    assert "kept      " in told
    with torch.no_grad():
        told = str(anyrnn.explain(layer, torch.zeros(3, 20, 4), lengths=[3, 1] * 10))
    assert "inference 2 blocks of 16 samples" in told
    assert "batch     packed: 40 steps in 20 segments" in told
    assert "kept" not in told


@pytest.mark.parametrize(
    ("cell", "hidden", "dtype", "how"),
    [
        (
            "gru_before",
            512,
            torch.float32,
            "64 programs for each, with their columns: 2 barriers a step; weights are held on chip, in 92",
        ),
        (
            "gru_before",
            2048,
            torch.float32,
            "64 programs for each, with their columns: 2 barriers a step; weights are read in every",
        ),
        ("lstm_layernorm", 256, torch.float32, "64 programs for each, with their columns: 5 barriers a step; weights are held"),
        (
            "lstm_heads(heads=2)",
            64,
            torch.float32,
            "4 programs for each, with their columns: 1 barrier a step; weights are read in every step: block-diag",
        ),
        ("indrnn", 256, torch.bfloat16, "16 programs for each, with their columns: no barriers\n"),
    ],
)
def test_on_a_device(cell: str, hidden: int, dtype: torch.dtype, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anyrnn.torch.gpu.device_of", lambda device: H100)
    monkeypatch.setattr("anyrnn.backends.triton.choosing.device_of", lambda device: H100)
    layer = anyrnn.torch.Recurrent(cell, 4, hidden, backend="triton", dtype=dtype)
    told = str(anyrnn.explain(layer, torch.zeros(3, 20, 4, dtype=dtype)))
    assert f"2 blocks of 16 samples on 132 multiprocessors, {how}" in told
    slow = "faster    products are 6 of 16 bits each; TF32 (torch.set_float32_matmul_precision('high')) takes 2"
    assert (slow in told) == (dtype is torch.float32)
    assert ("a larger batch is free: 8 of 132 multiprocessors have work" in told) == (cell == "lstm_heads(heads=2)")


@pytest.mark.parametrize(
    ("hidden", "steps", "samples", "few"),
    [(256, 1, 64, True), (128, 2, 32, True), (256, 1, 65, False), (64, 4, 1, True), (64, 5, 1, False), (256, 2, 1, False)],
)
def test_few_steps(hidden: int, steps: int, samples: int, few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without gradients, of few samples: the input is multiplied in the steps, and no weights are held, where that is quick."""
    monkeypatch.setattr("anyrnn.torch.gpu.device_of", lambda device: H100)
    monkeypatch.setattr("anyrnn.backends.triton.choosing.device_of", lambda device: H100)
    layer, x = anyrnn.torch.LSTM(hidden, hidden, backend="triton"), torch.zeros(steps, samples, hidden)
    with torch.no_grad():
        told = str(anyrnn.explain(layer, x))
    assert ("weights are read in every step: there are few of these, and the input is multiplied in them too" in told) == few
    assert ("weights are held on chip" in told) != few
    assert "weights are held on chip" in str(anyrnn.explain(layer, x))


@pytest.mark.parametrize(
    ("cell", "hidden", "rows", "columns"),
    [("lstm", 64, 16, 4), ("lstm", 1024, 16, 64), ("lstm", 1024, 16 * 132, 1), ("mingru", 256, 16, 16), ("lstm", 512, 64, 32)],
)
def test_features_are_shared_where_it_pays(cell: str, hidden: int, rows: int, columns: int) -> None:
    """Where weights are few a barrier takes longer than to read them, and where rows fill the device nothing is left to share."""
    made = plan(cells.load(cell).trace())
    weights = split.step_weights(
        Lowered(made.inference), made.phase.weights, {"hidden": hidden, "input": hidden}, torch.float32, "ieee"
    )
    blocks = choose(made.inference, weights, hidden, rows, H100, may_hold=False)
    assert blocks.columns == columns
    assert columns == 1 or -(-rows // blocks.rows) * blocks.columns <= H100.multiprocessors


@pytest.mark.parametrize(
    ("cell", "dtype", "hidden", "rows", "expected"),
    [
        ("lstm", torch.float32, 64, 16, Blocks(16, 4, 64, columns=16, holds=1, slices=4)),
        ("lstm", torch.bfloat16, 256, 200, Blocks(16, 32, 256, columns=8, holds=1, slices=1, warps=8)),
        ("lstm", torch.bfloat16, 256, 16, Blocks(16, 4, 256, columns=64, holds=1, slices=4)),
        ("lstm", torch.float32, 256, 200, Blocks(32, 16, 64, columns=16, holds=4, slices=4)),
        ("lstm", torch.float32, 768, 16, Blocks(16, 8, 256, columns=96, holds=3, slices=4)),
        ("lstm", torch.float64, 512, 16, Blocks(features=16, columns=32)),
        ("lstm", torch.float32, 2048, 16, Blocks(features=32, depth=64, columns=64)),
        ("lstm", torch.bfloat16, 2048, 16, Blocks(features=16, depth=128, columns=128)),
        ("lstm_heads(heads=2)", torch.float32, 64, 16, Blocks(features=16, columns=4)),
        ("mingru", torch.float32, 256, 16, Blocks(features=16, columns=16)),
    ],
)
def test_weights_are_held_where_they_fit(cell: str, dtype: torch.dtype, hidden: int, rows: int, expected: Blocks) -> None:
    """Where all programs are there at once, each with its part of the weights. Block-diagonal ones are read."""
    made = plan(cells.load(cell).trace())
    sizes, precision = {"hidden": hidden, "input": hidden}, split.precision_of(dtype, H100)
    weights = split.step_weights(Lowered(made.inference), made.phase.weights, sizes, dtype, precision)
    blocks = choose(made.inference, weights, hidden, rows, H100)
    assert blocks == (replace(expected, stages=1) if expected.holds else expected)
    assert not blocks.holds or split.held_bytes(blocks, weights) <= H100.shared_bytes


def test_products_of_one_slice_are_of_few_samples_and_many_columns() -> None:
    """Others leave the compiler no registers, or some warps nothing of their own."""
    made = plan(cells.load("lstm").trace())
    of = Lowered(made.inference), made.phase.weights, {"hidden": 512, "input": 512}
    for dtype, precision, depth in ((torch.bfloat16, "ieee", 512), (torch.float32, "tf32", 256)):
        found = [b for b in split.could_hold(split.step_weights(*of, dtype, precision), 512) if b.warps > 4]
        assert {(b.rows, b.slices, b.depth, b.holds) for b in found} == {(16, 1, depth, 512 // depth)}
        assert {b.features for b in found} == {16, 32}
    assert not [b for b in split.could_hold(split.step_weights(*of, torch.float32, split.THREE_PARTS), 512) if b.warps > 4]


@pytest.mark.parametrize(
    ("cell", "hidden", "rows", "held"),
    [
        ("lstm", 768, 16, True),
        ("lstm", 1024, 16, True),
        ("lstm", 512, 128, False),
        ("gru", 1024, 32, False),
    ],
)
def test_weights_are_not_held_by_more_code_than_a_multiprocessor_keeps(cell: str, hidden: int, rows: int, held: bool) -> None:
    """In three parts, where sums are not scattered: compiled for an H100 these steps have 75, 97, 112 and 149 KB."""
    made = plan(cells.load(cell).trace())
    sizes = {"hidden": hidden, "input": hidden}
    weights = split.step_weights(Lowered(made.backward), made.phase.weights, sizes, torch.float32, split.THREE_PARTS)
    weights = replace(weights, scattered=None)
    blocks = choose(made.backward, weights, hidden, rows, H100)
    assert bool(blocks.holds) == held
    assert held or blocks.depth == 64  # of three operands or four more have no registers
    why = "weights are read in every step: a step that held them would have more instructions than a multiprocessor keeps"
    assert (telling.of_weights(blocks, weights, hidden, rows, H100, refused=False) == why) != held
    in_tf32 = replace(weights, precision="tf32")
    assert choose(made.backward, in_tf32, hidden, rows, H100).holds


@pytest.mark.parametrize(
    ("cell", "dtype", "hidden", "rows", "scatters", "rows_and_features"),
    [
        ("lstm", torch.float32, 512, 16, True, (16, 8)),
        ("lstm", torch.bfloat16, 768, 16, True, (16, 16)),
        ("lstm_layernorm", torch.float32, 256, 16, True, (16, 8)),
        ("gru", torch.float32, 512, 16, True, (16, 8)),
        ("lstm", torch.float32, 256, 200, True, (32, 16)),  # for 16 and 32 there would be no room on chip
        ("lstm", torch.bfloat16, 512, 200, False, (32, 32)),  # whose operands would be too many for each warp
        ("gru_before", torch.float32, 512, 16, False, (16, 8)),  # whose sums have two operands, and one
        ("lstm", torch.float32, 768, 64, False, (16, 32)),  # for whose parts the second cache would be too small
        ("lstm", torch.float32, 4, 16, False, (16, 8)),  # where one program has all features
    ],
)
def test_sums_are_scattered_where_less_is_passed(
    cell: str, dtype: torch.dtype, hidden: int, rows: int, scatters: bool, rows_and_features: tuple[int, int]
) -> None:
    """Of the gradient's steps, where a sum has three operands or more."""
    made = plan(cells.load(cell).trace())
    sizes, precision = {"hidden": hidden, "input": hidden}, split.precision_of(dtype, H100)
    weights = split.step_weights(Lowered(made.backward), made.phase.weights, sizes, dtype, precision)
    blocks = choose(made.backward, weights, hidden, rows, H100)
    assert (blocks.scatters, (blocks.rows, blocks.features)) == (scatters, rows_and_features)
    assert split.held_bytes(blocks, weights) <= H100.shared_bytes
    assert (
        "sums are made where their operands are" in telling.of_weights(blocks, weights, hidden, rows, H100, False)
    ) == scatters


@pytest.mark.parametrize(
    ("device", "dtype", "rows", "why"),
    [
        (Device(132), torch.float32, 16, "weights are held on chip, in 44 of the 227 KB of a multiprocessor"),
        (
            Device(132, shared_bytes=2**15),
            torch.float32,
            16,
            "even the smallest part takes 44 KB, more than the 32 KB of a multiprocessor",
        ),
        (Device(4), torch.float32, 16, "4 multiprocessors are too few to hold a part each, for all samples at once"),
        (Device(132), torch.float32, 2048, "132 multiprocessors are too few to hold a part each, for all samples at once"),
        (SLOW_BARRIER, torch.float32, 16, "weights are read in every step: holding them would take as long"),
        (Device(132), torch.float64, 16, "weights are read in every step: all are that tensor cores do not multiply"),
    ],
)
def test_why_weights_are_held_or_read(
    device: Device, dtype: torch.dtype, rows: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("backends.triton.choosing", "torch.gpu"):
        monkeypatch.setattr(f"anyrnn.{module}.device_of", lambda _: device)
    layer = anyrnn.torch.LSTM(4, 256, backend="triton", dtype=dtype)
    assert why in str(anyrnn.explain(layer, torch.zeros(3, rows, 4, dtype=dtype)))


def test_what_does_not_fit_on_chip_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Triton says so, from then on."""
    monkeypatch.setattr(choosing, "TOO_LARGE", set())
    monkeypatch.setattr(choosing, "NOT_SCATTERED", set())
    hold_weights(monkeypatch)
    launched, launch = [], Kernels.launch

    def refusing(self: Kernels, name: str, grid: Any, values: Any, constants: dict[str, Any], **how: Any) -> None:
        held = "weights_of_" in self.code.text
        launched.append(held)
        if held:
            raise OutOfResources(2**18, 2**17, "shared memory")
        launch(self, name, grid, values, constants, **how)

    monkeypatch.setattr(Kernels, "launch", refusing)
    found, expected = (run(make("lstm", backend, 4, 40), 5, 3) for backend in ("triton", "reference"))
    assert_agree(found, expected, "random cells, float64", "lstm", 1.0, None)
    assert launched == [True, False, True, False, True, True, False]  # inference, forward, and backward, whose sums are scattered
    layer = make("lstm", "triton", 4, 40)
    run(layer, 5, 3)
    assert launched[7:] == [False] * 3
    told = str(anyrnn.explain(layer, torch.zeros(5, 3, 4, dtype=torch.float64)))
    assert told.count("weights are read in every step: Triton found no room for a part of them") == 2


def test_what_has_no_room_ahead_is_read_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Triton says so, from then on. What does not fit then is an error."""
    monkeypatch.setattr(choosing, "NOT_AHEAD", set())
    tape.forget()
    stages, most, launch = list[int](), [1], Unit.launch

    def refusing(self: Unit, name: str, grid: Sequence[int], blocks: Blocks, **how: Any) -> None:
        if name == self.kernels.code.loop:
            stages.append(blocks.stages)
            if blocks.stages > most[0]:
                raise OutOfResources(2**18, 2**17, "shared memory")
        launch(self, name, grid, blocks, **how)

    monkeypatch.setattr(Unit, "launch", refusing)
    found, expected = (run(make("lstm", backend, 4, 40), 5, 3) for backend in ("triton", "reference"))
    assert_agree(found, expected, "random cells, float64", "lstm", 1.0, None)
    assert stages == [3, 1] * 3  # inference, forward, backward
    run(make("lstm", "triton", 4, 40), 5, 3)
    assert stages[6:] == [1] * 3
    most[0] = 0
    with pytest.raises(OutOfResources):
        run(make("lstm", "triton", 4, 41), 5, 3)


@pytest.mark.parametrize(("setting", "precision"), [("highest", "bf16x6"), ("high", "tf32")])
def test_products(setting: str, precision: str) -> None:
    """Of float32 in TF32 where torch's setting says so; else as exact as there can be."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(setting)
    try:
        assert split.precision_of(torch.float32, H100) == precision
        assert split.precision_of(torch.float32, replace(H100, has_bfloat16=False)) == precision.replace("bf16x6", "ieee")
        assert split.precision_of(torch.float64, H100) == split.precision_of(torch.bfloat16, H100) == "ieee"
    finally:
        torch.set_float32_matmul_precision(before)
