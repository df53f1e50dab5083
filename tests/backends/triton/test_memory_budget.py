"""Training within a budget of bytes: what is not kept is computed again, with the bits that it has when it is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import anyrnn
import anyrnn.torch
from anyrnn import UnsupportedError
from anyrnn.backends.triton import memory, split
from anyrnn.backends.triton.unit import Unit
from anyrnn.sequence.windows import Windows
from anyrnn.torch import gpu
from anyrnn.torch.calls import CALLS
from anyrnn.torch.triton_or_cudnn import why_not_cudnn
from tests.backends.triton.twins import make, run, shape_for
from tests.test_memory_budget import OPTIONS

STEPS, ROWS = 9, 3
CHUNK_ROWS = 2 * ROWS
CALLED = {
    "dense": {},
    "lengths": {"lengths": [9, 0, 6]},
    "resets": {"reset": torch.arange(STEPS * ROWS).view(STEPS, ROWS) * 5 % 7 == 3},
    "last": {"return_outputs": "last"},
    "all states": {"return_states": "all"},
}
slow = pytest.mark.slow


@pytest.fixture(autouse=True)
def again(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The program of every window that runs; of short chunks."""
    found: list[str] = []
    run_window = Unit.run_window

    def counted(self: Unit, window: Any) -> None:
        found.append(self.which)
        run_window(self, window)

    monkeypatch.setattr(Unit, "run_window", counted)
    monkeypatch.setattr(memory, "CHUNK_ROWS", CHUNK_ROWS)
    return found


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that each training call keeps."""
    found: list[int] = []
    new_reserve = gpu.new_reserve

    def noted(bytes: int, device: torch.device) -> torch.Tensor:
        found.append(bytes)
        return new_reserve(bytes, device)

    monkeypatch.setattr(gpu, "new_reserve", noted)
    return found


@pytest.fixture
def compare(again: list[str], kept: list[int]) -> Callable[..., None]:
    def compare(cell: str, options: dict[str, Any], call: dict[str, Any], share: float = 0.75) -> None:
        shape = shape_for(cell, 5, 9)
        plain = make(cell, "triton", **shape, **options)
        expected = run(plain, STEPS, ROWS, with_state=True, **call)
        assert again.count("training") == again.count("backward")
        bounded = make(cell, "triton", **shape, **options, memory_budget=int(share * sum(kept)))
        again.clear()
        found = run(bounded, STEPS, ROWS, with_state=True, **call)
        assert again.count("training") > again.count("backward")
        for name, tensor in expected.items():
            assert torch.equal(found[name], tensor), name

    return compare


@pytest.mark.parametrize("call", [c if c == "lengths" else pytest.param(c, marks=slow) for c in CALLED])
def test_the_bits_are_those_without_a_budget(call: str, compare: Callable[..., None]) -> None:
    compare("lstm", {}, CALLED[call])


@slow
@pytest.mark.parametrize("call", ["dense", "lengths", "resets"])
@pytest.mark.parametrize("options", OPTIONS)
def test_options(options: str, call: str, compare: Callable[..., None]) -> None:
    compare("lstm", OPTIONS[options], CALLED[call], 0.85)


@pytest.mark.parametrize("call", [pytest.param("dense", marks=slow), "resets"])
@pytest.mark.parametrize("cell", ["gru_before", *(pytest.param(c, marks=slow) for c in ("lstm_layernorm", "cornn", "slstm"))])
def test_cells(cell: str, call: str, compare: Callable[..., None]) -> None:
    compare(cell, {}, CALLED[call], 0.85)


def test_a_budget_that_is_no_whole_number_of_states() -> None:
    """In calls that are repeated from a tape too."""
    torch.manual_seed(0)
    plain = anyrnn.torch.LSTM(5, 9, backend="triton")
    x = torch.randn(STEPS, ROWS, 5, requires_grad=True)
    expected = torch.autograd.grad(plain(x)[0].sum(), x)
    plain.memory_budget = int(0.75 * anyrnn.explain(plain, x).kept_bytes) // 4 * 4 + 1
    for _ in range(4):
        assert torch.equal(torch.autograd.grad(plain(x)[0].sum(), x)[0], expected[0])


@pytest.mark.parametrize("cell", ["mingru", "indrnn"])
def test_scans(cell: str, compare: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan over the steps of a window."""
    monkeypatch.setattr("anyrnn.backends.triton.choosing.worth_scans", lambda *_: True)
    monkeypatch.setattr(split, "SCAN_STEPS", 2)
    compare(cell, {}, {}, 0.95)


def test_what_is_told() -> None:
    x = torch.zeros(STEPS, ROWS, 5)
    layer = anyrnn.torch.LSTM(5, 9, backend="triton")
    layer.memory_budget = int(0.75 * anyrnn.explain(layer, x).kept_bytes)
    told = str(anyrnn.explain(layer, x))
    assert "of the steps are computed again" in told
    call = CALLS[layer._mode.number]
    windows = memory.windows_of(call.network, x.dtype, memory.Extent(STEPS, ROWS), call.budget)
    assert windows is not None
    assert f"{windows.share_again(STEPS):.0%} of the steps" in told
    assert "memory_budget" in str(why_not_cudnn(replace(call, backend="auto"), x, None))
    layer.memory_budget = 1000
    with pytest.raises(UnsupportedError, match="memory_budget is too small: 9 steps of 3 samples in 1 layer need at least"):
        layer(x)


def test_windows() -> None:
    assert Windows(4, 3, 1).areas == 2
    assert [Windows(4, 3, 1).again(w) for w in range(3)] == [True, True, False]
    assert [Windows(4, 3, 1).area(w) for w in range(3)] == [0, 0, 1]
    assert Windows(4, 3, 1).share_again(11) == 8 / 11
