from dataclasses import replace

import pytest

from benchmarks import targets
from benchmarks.measure import Timing
from benchmarks.prove import Proof
from benchmarks.report import Report, aligned, data, text
from benchmarks.result import Ceilings, Result
from benchmarks.run import Settings
from benchmarks.suite import DIGITS, ONE_SAMPLE, Mode, Row

MACHINE = {"cpu": "A processor", "cores": 2, "load": 0.0, "second_cache_bytes": 2**20}


def timed(row: Row, ours: float, flops: int, weights: int = 0, arrays: int = 0, **peers: float) -> Result:
    """A result of one call each, in seconds."""
    timings = {name: Timing(((seconds,),)) for name, seconds in {"anyrnn": ours, **peers}.items()}
    reads = (50e9,) if weights else ()
    counts = (flops, weights * row.steps, weights, arrays)
    return Result(row, "ok", "", timings, *counts, product_rates=(300e9,), read_rates=reads, lstm_rates=(200e9,))


LAYERNORM = Row("lstm_layernorm", *DIGITS, "training")


@pytest.fixture
def report() -> Report:
    results = [
        timed(Row("lstm", *DIGITS, "training"), 0.040, 8_000_000_000, torch=0.060),
        timed(Row("gru", *DIGITS, "training"), 0.040, 10_000_000_000, torch=0.030),
        timed(Row("lstm", 100, 1, 1024, 1024), 0.010, 10**8, 2_500_000, torch=0.020, onnxruntime=0.008),
        Result(Row("gru", *ONE_SAMPLE), "wrong", "output differs from torch's by 5.0e-01"),
        timed(LAYERNORM, 0.080, 8 * 10**9, equations=0.160),
    ]
    compiles = {"lstm": (0.4, 0.01), "gru": (1.5, 0.03)}
    ceilings = Ceilings(400e9, 50e9)
    return Report(Settings(), results, ceilings, MACHINE, {"torch": "2.13.0"}, compiles, missing={"jax": "not here"})


def test_figures(report: Report) -> None:
    lstm, _, stream, wrong, _ = report.results
    assert lstm.peak_fraction == pytest.approx(2 / 3)
    assert lstm.arithmetic_fraction(report.ceilings) == pytest.approx(0.5)
    assert lstm.bandwidth_fraction is None
    assert lstm.ratios == {"torch": pytest.approx(1.5)}
    assert stream.bandwidth_fraction == pytest.approx(0.5)
    assert replace(stream, input_flops=6 * 10**8).bandwidth_fraction == pytest.approx(0.695), "the input's products take time too"
    assert replace(stream, flops=3 * 10**9).bandwidth_fraction == pytest.approx(0.995), "reading takes less than multiplying"
    assert wrong.peak_fraction is None


def test_a_neighbour_that_comes_between_rounds_changes_no_ratio(report: Report) -> None:
    """Both sides take twice as long from the second round on; quick calls are many in the first."""
    result = report.results[2]
    timings = {"anyrnn": Timing(((0.01,) * 9, (0.02,), (0.02,))), "torch": Timing(((0.02,), (0.04,), (0.04,)))}
    rates = {"product_rates": (3e11, 15e10, 15e10), "read_rates": (5e10, 25e9, 25e9), "lstm_rates": (2e11, 1e11, 1e11)}
    slowed = replace(result, timings=timings, **rates)
    assert slowed.ratios == {"torch": pytest.approx(2.0)}
    assert slowed.bandwidth_fraction == pytest.approx(result.bandwidth_fraction)
    assert slowed.peak_fraction == pytest.approx(result.peak_fraction)
    run = targets.Run(report.results, report.ceilings, 2, 2**20)
    assert targets.of_bound(slowed, run) == pytest.approx(targets.of_bound(result, run))


def test_means_of_few_rows_are_held_against_nothing(report: Report) -> None:
    assert not any("geometric mean" in line for line in report.missed)


def test_what_is_below_target(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "LEAST_ROWS", 1)
    parts = "products 0.50, other arithmetic 0.00, sequences 0.00, all else 0.50"
    reason = "equations runs at 0.12 of this machine's arithmetic, which leaves 8.00 at the most; ours at 0.25"
    assert report.missed == [
        "lstm 100x1x1024x1024 inference: ratio to the best 0.80, should be at least 0.95",
        "gru 28x200x28x256 training: ratio to the best 0.75, should be at least 1.00",
        "lstm 28x200x28x256 training: peak fraction 0.67, should be at least 0.80",
        "lstm 100x1x1024x1024 inference: fraction of the rate at which weights are read 0.50, should be at least 0.85",
        f"{LAYERNORM.name}: share of an LSTM's rate, or of the memory's 0.50, should be at least 0.77; of its time: {parts}",
        f"lstm_layernorm 28x200x28x256 training: ratio to equations 2.00, should be at least 3.00; {reason}",
        "inference: geometric mean of the ratios to the best 0.80, should be at least 1.30",
        "training: geometric mean of the ratios to the best 1.06, should be at least 1.80",
        "gru: cold compile 1.500 s, should be at most 0.500 s",
        "gru: cached compile 0.030 s, should be at most 0.020 s",
    ]


def test_what_products_with_the_input_take_by_a_library_is_told_of_a_miss(report: Report) -> None:
    """Of 40 ms at the LSTM's rate a quarter is the input's: 10 ms, and at 100 GFLOP/s 20."""
    slow = replace(timed(LAYERNORM, 0.100, 8 * 10**9), input_flops=2 * 10**9, input_rates=(100e9,))
    parts = "products 0.40 (0.50 with the input's as torch has them), other arithmetic 0.00, sequences 0.00, all else 0.60"
    [line] = missed(report, slow)
    assert line.endswith(parts)


def missed(report: Report, *results: Result, threads: int = 2) -> list[str]:
    settings = replace(report.settings, threads=threads)
    return [line for line in replace(report, results=results, compiles={}, settings=settings).missed if "mean" not in line]


@pytest.mark.parametrize(("cell", "mode", "threads", "slow", "least"), [
    ("lstm", "streaming", 2, 19e-6, 2.0), ("lstm", "streaming", 1, 9e-6, 1.0), ("lstm", "paced", 2, 9e-6, 1.0),
    ("gru", "streaming", 2, 9e-6, 0.95),
])  # fmt: skip
def test_streams(report: Report, cell: str, mode: Mode, threads: int, slow: float, least: float) -> None:
    row = Row(cell, 1, 1, 256, 256, mode)
    enough = timed(row, 10e-6, 10**6, onnxruntime=least * 10e-6)
    assert not missed(report, enough, threads=threads)
    (line,) = missed(report, timed(row, 10e-6, 10**6, onnxruntime=slow), threads=threads)
    assert f"ratio to onnxruntime {slow / 10e-6:.2f}, should be at least {least:.2f}" in line


def test_one_step_of_one_sample_is_held_against_torch(report: Report) -> None:
    row = Row("gru", 1, 1, 512, 512)
    assert not missed(report, timed(row, 10e-6, 10**6, torch=20e-6, onnxruntime=5e-6))
    assert missed(report, timed(row, 10e-6, 10**6, torch=8e-6))


def test_where_arrays_take_longer_than_products_the_memory_is_the_bound(report: Report) -> None:
    own = Row("mingru", *DIGITS)
    assert missed(report, timed(own, 0.010, 10**8))
    assert not missed(report, timed(own, 0.010, 10**8, arrays=4 * 10**8))


def test_the_zoo_is_held_against_torchrecurrent(report: Report) -> None:
    cells = ("mgu", "cfn", "ligru", "star", "rhn")
    rows = [timed(Row(cell, *DIGITS, "training"), 0.010, 2 * 10**9, torchrecurrent=0.020) for cell in cells]
    (line,) = [line for line in replace(report, results=rows, compiles={}).missed if "torchrecurrent" in line]
    assert line == (
        "training at 28x200x28x256: geometric mean of the ratios to torchrecurrent 2.00, should be at least 5.00; "
        "torchrecurrent runs at 0.25 of this machine's arithmetic, which leaves 4.00 at the most"
    )
    quick = [replace(row, timings={**row.timings, "torchrecurrent": Timing(((0.051,),))}) for row in rows]
    assert not [line for line in replace(report, results=quick, compiles={}).missed if "torchrecurrent" in line]


def test_geometric_means(report: Report) -> None:
    means = report.geometric_means()
    assert means["training"] == {
        "torch": pytest.approx((1.5 * 0.75) ** 0.5),
        "equations": pytest.approx(2.0),
        "best": pytest.approx((1.5 * 0.75 * 2) ** (1 / 3)),
    }
    assert means["inference"] == {"torch": pytest.approx(2.0), "best": pytest.approx(0.8)}


def test_the_text_has_everything(report: Report) -> None:
    lines = text(report).splitlines()
    assert "A processor, 2 cores; 2 threads; float32 at most 400 GF/s; memory is read at 50 GB/s; load 0.0 at the start" in lines
    assert "peer jax: not here" in lines
    lstm = next(line for line in lines if line.startswith("lstm 28x200"))
    figures = "40.000 40.000 - 40.000 1428.6 200.0 0.67 0.50 - 60.000 1.50 - - - - 1.50"
    assert lstm.split() == ["lstm", "28x200x28x256", "training", *figures.split()]
    assert next(line for line in lines if line.startswith("gru 100x1")).split()[-1] == "WRONG"
    assert "WRONG gru 100x1x256x256 inference: output differs from torch's by 5.0e-01" in lines
    assert "  gru: cold compile 1.500 s, should be at most 0.500 s" in lines


def test_the_data_have_everything(report: Report) -> None:
    found = data(report)
    first = ["date", "machine", "versions", "settings", "arithmetic_gflops", "memory_gigabytes_per_second"]
    first += ["picoseconds_of_an_element", "missing_peers", "rows"]
    assert list(found) == [*first, "geometric_means", "compile_seconds", "memory_bytes", "proofs", "failures", "below_target"]
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
