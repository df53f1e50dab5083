"""What `explain` says of the triton backend, and the model of a device behind it."""

from __future__ import annotations

import pytest
import torch

import anyrnn
import anyrnn.torch
from anyrnn import cells
from anyrnn.backends.triton import split
from anyrnn.backends.triton.lower import Lowered
from anyrnn.backends.triton.split import Blocks, Device, choose
from anyrnn.passes.compile import plan

H100 = Device(132)


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


def test_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anyrnn.torch.gpu.device_of", lambda device: H100)
    monkeypatch.setattr("anyrnn.backends.triton.unit.device_of", lambda device: H100)
    layer = anyrnn.torch.Recurrent("gru_before", 4, 512, backend="triton")
    told = str(anyrnn.explain(layer, torch.zeros(3, 20, 4)))
    assert "2 blocks of 16 samples on 132 multiprocessors, 32 programs for each, with their columns: 2 barriers a step" in told


@pytest.mark.parametrize(
    ("cell", "hidden", "rows", "columns"),
    [("lstm", 64, 16, 1), ("lstm", 1024, 16, 64), ("lstm", 1024, 16 * 132, 1), ("mingru", 256, 16, 16), ("lstm", 512, 64, 32)],
)
def test_features_are_shared_where_it_pays(cell: str, hidden: int, rows: int, columns: int) -> None:
    """Where weights are few a barrier takes longer than to read them, and where rows fill the device nothing is left to share."""
    made = plan(cells.load(cell).trace())
    bytes = split.step_bytes(Lowered(made.inference), made.phase.weights, {"hidden": hidden, "input": hidden}, 4)
    blocks = choose(made.inference, bytes, hidden, rows, H100)
    assert blocks.columns == columns
    assert columns == 1 or -(-rows // blocks.rows) * blocks.columns <= H100.multiprocessors
    assert blocks.reduced == Blocks().reduced


@pytest.mark.parametrize(("setting", "precision"), [("highest", "ieee"), ("high", "tf32")])
def test_products(setting: str, precision: str) -> None:
    """Of float32 in TF32 where torch's setting says so."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(setting)
    try:
        assert split.precision_of(torch.float32) == precision
        assert split.precision_of(torch.float64) == split.precision_of(torch.bfloat16) == "ieee"
    finally:
        torch.set_float32_matmul_precision(before)
