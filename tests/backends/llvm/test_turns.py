"""Kernels go through their columns to and fro: what a step used last is still in a cache when the next one begins there."""

from typing import Any

import numpy as np
import pytest

from anyrnn import Recurrent
from anyrnn.backends.llvm import unit
from anyrnn.backends.llvm.frame import Frame


def word(frame: Frame, name: str) -> int:
    return int(frame.view[frame.starts[0] + frame.units[0].layout.header(name)])


def test_steps_of_a_stream_count_on() -> None:
    stream = Recurrent("lstm", 3, 40, backend="llvm").stream()
    x = np.ones((1, 3), np.float32)
    turns = []
    for _ in range(4):
        stream(x)
        assert stream._native is not None
        turns.append(word(stream._native.frame, "turn"))
    assert turns == [1, 2, 3, 4]


def test_one_step_multiplies_its_input_beside_its_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the input's weights before all of the states' would leave little near of what the next step begins with."""
    made: list[Frame] = []
    call = Frame.call

    def noted(frame: Frame, *given: Any) -> None:
        made.append(frame)
        call(frame, *given)

    monkeypatch.setattr(Frame, "call", noted)
    features = 3 * unit.FOLDED_FEATURES
    layer = Recurrent("lstm", features, 40, backend="llvm")
    for steps in (1, 2):
        layer.forward_inference(np.ones((steps, 1, features), np.float32))
    assert [word(frame, "hoist") for frame in made] == [0, 1]
