from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from anyrnn.train.options import Options


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The networks here are so small that waiting for a second thread is most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def options(tmp_path: Path) -> Callable[..., Options]:
    """`options(hidden=3)`: a small run on the digits, with what the test changes."""

    def make(**changes: Any) -> Options:
        values: dict[str, Any] = {
            "dataset": "digits",
            "cell": "lstm",
            "hidden": 24,
            "layers": 1,
            "bidirectional": False,
            "batch": 32,
            "steps": 20,
            "learning_rate": 0.01,
            "head": "all",
            "seed": 0,
            "threads": None,
            "data": None,
            "output": tmp_path / "run",
            "layers_from": "anyrnn",
        }
        return Options(**{**values, **changes})

    return make
