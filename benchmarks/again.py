"""Rows below target, or little above, are measured again: on a shared machine one run in three may have met a neighbour at work,
and has slowed down either side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from benchmarks.result import Result
from benchmarks.suite import Row
from benchmarks.targets import Run, Target, figures

RUNS = 3
NEAR = 1.1
"""Unless asked for others, figures of up to so many times what they should be are in doubt."""


def measure_again(run: Run, measure: Callable[[Row], Result], near: float = NEAR) -> Iterator[tuple[int, Result]]:
    """Measures each row of a run that misses a target or comes near twice more, the farthest below first. Gives its place among
    the results, and that one of the three whose figure for the target that it is farthest below lies in the middle, with a note
    of all three figures. A result that is not `ok` is never left out.
    """
    farthest: dict[int, tuple[float, Target]] = {}
    places = {id(result): place for place, result in enumerate(run.results)}
    for target, result, value in figures(run):
        share, place = value / target.least, places[id(result)]
        if share < farthest.get(place, (near, target))[0]:
            farthest[place] = share, target
    for place, (_, target) in sorted(farthest.items(), key=lambda item: item[1][0]):
        result = run.results[place]
        yield place, _middle(target, [result, *(measure(result.row) for _ in range(RUNS - 1))], run)


def _middle(target: Target, results: list[Result], run: Run) -> Result:
    for result in results:
        if result.status != "ok":
            return result
    values = [target.figure(result, run) or 0.0 for result in results]
    text = ", ".join(f"{value:.2f}" for value in values)
    chosen = results[values.index(sorted(values)[len(values) // 2])]
    return replace(chosen, notes=(*chosen.notes, f"the middle one of {len(results)} runs, {target.what} {text}"))
