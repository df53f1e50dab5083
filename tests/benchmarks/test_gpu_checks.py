"""The checks of `make gpu`, as far as they can be made in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from benchmarks.gpu import checks
from tests.backends.triton.conftest import interpreted

__all__ = ["interpreted"]
SMALL = (5, 3, 4, 6)


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "DEVICE", "cpu")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


@pytest.mark.filterwarnings("ignore:<class 'torch.autograd.function.Function'> should not be instantiated")  # torch's own
@pytest.mark.parametrize(
    "made",
    [
        lambda: checks.check("gru", SMALL, torch.float64, {"lengths": [5, 0, 3]}),
        lambda: checks.check("lstm", SMALL, torch.float16, {}),
        lambda: checks.check_tf32("lstm", SMALL),
        lambda: checks.check_reading("lstm", SMALL, torch.float32, {}),
        lambda: checks.check_inference("gru_before", (1, *SMALL[1:]), torch.float64),
        lambda: checks.check_repeats(SMALL),
        checks.check_layout,
        checks.check_compiled,
        lambda: checks.check_empty("triton"),
    ],
    ids=["lengths", "float16", "TF32", "read", "inference", "repeats", "layout", "compiled", "empty"],
)
def test_they_are_right(made: Callable[[], str]) -> None:
    assert made().startswith("ok")


def test_they_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "RELATIVE", {torch.float64: 0.0})
    assert checks.check("lstm_layernorm", SMALL, torch.float64, {}).startswith("WRONG")
    assert checks.check_inference("lstm_layernorm", SMALL, torch.float64).startswith("WRONG")
    found = [torch.zeros(2), torch.ones(2)]
    assert checks.same_bits(found, found) == "ok"
    assert checks.same_bits(found, found[::-1]) == "WRONG: other bits"
    other: Any = iter([torch.ones(3), torch.zeros(3)])
    assert checks.distance(next(other), next(other)) == 1.0
    assert checks.distance(torch.full((1,), torch.nan), torch.zeros(1)) == float("inf")
