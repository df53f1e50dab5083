"""Kernels go through their columns to and fro: what a step used last is still in a cache when the next one begins there."""

from typing import Any

import numpy as np
import pytest

from anyrnn import Recurrent
from anyrnn.backends.llvm import target, unit
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


def test_the_code_generators_choice_is_given_back() -> None:
    """Another user of LLVM in this process finds loop strength reduction on, whatever was compiled here before."""
    loop = """
    define void @f(ptr %a, i64 %n, i64 %s) {
    entry:
      br label %loop
    loop:
      %i = phi i64 [0, %entry], [%j, %loop]
      %m = mul i64 %i, %s
      %p = getelementptr float, ptr %a, i64 %m
      store float 1.0, ptr %p
      %j = add i64 %i, 1
      %again = icmp slt i64 %j, %n
      br i1 %again, label %loop, label %done
    done:
      ret void
    }"""
    target.machine()
    machine = target._target_machine()

    def multiplies(text: str) -> bool:
        return "mul" in text

    assert multiplies(target.assembly(loop))
    assert not multiplies(str(machine.emit_assembly(target.parse(loop))))
