from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import anyrnn.compare
from anyrnn.compare.program import Comparison


@pytest.fixture(autouse=True)
def one_thread(quick_compile: None) -> Iterator[None]:
    """The networks here are so small that waiting for a second thread is most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """`settings(hidden=3)`: those of a tiny comparison, with what the test changes."""

    def make(**changes: Any) -> dict[str, Any]:
        values = {
            "cells": "gru,indrnn",
            "task": "digits",
            "output": tmp_path / "comparison",
            "seeds": 2,
            "hidden": 8,
            "steps": 6,
            "learning_rate": 0.01,
        }
        return {**values, **changes}

    return make


@pytest.fixture
def compared(settings: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Comparison]:
    """`compared(hidden=3)`: a tiny comparison, without pictures, which take longer than all else."""
    monkeypatch.setattr("anyrnn.compare.pictures.save", lambda *given: None)
    return lambda **changes: anyrnn.compare.run(**settings(**changes))
