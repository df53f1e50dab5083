import pytest

from anyrnn import cells
from benchmarks.result import Ceilings, Result
from benchmarks.suite import SUITES, Row, rows_of
from benchmarks.targets import TARGETS, Run


def test_a_name_says_everything_about_a_row() -> None:
    row = Row("lstm", 7, 3, 4, 6, "training", "last", 2, True, (3, 7))
    assert row.name == "lstm 7x3x4x6 2 layers bidirectional lengths 3..7 training last"
    assert Row("gru", 1, 2, 3, 4).name == "gru 1x2x3x4 inference"


@pytest.mark.parametrize("suite", [*SUITES, "all"])
def test_every_suite_has_different_rows_of_cells_that_exist(suite: str) -> None:
    rows = rows_of(suite)
    assert rows
    assert len({row.name for row in rows}) == len(rows)
    for cell in {row.cell for row in rows}:
        cells.load(cell)


def test_all_is_every_suite() -> None:
    assert set(rows_of("all")) == {row for rows in SUITES.values() for row in rows}


def test_the_quick_suite_is_small() -> None:
    assert len({(row.cell, row.shape) for row in rows_of("quick")}) == 10


@pytest.mark.parametrize("threads", [1, 2])
def test_every_target_is_for_some_row(threads: int) -> None:
    results = [Result(row, "ok", step_bytes=2**24) for row in rows_of("all")]
    run = Run(results, Ceilings(None, None), threads, 2**20)
    without = [target for target in TARGETS if not any(target.rows(result, run) for result in results)]
    assert len(without) == 1, "one is for one thread, one for several"
