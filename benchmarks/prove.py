"""Does the harness disturb what it measures? Each system's figure in blocks is held against its figure alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from benchmarks.child import ChildError, time_alone
from benchmarks.result import Result
from benchmarks.run import References, Settings, run_row
from benchmarks.suite import Row

ALLOWED = 0.10


@dataclass(frozen=True)
class Proof:
    """A system on a row: its time beside the others, in blocks, over its time alone in a fresh process."""

    row: str
    system: str
    together: float
    alone: float

    @property
    def ratio(self) -> float:
        return self.together / self.alone

    @property
    def holds(self) -> bool:
        return abs(self.ratio - 1) <= ALLOWED


def prove(
    row: Row,
    settings: Settings,
    result: Result,
    references: References = lambda result, job: {},
    times: int = 3,
    alone: Callable[..., float] = time_alone,
) -> list[Proof]:
    """Both ways in turn, several times, so that a drift of the machine falls on both; medians are compared.

    `result` is the row's own, which is the first of the times; `references` are what was timed in turn with it.

    Raises: ChildError where a process breaks, or the row comes out wrong another time.
    """
    together = {system: [timing.median] for system, timing in result.timings.items()}
    apart: dict[str, list[float]] = {system: [] for system in together}
    for turn in range(times):
        if turn:
            again = run_row(row, settings, references)
            if again.status != "ok":
                raise ChildError(f"measured once more it was {again.status}: {again.reason}")
            for system, timing in again.timings.items():
                together.setdefault(system, []).append(timing.median)
        for system, found in apart.items():
            found.append(alone(row, system, settings))
    return [Proof(row.name, system, median(together[system]), median(apart[system])) for system in apart]
