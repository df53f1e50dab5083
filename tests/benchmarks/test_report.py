from dataclasses import replace

import pytest

from benchmarks.measure import Timing
from benchmarks.prove import Proof
from benchmarks.report import Report, aligned, data, text
from benchmarks.result import Ceilings, Result
from benchmarks.run import Settings
from benchmarks.suite import DIGITS, ONE_SAMPLE, Row

MACHINE = {"cpu": "A processor", "cores": 2, "load": 0.0}


def timed(row: Row, ours: float, torch: float | None, flops: int, weight_bytes: int = 0) -> Result:
    """A result of one call each, in seconds."""
    timings = {"anyrnn": Timing(((ours,),))} | ({"torch": Timing(((torch,),))} if torch else {})
    return Result(row, "ok", "", timings, flops, weight_bytes)


@pytest.fixture
def report() -> Report:
    results = [
        timed(Row("lstm", *DIGITS, "training"), 0.040, 0.060, 8_000_000_000),
        timed(Row("gru", *DIGITS, "training"), 0.040, 0.030, 6_000_000_000),
        timed(Row("lstm", *ONE_SAMPLE), 0.001, 0.002, 10**8, 10**7),
        Result(Row("gru", *ONE_SAMPLE), "wrong", "output differs from torch's by 5.0e-01"),
        timed(Row("gru_before", *DIGITS), 0.010, None, 10**9),
    ]
    cold = {"lstm": 0.4, "gru": 1.5}
    return Report(
        Settings(), results, Ceilings(400e9, 300e9, 20e9), MACHINE, {"torch": "2.13.0"}, cold, missing={"jax": "not here"}
    )


def test_figures(report: Report) -> None:
    lstm, _, stream, wrong, _ = report.results
    assert lstm.peak_fraction(report.ceilings) == pytest.approx(0.5)
    assert lstm.bandwidth_fraction(report.ceilings) is None
    assert lstm.ratios == {"torch": pytest.approx(1.5)}
    assert stream.bandwidth_fraction(report.ceilings) == pytest.approx(0.5)
    assert wrong.peak_fraction(report.ceilings) is None


def test_what_is_below_target(report: Report) -> None:
    reason = "torch runs at 0.50 of this machine's arithmetic, which leaves 2.00 at the most; ours at 0.38"
    assert report.missed == [
        f"gru 28x200x28x256 training: ratio to torch 0.75, should be at least 1.30; {reason}",
        "lstm 28x200x28x256 training: peak fraction 0.50, should be at least 0.60",
        "gru 100x1x256x256 inference: ratio to torch was not measured, should be at least 1.00",
        "gru_before 28x200x28x256 inference: ratio to equations was not measured, should be at least 1.80",
        "gru_before 28x200x28x256 inference: ratio to eager was not measured, should be at least 1.80",
        "gru: cold compile 1.50 s, should be at most 1.00 s",
    ]


def test_geometric_means(report: Report) -> None:
    means = report.geometric_means()
    assert means["training"] == {"torch": pytest.approx((1.5 * 0.75) ** 0.5), "best": pytest.approx((1.5 * 0.75) ** 0.5)}
    assert means["inference"] == {"torch": pytest.approx(2.0), "best": pytest.approx(2.0)}


def test_the_text_has_everything(report: Report) -> None:
    lines = text(report).splitlines()
    assert (
        "A processor, 2 cores; 2 threads; float32 at most 400 GF/s, torch's product 300, reads 20.0 GB/s; load 0.0 at the start"
        in lines
    )
    assert "peer jax: not here" in lines
    lstm = next(line for line in lines if line.startswith("lstm 28x200"))
    figures = "40.000 40.000 - 40.000 1428.6 200.0 0.50 - 60.000 1.50 - - - - 1.50"
    assert lstm.split() == ["lstm", "28x200x28x256", "training", *figures.split()]
    assert next(line for line in lines if line.startswith("gru 100x1")).split()[-1] == "WRONG"
    assert "WRONG gru 100x1x256x256 inference: output differs from torch's by 5.0e-01" in lines
    assert "  gru: cold compile 1.50 s, should be at most 1.00 s" in lines


def test_the_data_have_everything(report: Report) -> None:
    found = data(report)
    first = ["date", "machine", "versions", "settings", "arithmetic_gflops", "product_gflops"]
    first += ["read_gigabytes_per_second", "missing_peers", "rows"]
    assert list(found) == [*first, "geometric_means", "cold_compile_seconds", "proofs", "failures", "below_target"]
    lstm, wrong = found["rows"][0], found["rows"][3]
    assert (lstm["name"], lstm["cell"], lstm["hidden"], lstm["status"]) == ("lstm 28x200x28x256 training", "lstm", 256, "ok")
    assert lstm["systems"]["torch"] == {
        "median_ms": 60.0, "p10_ms": 60.0, "p90_ms": 60.0, "p99_ms": 60.0, "block_medians_ms": [60.0], "calls": 1,
    }  # fmt: skip
    assert wrong["status"] == "wrong"
    assert "systems" not in wrong


def test_what_makes_a_run_unsound(report: Report) -> None:
    fine = replace(report, results=report.results[:3])
    assert not report.sound
    assert fine.sound
    assert replace(fine, results=[Result(Row("gru", 1, 1, 1, 1), "declined", "not yet")]).sound
    assert not replace(fine, proofs=[Proof("row", "torch", 1.2, 1.0)]).sound
    assert replace(fine, proofs=[Proof("row", "torch", 1.05, 1.0)]).sound
    assert not replace(fine, failures=["cold compile of lstm: out of luck"]).sound


def test_columns_are_aligned() -> None:
    lines = [["a", "b", "c"], ["long name", "1.25", "x"], ["b", "WRONG"]]
    assert aligned(lines) == "a              b  c\nlong name   1.25  x\nb          WRONG"
