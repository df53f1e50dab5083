"""What the runs of a comparison say: estimates for each cell, differences between two."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import Any

from anyrnn.compare.examples import Task
from anyrnn.compare.options import Options
from anyrnn.compare.statistics import LEVEL, Estimate, estimate, holm, paired
from anyrnn.compare.training import Plan, Run


def best_rate(runs: Sequence[Run], rates: Sequence[float], task: Task) -> float:
    """The rate whose runs diverged least, and among those did best on data to choose by, in the mean; of equals the smaller."""

    def rank(rate: float) -> tuple[float, ...]:
        of_rate = [run for run in runs if run.plan.learning_rate == rate]
        best = [run.best for run in of_rate if run.best is not None]
        sign = -1 if task.measure.higher_is_better else 1
        figure, loss = (math.fsum(b[what] for b in best) / max(1, len(best)) for what in ("figure", "loss"))
        return len(of_rate) - len(best), sign * figure, loss, rate

    return min(rates, key=rank)


def summarise(
    options: Options, task: Task, cells: Mapping[str, Mapping[str, Any]], runs: Mapping[Plan, Run], rates: Mapping[str, float]
) -> dict[str, Any]:
    """The comparison as plain data: `cells` in the order in which they were asked for, `pairs` of them."""
    tuning = {name: [run for run in runs.values() if run.plan.cell == name and run.plan.purpose == "tuning"] for name in rates}
    final = {name: reported(runs, name, rate) for name, rate in rates.items()}
    found_pairs = pairs(final)
    return {
        "task": task.name,
        "measure": task.measure.name,
        "unit": task.measure.unit,
        "higher_is_better": task.measure.higher_is_better,
        "guess": task.guess,
        "guessing": task.guessing,
        "cells": [_of_cell(name, cells[name], final[name], tuning[name], options, found_pairs) for name in rates],
        "pairs": found_pairs,
        "output": str(options.output),
    }


def _of_cell(
    name: str,
    description: Mapping[str, Any],
    final: Sequence[Run],
    tuning: Sequence[Run],
    options: Options,
    found_pairs: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    figures, rate = [figure(run) for run in final], final[0].plan.learning_rate
    values = [value for value in figures if value is not None]
    found = estimate(values) if values else Estimate(math.nan, None, None, 0)
    at_edge = len(options.learning_rates) > 1 and rate in (min(options.learning_rates), max(options.learning_rates))
    return {
        "cell": name,
        **{what: description[what] for what in ("hidden", "sizes", "widened", "parameters")},
        "learning_rate": rate,
        "rate_at_edge": at_edge,
        "figures": figures,
        "mean": found.mean if values else None,
        "interval": None if found.half is None else [found.mean - found.half, found.mean + found.half],
        "half": found.half,
        "deviation": found.deviation,
        "diverged": len(figures) - len(values),
        "diverged_while_tuning": sum(run.diverged is not None for run in tuning),
        "differs_from": [
            other for pair in found_pairs if name in pair["cells"] and pair["differ"] for other in pair["cells"] if other != name
        ],
        "steps_per_second": median(run.steps_per_second for run in final),
        "seconds": math.fsum(run.seconds for run in final) / len(final),
        "backend": final[0].backend,
    }


def reported(runs: Mapping[Plan, Run], cell: str, rate: float) -> list[Run]:
    """The runs of a cell whose figures count, by seed."""
    found = [run for plan, run in runs.items() if (plan.cell, plan.purpose, plan.learning_rate) == (cell, "comparison", rate)]
    return sorted(found, key=lambda run: run.plan.seed)


def pairs(final: Mapping[str, Sequence[Run]]) -> list[dict[str, Any]]:
    """Each two cells: the mean `difference` of the first from the second over the seeds of which neither run diverged, half of
    its 95 % interval, the p-value of a paired t-test, and that corrected by Holm for all tests of the comparison.
    """
    found: list[dict[str, Any]] = []
    for one, other in combinations(final, 2):
        of_one, of_other = ({run.plan.seed: figure(run) for run in final[name]} for name in (one, other))
        both = [(of_one[s], of_other[s]) for s in sorted(of_one) if of_one[s] is not None and of_other.get(s) is not None]
        differences = [a - b for a, b in both if a is not None and b is not None]
        mean, p = paired(differences) if differences else (None, None)
        found.append(
            {
                "cells": [one, other],
                "seeds": len(differences),
                "difference": None if mean is None else mean.mean,
                "half": None if mean is None else mean.half,
                "p": p,
            }
        )
    tested = [pair for pair in found if pair["p"] is not None]
    for pair, corrected in zip(tested, holm([pair["p"] for pair in tested]), strict=True):
        pair["corrected_p"] = corrected
    for pair in found:
        pair.setdefault("corrected_p", None)
        pair["differ"] = pair["corrected_p"] is not None and pair["corrected_p"] < 1 - LEVEL
    return found


def figure(run: Run) -> float | None:
    """What was measured in the test; None of a run that diverged."""
    return None if run.test is None else run.test["figure"]
