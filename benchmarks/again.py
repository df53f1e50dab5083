"""Rows below target are measured again: on a shared machine one run in three may have met a neighbour at work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from benchmarks.result import Result
from benchmarks.suite import Row
from benchmarks.targets import Run, Target, below

RUNS = 3


def measure_again(run: Run, measure: Callable[[Row], Result]) -> list[Result]:
    """The results of a run; of each row that misses a target, the one of three whose figure lies in the middle, with a note of
    all three figures. A result that is not `ok` is never left out.
    """
    first_missed: dict[Row, Target] = {}
    for target, result, _ in below(run):
        first_missed.setdefault(result.row, target)
    return [
        _middle(first_missed[result.row], [result, *(measure(result.row) for _ in range(RUNS - 1))], run)
        if result.row in first_missed
        else result
        for result in run.results
    ]


def _middle(target: Target, results: list[Result], run: Run) -> Result:
    for result in results:
        if result.status != "ok":
            return result
    figures = [target.figure(result, run) or 0.0 for result in results]
    text = ", ".join(f"{figure:.2f}" for figure in figures)
    chosen = results[figures.index(sorted(figures)[len(figures) // 2])]
    return replace(chosen, notes=(*chosen.notes, f"the middle one of {len(results)} runs, {target.what} {text}"))
