"""What a few runs say of many: intervals by Student's t, differences paired by seed, Holm's correction.

Degrees of freedom are whole numbers, for which the distribution is a finite sum; nothing here is a table or an approximation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean of so many values, with the half of its 95 % confidence interval and the standard deviation: None for one value,
    the half for equal differences too.
    """

    mean: float
    half: float | None
    deviation: float | None
    count: int


def share_within(t: float, freedom: int) -> float:
    """The probability that Student's t of so many degrees of freedom lies between -t and t.

    Source: Abramowitz & Stegun 1964, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = math.atan2(abs(t), math.sqrt(freedom))
    cosine = math.cos(angle)
    term = cosine if freedom % 2 else 1.0
    total = 0.0
    for k in range(freedom % 2 + 2, freedom + 1, 2):
        total += term
        term *= cosine**2 * (k - 1) / k
    if freedom % 2 == 0:
        return math.sin(angle) * total
    return 2 / math.pi * (angle + math.sin(angle) * total)


def quantile(share: float, freedom: int) -> float:
    """The t between whose negative and itself that share lies: 12.706 for 0.95 and one degree of freedom.

    Raises: ValueError for a share outside of 0 to 1, and for less than one degree of freedom.
    """
    if not 0 <= share < 1 or freedom < 1:
        raise ValueError(f"expected a share from 0 up to 1 and a degree of freedom or more, got {share} and {freedom}")
    low, high = 0.0, 1.0
    while share_within(high, freedom) < share:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if share_within(middle, freedom) < share else (low, middle)
    return high


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of what independent values are drawn from, taken as normal. Raises: ValueError for no value."""
    count = len(values)
    if count == 0:
        raise ValueError("there is no value to estimate a mean from")
    mean = math.fsum(values) / count
    if count == 1:
        return Estimate(mean, None, None, 1)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return Estimate(mean, quantile(LEVEL, count - 1) * deviation / math.sqrt(count), deviation, count)


ROUNDING = 1e-9
"""The spread of equal numbers, as a part of these, that comes of rounding."""


def paired(differences: Sequence[float]) -> tuple[Estimate, float | None]:
    """The mean difference, and the two-sided p-value of Student's paired t-test; None for one pair, and for differences that are
    all the same but none: accuracies are counts, so that few often are, and say nothing of how far the next ones would be.
    """
    found = estimate(differences)
    if found.deviation is None:
        return found, None
    if found.deviation <= ROUNDING * abs(found.mean):
        return (found, 1.0) if found.mean == 0 else (replace(found, half=None), None)
    t = found.mean / found.deviation * math.sqrt(found.count)
    return found, max(0.0, 1 - share_within(t, found.count - 1))


def holm(values: Sequence[float]) -> list[float]:
    """p-values corrected for their number, in their order: those below 0.05 hold together with an error of 0.05.

    Source: Holm 1979, A Simple Sequentially Rejective Multiple Test Procedure.
    """
    corrected, largest = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        largest = max(largest, min(1.0, values[place] * (len(values) - rank)))
        corrected[place] = largest
    return corrected
