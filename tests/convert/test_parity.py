"""The parity report."""

from __future__ import annotations

import numpy as np
import pytest

from anyrnn import runtime
from anyrnn.convert.report import MAXIMUM, RMS, ULPS, ULPS_OF_OTHERS, Parity, compared, drawn, run
from tests import budget


def small() -> runtime.Network:
    weight = np.ones((7, 2), np.float32)
    layers = [runtime.Embedding("words", ["x"], weight), runtime.Concatenate("both", ["words", "y"])]
    return runtime.Network([runtime.Input("x", None), runtime.Input("y", 3)], layers, ["both", "words"], batch_first=True)


def report(error: float, of_source: float, ulps: float = ULPS) -> Parity:
    exact = np.linspace(-2, 2, 100)
    theirs = (exact + of_source).astype(np.float32)
    return compared(
        "a library 1.0", small(), [{"x": np.zeros((3, 4))}], [(exact + error).astype(np.float32)], [theirs], [exact], ulps=ulps
    )


def test_the_budget_is_that_of_the_tests() -> None:
    assert (RMS, MAXIMUM, ULPS) == (budget.RMS, budget.MAXIMUM, budget.ULPS)


def test_errors_are_within_some_times_those_of_the_original() -> None:
    assert report(0, 0).within
    assert report(1.4e-4, 1e-4).within
    assert not report(1.7e-4, 1e-4).within
    assert not report(1e-5, 0).within
    assert not report(np.nan, 1e-4).within
    assert [report(3e-6, 1e-7, ulps).within for ulps in (ULPS, ULPS_OF_OTHERS)] == [False, True]


def test_a_report_is_readable() -> None:
    text = str(report(1e-3, 1e-4))
    assert text.startswith(
        "a library 1.0 against no cell on x [3, 4]: largest error 0.0005 (the original's own 5e-05), RMS 0.0005"
    )
    assert text.endswith("as parts of the largest result, 2: OVER the error budget")
    assert str(report(0, 0)).endswith("within the error budget")


def test_results_of_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected results of one shape, and exact ones of float64, got \(3,\), \(3,\), \(4,\)"):
        compared("it", small(), [], [np.zeros(3)], [np.zeros(3)], [np.zeros(4)])


def test_inputs_are_drawn_as_the_network_takes_them() -> None:
    network = small()
    given = drawn(network, 5, 9, 0)
    assert {name: array.shape for name, array in given.items()} == {"x": (5, 9), "y": (5, 9, 3)}
    assert set(np.unique(given["x"])) == set(range(7))
    assert [result.shape for result in run(network, given)] == [(5, 9, 5), (5, 9, 2)]
