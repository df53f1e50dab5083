import time

import pytest

from benchmarks.measure import Blocks, Timing, geometric_mean, measure


def test_systems_are_called_in_blocks_round_and_round() -> None:
    order: list[str] = []
    blocks = Blocks(rounds=2, pause=0.0, warm_up=1, calls=3, seconds=0.0)
    timings = measure({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, blocks)
    assert "".join(order) == "aaaabbbbaaaabbbb"
    assert [len(block) for block in timings["a"].blocks] == [3, 3]


def test_quick_calls_are_timed_more_often_up_to_a_limit() -> None:
    timing = measure({"a": lambda: None}, Blocks(rounds=1, pause=0.0, warm_up=2, calls=6, seconds=0.1, most=50))["a"]
    assert len(timing.samples) == 50


def test_quick_calls_warm_up_for_as_long_as_they_are_timed() -> None:
    begun: list[float] = []

    def call() -> None:
        begun.append(time.perf_counter())
        time.sleep(0.001)

    timing = measure({"a": call}, Blocks(rounds=1, pause=0.0, warm_up=1, calls=2, seconds=0.02, most=3))["a"]
    first_timed = begun[-len(timing.samples)]
    assert first_timed - begun[0] >= 0.02


def test_a_block_has_at_least_its_calls_whatever_the_limit() -> None:
    timing = measure({"a": lambda: None}, Blocks(rounds=1, pause=0.0, calls=210, most=100))["a"]
    assert len(timing.samples) == 210


def test_endless_calls_are_timed_once() -> None:
    order: list[str] = []
    timings = measure({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, Blocks(pause=0.0, enough=1e-9))
    assert "".join(order) == "ab"
    assert len(timings["a"].samples) == 1


def test_medians_and_percentiles() -> None:
    timing = Timing((tuple(float(k) for k in range(1, 51)), tuple(float(k) for k in range(51, 101))))
    assert timing.median == 50.5
    assert timing.block_medians == [25.5, 75.5]
    assert [timing.percentile(p) for p in (0, 10, 90, 99, 100)] == [1, 10, 90, 99, 100]


def test_geometric_mean() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([]) is None
