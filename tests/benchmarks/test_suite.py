import pytest

from benchmarks.job import find_cell
from benchmarks.suite import SUITES, Row, rows_of
from benchmarks.targets import TARGETS


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
        find_cell(cell)


def test_all_is_every_suite() -> None:
    assert set(rows_of("all")) == {row for rows in SUITES.values() for row in rows}


def test_the_quick_suite_has_what_targets_are_set_for() -> None:
    quick = [(row.cell, row.shape, row.mode, row.loss) for row in rows_of("quick")]
    assert len({(cell, shape) for cell, shape, _, _ in quick}) == 10
    for target in TARGETS:
        for cell in target.cells:
            assert (cell, target.shape, target.mode, "all") in quick
