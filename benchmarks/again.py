"""Rows below target, or little above, are measured again: on a shared machine one run in three may have met a neighbour at work,
and has slowed down either side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from benchmarks.result import Result
from benchmarks.suite import Row
from benchmarks.targets import Run, Target, figures

RUNS = 3
NEAR = 1.1
"""Figures of up to so many times what they should be are in doubt."""


def measure_again(run: Run, measure: Callable[[Row], Result]) -> list[Result]:
    """The results of a run; of each row that misses a target or comes near, the one of three whose figure for the target that it
    is farthest below lies in the middle, with a note of all three figures. A result that is not `ok` is never left out.
    """
    farthest: dict[Row, tuple[float, Target]] = {}
    for target, result, value in figures(run):
        share = value / target.least
        if share < farthest.get(result.row, (NEAR, target))[0]:
            farthest[result.row] = share, target
    return [
        _middle(farthest[result.row][1], [result, *(measure(result.row) for _ in range(RUNS - 1))], run)
        if result.row in farthest
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
