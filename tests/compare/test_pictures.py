from dataclasses import replace
from typing import Any

import pytest

from anyrnn.compare.pictures import curve_of, curves_picture, final_picture
from anyrnn.compare.statistics import estimate
from anyrnn.compare.training import Plan, Run


def run(seed: int, figures: list[float], diverged: int | None = None) -> Run:
    validations = [{"step": 10 * k, "train_loss": 1.0, "loss": 1.0, "figure": f} for k, f in enumerate(figures, 1)]
    return Run(Plan("a", "comparison", 0.01, seed), validations, diverged, None, None, 1.0, 1.0, "llvm")


def test_a_curve_is_of_the_runs_that_got_so_far() -> None:
    runs = [run(0, [1.0, 2.0]), run(1, [3.0, 6.0]), run(2, [5.0], diverged=14)]
    (first, mean, half), (second, later, _) = curve_of(runs)
    assert (first, mean, second, later) == (10, 3.0, 20, 4.0)
    assert half == estimate([1.0, 3.0, 5.0]).half
    assert curve_of([run(0, [1.0])]) == [(10, 1.0, 0.0)]


def summary(**changes: Any) -> dict[str, Any]:
    cells = [
        {"cell": "a", "figures": [1.0, 3.0], "mean": 2.0, "half": 0.5, "diverged": 0},
        {"cell": "b", "figures": [None, None], "mean": None, "half": None, "diverged": 2},
    ]
    about = {"task": "adding", "measure": "test mean squared error", "unit": "", "higher_is_better": False}
    return {**about, "guess": 0.5, "guessing": "to say 1", "cells": cells, **changes}


def test_the_pictures_name_cells_and_what_diverged() -> None:
    (axes,) = final_picture(summary()).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b (2 diverged)"]
    assert axes.get_xlabel() == "test mean squared error"
    (axes,) = curves_picture(summary(), [run(0, [1.0, 2.0])]).axes
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["a", "without learning: to say 1"]
    assert axes.get_ylabel() == "validation mean squared error"


@pytest.mark.parametrize("name", ["_mine", "$a$"])
def test_names_that_matplotlib_would_take_for_something_else(name: str) -> None:
    told = summary()
    told["cells"][0]["cell"] = name
    of = run(0, [1.0, 2.0])
    drawn = curves_picture(told, [replace(of, plan=replace(of.plan, cell=name))])
    legend = drawn.axes[0].get_legend()
    assert legend is not None
    assert legend.get_texts()[0].get_text().strip() == name.replace("$", r"\$")


@pytest.mark.parametrize("one", [True, False])
def test_interval_in_the_picture(one: bool) -> None:
    cell = {"cell": "a", "figures": [2.0] if one else [1.0, 3.0], "mean": 2.0, "half": None if one else 0.5, "diverged": 0}
    (axes,) = final_picture(summary(cells=[cell], guess=None)).axes
    (bars,) = axes.containers
    ends = [] if one else [tuple(point[0] for point in segment) for segment in bars.lines[2][0].get_segments()]
    assert ends == ([] if one else [(1.5, 2.5)])
