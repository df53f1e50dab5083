"""Runs the programs of a launch in Triton's interpreter as a device does: all of them are there, and wait for each other.

The interpreter runs one to its end, then the next. Here each has a thread, of which one runs at a time: until it waits, or writes
for others, or reads what they have written. Which one is next is drawn at random, or is always the first or the last that can go
on. New memory is filled with NaN.
"""

from __future__ import annotations

import inspect
import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from triton.runtime import interpreter

from anyrnn.backends.triton import functions, memory, unit

NEXT: dict[str, Callable[[list[Any]], Any]] = {
    "random": random.Random(0).choice,
    "first": lambda ready: ready[0],
    "last": lambda ready: ready[-1],
}
"""Which of the programs that can go on does."""


class Program:
    """One of a launch, in a thread of its own."""

    def __init__(self, launch: Launch, place: tuple[int, int, int], run: Callable[[], None]) -> None:
        self.launch, self.place, self.run = launch, place, run
        self.may_go_on = threading.Event()
        self.ended = False
        self.error: BaseException | None = None
        self.waits_for: tuple[int, int] | None = None
        """a block of rows, and how often programs must have come to its barrier"""
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self.may_go_on.wait()
        self.may_go_on.clear()
        try:
            self.run()
        except BaseException as error:
            self.error = error
        self.ended = True
        self.launch.stopped.set()

    def let_others(self) -> None:
        """Go on when the launch says so."""
        self.launch.stopped.set()
        self.may_go_on.wait()
        self.may_go_on.clear()

    def can_go_on(self) -> bool:
        if self.ended or self.waits_for is None:
            return not self.ended
        rows, target = self.waits_for
        return self.launch.arrived[rows] >= target


class Launch:
    """Programs, one of which runs at a time."""

    current: Program

    def __init__(self, grid: tuple[int, int, int], run: Callable[[], None]) -> None:
        self.stopped = threading.Event()
        self.arrived = Counter[int]()
        places = [(x, y, z) for x in range(grid[0]) for y in range(grid[1]) for z in range(grid[2])]
        self.programs = [Program(self, place, run) for place in places]

    def go(self, choose: Callable[[list[Program]], Program]) -> None:
        for program in self.programs:
            program.thread.start()
        while ready := [program for program in self.programs if program.can_go_on()]:
            Launch.current = program = choose(ready)
            program.waits_for = None
            interpreter.interpreter_builder.grid_idx = program.place
            program.may_go_on.set()
            self.stopped.wait()
            self.stopped.clear()
            if program.error is not None:
                raise program.error
        assert all(program.ended for program in self.programs), "all wait"


ARRIVE, WAIT, LEAVE = functions.arrive, functions.wait, functions.leave


def arrive(counter: Any, COLUMN_PROGRAMS: Any) -> None:
    """In the place of `functions.arrive`."""
    ARRIVE(counter, COLUMN_PROGRAMS)
    program = Launch.current
    program.launch.arrived[program.place[0] // int(COLUMN_PROGRAMS)] += 1
    program.let_others()


def wait(counter: Any, target: Any, COLUMN_PROGRAMS: Any) -> None:
    """In the place of `functions.wait`."""
    program = Launch.current
    program.waits_for = program.place[0] // int(COLUMN_PROGRAMS), int(target)
    program.let_others()
    WAIT(counter, target, COLUMN_PROGRAMS)


def leave(counter: Any, arrived: Any, COLUMN_PROGRAMS: Any) -> None:
    """In the place of `functions.leave`."""
    program = Launch.current
    assert program.launch.arrived[program.place[0] // int(COLUMN_PROGRAMS)] == int(arrived), "leaves before all have arrived"
    program.let_others()
    LEAVE(counter, arrived, COLUMN_PROGRAMS)


def between(function: Any) -> Any:
    """A function of the kernels' before and after which others may go on."""

    def called(*arguments: Any, **named: Any) -> Any:
        Launch.current.let_others()
        found = function(*arguments, **named)
        Launch.current.let_others()
        return found

    return called


def run_together(monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    """From now on. `order`: of NEXT."""

    def call(self: Any, *arguments: Any, **named: Any) -> None:
        names = inspect.getfullargspec(self.fn).args
        named = {name: value for name, value in named.items() if name in names}
        ours, ours_named = self._init_args_hst(arguments, named)
        patched = interpreter._patch_lang(self.fn)
        try:
            given = inspect.getcallargs(self.fn, *ours, **ours_named)
            given = {n: a if n in self.constexprs else interpreter._implicit_cvt(a) for n, a in given.items()}
            sizes = self.grid(given) if callable(self.grid) else self.grid
            grid = (*sizes, 1, 1)[:3]
            interpreter.interpreter_builder.set_grid_dim(*grid)
            Launch(grid, lambda: self.fn(**given)).go(NEXT[order])
            assert not any(counters.any() for counters in memory.COUNTERS.values()), "counters are not set back"
        finally:
            patched.restore()
        self._restore_args_dev(arguments, ours, named, ours_named)

    def new(self: unit.Unit, *shape: int, of_states: bool = False) -> torch.Tensor:
        dtype = self.state_dtype if of_states else self.dtype
        return torch.full(shape, float("nan"), dtype=dtype, device=self.device)

    monkeypatch.setattr(memory, "COUNTERS", {})
    monkeypatch.setattr(interpreter.GridExecutor, "__call__", call)
    monkeypatch.setattr(unit.Unit, "new", new)
    monkeypatch.setattr(functions, "arrive", arrive)
    monkeypatch.setattr(functions, "wait", wait)
    monkeypatch.setattr(functions, "leave", leave)
    for name in ("scatter", "reduced", "copy"):
        monkeypatch.setattr(functions, name, between(getattr(functions, name)))
