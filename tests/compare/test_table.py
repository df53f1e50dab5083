import csv
from collections.abc import Callable
from typing import Any

import pytest

from anyrnn.compare import table, tasks
from anyrnn.compare.options import make
from anyrnn.compare.summary import summarise
from anyrnn.compare.training import Plan, Run

SESSION = {
    "command": ["anyrnn", "compare", "--cells", "a,residual(b)"],
    "versions": {"anyrnn": "0.1.0", "torch": "2.13.0"},
    "system": "Linux",
    "threads": 2,
}


def run(cell: str, seed: int, figure: float | None, backend: str = "llvm") -> Run:
    test = None if figure is None else {"loss": 1.0, "figure": figure}
    return Run(Plan(cell, "comparison", 0.01, seed), [], 3 if figure is None else None, None, test, 12.34, 1234.5, backend)


def summary(figures: dict[str, list[float | None]], task: str = "digits") -> dict[str, Any]:
    about = {
        name: {
            "hidden": 64,
            "sizes": {"proj": 32} if name == "b" else {},
            "widened": "residual" in name,
            "parameters": 18_000 + len(name),
        }
        for name in figures
    }
    runs = [
        run(name, seed, figure, "reference" if name == "b" else "llvm")
        for name, of in figures.items()
        for seed, figure in enumerate(of)
    ]
    options = make(list(figures), task, learning_rate=[0.001, 0.01], output="out")
    return summarise(options, tasks.load(options), about, {r.plan: r for r in runs}, dict.fromkeys(figures, 0.01))


@pytest.fixture
def several() -> dict[str, Any]:
    return summary({"a": [90.0, 91.0, 92.0], "residual(a)": [50.0, 51.1, 52.0], "b": [90.0, None, 92.5]})


def test_the_text(several: dict[str, Any], golden: Callable[[str, str], None]) -> None:
    golden("text", table.text(several))


def test_the_file(several: dict[str, Any], golden: Callable[[str, str], None]) -> None:
    golden(
        "file",
        table.markdown(several, {"task": "digits", "length": None, "seeds": [0, 1, 2], "clip": 1.0, "sizes": {}}, [SESSION] * 2),
    )


def test_one_seed(golden: Callable[[str, str], None]) -> None:
    golden("one_seed", table.text(summary({"a": [0.0123], "b": [0.1]}, "adding")))


def test_numbers_with_commas_between(several: dict[str, Any]) -> None:
    rows = list(csv.DictReader(table.comma_separated(several).splitlines()))
    assert [row["cell"] for row in rows] == ["a", "residual(a)", "b"]
    first = rows[0]
    assert (float(first["mean"]), first["parameters"], first["seeds"], first["diverged"]) == (91.0, "18001", "3", "0")
    assert [float(first["low"]), float(first["high"])] == several["cells"][0]["interval"]
    assert (rows[0]["differs_from"], rows[1]["differs_from"], rows[2]["diverged"]) == ("residual(a)", "a; b", "1")


def test_what_there_is_not_is_empty() -> None:
    (row,) = csv.DictReader(table.comma_separated(summary({"a": [None]})).splitlines())
    assert (row["mean"], row["low"], row["deviation"]) == ("", "", "")


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [
        (97.1234, 0.4567, "97.12 ± 0.46"),
        (97.1234, 12.3, "97 ± 12"),
        (97.1234, 123.0, "97 ± 123"),
        (0.00012345, 0.0000123, "0.000123 ± 0.000012"),
        (1.5, None, "1.500"),
        (98.0, 0.0, "98.00 ± 0"),
        (1234567.0, None, "1.235e+06"),
        (None, None, "-"),
    ],
)
def test_a_mean_and_its_interval(mean: float | None, half: float | None, text: str) -> None:
    assert table.estimated(mean, half) == text
