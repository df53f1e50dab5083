import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyrnn.compare.statistics import estimate, holm, paired, quantile, share_within

# Student's table of 1908, as in every textbook: two-sided, 95 % and 99 %.
QUANTILES = [
    (1, 12.706, 63.657),
    (2, 4.303, 9.925),
    (4, 2.776, 4.604),
    (9, 2.262, 3.250),
    (30, 2.042, 2.750),
    (120, 1.980, 2.617),
]
SLEEP = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
"""Additional hours of sleep, the second drug against the first: Cushny & Peebles 1905, in Student 1908."""


@pytest.mark.parametrize(("freedom", "of_95", "of_99"), QUANTILES)
def test_quantiles(freedom: int, of_95: float, of_99: float) -> None:
    assert quantile(0.95, freedom) == pytest.approx(of_95, abs=5e-4)
    assert quantile(0.99, freedom) == pytest.approx(of_99, abs=5e-4)


@given(st.integers(1, 60), st.floats(0, 30))
def test_the_distribution_is_the_integral_of_its_density(freedom: int, t: float) -> None:
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    x = np.linspace(0, t, 20_001)
    density = scale * (1 + x**2 / freedom) ** (-(freedom + 1) / 2)
    assert share_within(t, freedom) == pytest.approx(2 * np.trapezoid(density, x), abs=1e-6)
    assert share_within(-t, freedom) == share_within(t, freedom)


@pytest.mark.parametrize(("share", "freedom"), [(1.0, 3), (-0.1, 3), (0.95, 0)])
def test_what_has_no_quantile(share: float, freedom: int) -> None:
    with pytest.raises(ValueError, match="expected a share from 0 up to 1 and a degree of freedom or more"):
        quantile(share, freedom)


def test_an_interval_worked_by_hand() -> None:
    """1 to 5: the deviation is sqrt(10 / 4), the half 2.776 times that by sqrt(5)."""
    found = estimate([1, 2, 3, 4, 5])
    assert (found.mean, found.count) == (3, 5)
    assert found.deviation == pytest.approx(1.5811, abs=1e-4)
    assert found.half == pytest.approx(1.9632, abs=1e-4)


def test_one_value_tells_no_interval() -> None:
    found = estimate([7.5])
    assert (found.mean, found.half, found.deviation) == (7.5, None, None)
    assert paired([7.5])[1] is None
    with pytest.raises(ValueError, match="there is no value to estimate a mean from"):
        estimate([])


def test_students_own_example() -> None:
    found, p = paired(SLEEP)
    assert found.mean == pytest.approx(1.58)
    assert p == pytest.approx(0.002833, abs=1e-6)
    assert found.half == pytest.approx(2.4598858 - 1.58, abs=1e-6)


def test_differences_without_spread() -> None:
    assert paired([0.0, 0.0, 0.0])[1] == 1
    found, p = paired([100 * 345 / 355 - 100 * 343 / 355, 100 * 340 / 355 - 100 * 338 / 355])  # two of 355 each time
    assert (found.half, p) == (None, None)
    assert found.mean == pytest.approx(200 / 355)


def test_intervals_hold_the_mean_as_often_as_they_say() -> None:
    random = np.random.default_rng(0)
    held = 0
    for values in random.normal(3, 2, (2000, 4)):
        found = estimate(list(values))
        assert found.half is not None
        held += abs(found.mean - 3) <= found.half
    assert 0.935 <= held / 2000 <= 0.965


def test_holm_worked_by_hand() -> None:
    """The smallest of four times 4, the next times 3, and none below one before it."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []
