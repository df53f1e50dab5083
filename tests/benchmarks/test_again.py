from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks.again import measure_again
from benchmarks.measure import Timing
from benchmarks.result import Ceilings, Result
from benchmarks.suite import Row
from benchmarks.targets import Run

QUICK, SLOW = Row("lstm", 5, 3, 4, 6), Row("gru", 5, 3, 4, 6)


def timed(row: Row, ratio: float) -> Result:
    return Result(row, "ok", "", {"anyrnn": Timing(((1.0,),)), "torch": Timing(((ratio,),))}, 10**6)


@pytest.mark.parametrize(("later", "middle"), [((1.5, 1.2), 1.2), ((0.3, 1.2), 0.5), ((0.3, 0.2), 0.3)])
def test_the_middle_one_of_three_counts(later: tuple[float, float], middle: float) -> None:
    more: Iterator[float] = iter(later)
    run = Run([timed(QUICK, 1.3), timed(SLOW, 0.5)], Ceilings(None, None), 2, 2**20)
    ((place, slow),) = measure_again(run, lambda row: timed(row, next(more)))
    assert place == 1, "a row that meets its targets by far is left alone"
    assert slow.row == SLOW
    assert slow.ratio_to_best == middle
    first, second = later
    assert slow.notes == (f"the middle one of 3 runs, ratio to the best 0.50, {first:.2f}, {second:.2f}",)


def test_a_row_that_meets_its_target_by_a_hair_is_in_doubt_too() -> None:
    more = iter((0.90, 0.91))
    ((_, result),) = measure_again(Run([timed(QUICK, 1.0)], Ceilings(None, None), 2, 2**20), lambda row: timed(row, next(more)))
    assert result.ratio_to_best == 0.91


def test_the_target_that_is_missed_by_most_chooses() -> None:
    """A row of many samples is held against the peers and against a library's product."""
    row = Row("lstm", 28, 200, 28, 256)

    def measured(ratio: float, peak: float) -> Result:
        return replace(timed(row, ratio), product_rates=(10**6 / peak,))

    more = iter((measured(2.0, 0.3), measured(0.5, 0.4)))
    ((_, result),) = measure_again(Run([measured(0.9, 0.5)], Ceilings(None, None), 2, 2**20), lambda row: next(more))
    assert result.notes == ("the middle one of 3 runs, peak fraction 0.50, 0.30, 0.40",)
    assert result.ratio_to_best == 0.5


def test_what_goes_wrong_later_is_told() -> None:
    wrong = Result(SLOW, "wrong", "output differs")
    assert list(measure_again(Run([timed(SLOW, 0.5)], Ceilings(None, None), 2, 2**20), lambda row: wrong)) == [(0, wrong)]
