"""Kernels go through their columns to and fro: what a step used last is still in a cache when the next one begins there."""

import numpy as np

from anyrnn import Recurrent
from anyrnn.backends.llvm import target
from anyrnn.backends.llvm.run import Repeated


def turn(native: Repeated) -> int:
    frame = native.frame
    return int(frame.view[frame.starts[0] + frame.units[0].layout.header("turn")])


def test_steps_of_a_stream_count_on() -> None:
    stream = Recurrent("lstm", 3, 40, backend="llvm").stream()
    x = np.ones((1, 3), np.float32)
    turns = []
    for _ in range(4):
        stream(x)
        assert stream._native is not None
        turns.append(turn(stream._native))
    assert turns == [1, 2, 3, 4]


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
