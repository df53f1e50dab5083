from typing import Any

import pytest

from anyrnn.compare import tasks
from anyrnn.compare.examples import Task
from anyrnn.compare.options import make
from anyrnn.compare.statistics import estimate, paired
from anyrnn.compare.summary import best_rate, pairs, summarise
from anyrnn.compare.training import Plan, Run

ABOUT = {"hidden": 8, "sizes": {}, "widened": False, "parameters": 100}


def run(cell: str, seed: int, figure: float | None, rate: float = 0.01, purpose: Any = "comparison") -> Run:
    """A run as it would be read from a file; figure None is one that diverged at step 3."""
    validations = [{"step": 2, "train_loss": 1.0, "loss": 1.0, "figure": figure or 10.0}]
    test = None if figure is None or purpose == "tuning" else {"loss": 1.0, "figure": figure}
    best = None if figure is None else 2
    return Run(Plan(cell, purpose, rate, seed), validations, 3 if figure is None else None, best, test, 2.0, 50.0 + seed, "llvm")


@pytest.fixture
def task() -> Task:
    return tasks.load(make("lstm", "digits"))


def test_the_rate_with_the_best_mean(task: Task) -> None:
    of = {0.001: (50.0, 60.0), 0.01: (70.0, 58.0), 0.1: (90.0, 30.0)}
    runs = [run("a", seed, figure, rate, "tuning") for rate, found in of.items() for seed, figure in enumerate(found)]
    assert best_rate(runs, list(of), task) == 0.01


def test_smaller_is_better_in_adding() -> None:
    adding = tasks.load(make("lstm", "adding", length=4))
    runs = [run("a", 0, figure, rate, "tuning") for rate, figure in ((0.001, 0.2), (0.01, 0.1), (0.1, 0.3))]
    assert best_rate(runs, [0.001, 0.01, 0.1], adding) == 0.01


def test_a_rate_that_diverges_less_wins(task: Task) -> None:
    runs = [run("a", 0, 40.0, 0.001, "tuning"), run("a", 0, None, 0.01, "tuning")]
    assert best_rate(runs, [0.001, 0.01], task) == 0.001
    assert best_rate([run("a", 0, None, rate, "tuning") for rate in (0.1, 0.01)], [0.1, 0.01], task) == 0.01


def test_of_equal_rates_the_smaller(task: Task) -> None:
    assert best_rate([run("a", 0, 40.0, rate, "tuning") for rate in (0.1, 0.01)], [0.1, 0.01], task) == 0.01


def summary(task: Task, figures: dict[str, list[float | None]], **given: Any) -> dict[str, Any]:
    runs = [run(cell, seed, figure) for cell, of_cell in figures.items() for seed, figure in enumerate(of_cell)]
    options = make(list(figures), "digits", **{"learning_rate": 0.01, **given})
    rates = dict.fromkeys(figures, 0.01)
    return summarise(options, task, dict.fromkeys(figures, ABOUT), {r.plan: r for r in runs}, rates)


def test_means_and_intervals(task: Task) -> None:
    (cell,) = summary(task, {"a": [90.0, 92.0, 97.0]})["cells"]
    expected = estimate([90.0, 92.0, 97.0])
    assert expected.half is not None
    assert cell["figures"] == [90.0, 92.0, 97.0]
    assert cell["mean"] == 93.0
    assert cell["interval"] == [93.0 - expected.half, 93.0 + expected.half]
    assert (cell["diverged"], cell["steps_per_second"], cell["seconds"]) == (0, 51.0, 2.0)


def test_one_seed_tells_no_interval(task: Task) -> None:
    found = summary(task, {"a": [90.0], "b": [20.0]})
    assert [cell["interval"] for cell in found["cells"]] == [None, None]
    assert found["pairs"][0]["p"] is None
    assert found["pairs"][0]["corrected_p"] is None
    assert found["pairs"][0]["differ"] is False
    assert found["pairs"][0]["difference"] == 70.0


def test_diverged_runs_are_counted(task: Task) -> None:
    found = summary(task, {"a": [90.0, None, 92.0], "b": [80.0, 10.0, 81.0], "c": [None, None, None]})
    a, b, c = found["cells"]
    assert (a["diverged"], a["mean"], a["figures"]) == (1, 91.0, [90.0, None, 92.0])
    assert (b["diverged"], b["mean"]) == (0, 57.0)
    assert (c["diverged"], c["mean"], c["interval"]) == (3, None, None)
    of_ab, of_ac, of_bc = found["pairs"]
    assert (of_ab["seeds"], of_ab["difference"]) == (2, 10.5)
    for pair in (of_ac, of_bc):
        assert (pair["seeds"], pair["difference"], pair["p"], pair["differ"]) == (0, None, None, False)


def test_pairs_go_by_seed_and_are_corrected() -> None:
    figures = {"a": [90.0, 80.0, 70.0, 85.0], "b": [89.0, 78.9, 69.1, 84.0], "c": [88.0, 83.0, 71.0, 80.0]}
    final = {cell: [run(cell, seed, figure) for seed, figure in enumerate(of)] for cell, of in figures.items()}
    found = pairs(final)
    assert [pair["cells"] for pair in found] == [["a", "b"], ["a", "c"], ["b", "c"]]
    for pair in found:
        one, other = (figures[name] for name in pair["cells"])
        expected, p = paired([a - b for a, b in zip(one, other, strict=True)])
        assert (pair["difference"], pair["half"], pair["p"]) == (expected.mean, expected.half, p)
    assert found[0]["corrected_p"] == pytest.approx(3 * found[0]["p"])
    assert [pair["differ"] for pair in found] == [True, False, False]


def test_who_differs_from_whom(task: Task) -> None:
    found = summary(task, {"a": [90.0, 91.0, 92.0], "b": [50.0, 51.1, 52.0], "c": [90.0, 93.0, 90.0]})
    assert [cell["differs_from"] for cell in found["cells"]] == [["b"], ["a", "c"], ["b"]]


def test_a_rate_at_the_edge_of_those_tried(task: Task) -> None:
    for rates, at_edge in (([0.001, 0.01, 0.1], False), ([0.001, 0.01], True), (0.01, False)):
        assert summary(task, {"a": [90.0, 91.0]}, learning_rate=rates)["cells"][0]["rate_at_edge"] is at_edge


@pytest.mark.parametrize("other", ["tuning", "rate", "cell"])
def test_other_runs_do_not_count(task: Task, other: str) -> None:
    change: dict[str, Any] = {"tuning": {"purpose": "tuning"}, "rate": {"rate": 0.1}, "cell": {"cell": "b"}}[other]
    runs = [run("a", 0, 50.0), run("a", 1, 60.0), run(**{"cell": "a", "seed": 2, "figure": 0.1, **change})]
    found = summarise(make("a", "digits", learning_rate=0.01), task, {"a": ABOUT}, {r.plan: r for r in runs}, {"a": 0.01})
    assert found["cells"][0]["figures"] == [50.0, 60.0]
