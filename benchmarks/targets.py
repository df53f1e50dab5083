"""What the figures should be, as data, and which are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.measure import geometric_mean
from benchmarks.result import FEW_SAMPLES, Ceilings, Result
from benchmarks.suite import CUSTOM, WITH_RELU, Row


@dataclass(frozen=True)
class Run:
    """All that targets look at."""

    results: Sequence[Result]
    ceilings: Ceilings
    threads: int = 2
    second_cache_bytes: int = 2**20
    """Of one core."""

    def lstm_like(self, row: Row) -> Result | None:
        """The result of an LSTM of a row's sizes."""
        for found in self.results:
            if found.row.cell == "lstm" and (found.row.shape, found.row.mode, found.row.loss) == (row.shape, row.mode, row.loss):
                return found if found.status == "ok" else None
        return None


Figure = Callable[[Result, Run], float | None]


@dataclass(frozen=True)
class Target:
    """The least that a figure should be, in the rows that it is for."""

    what: str
    rows: Callable[[Row, Run], bool]
    figure: Figure
    least: float
    explained: bool = False
    """Whether a miss is told with the shares of the machine's arithmetic that both sides use."""


def to_best(result: Result, run: Run) -> float | None:
    return result.ratio_to_best


def to(peer: str) -> Figure:
    return lambda result, run: result.ratios.get(peer)


def of_peak(result: Result, run: Run) -> float | None:
    return result.peak_fraction(run.ceilings)


def of_reading(result: Result, run: Run) -> float | None:
    return result.bandwidth_fraction(run.ceilings)


def of_bound(result: Result, run: Run) -> float | None:
    """Of an LSTM's rate, or of the memory's where arrays take longer than products."""
    lstm, read = run.lstm_like(result.row), max(run.ceilings.reads.values(), default=None)
    if lstm is None or not lstm.rate or not result.seconds:
        return None
    return max(result.flops / lstm.rate, result.array_bytes / read if read else 0.0) / result.seconds


def is_standard(row: Row, mode: str) -> bool:
    return row.cell in WITH_RELU and row.mode == mode


def fills(row: Row, mode: str) -> bool:
    return is_standard(row, mode) and row.samples >= 32 and row.hidden >= 256


def is_single(row: Row) -> bool:
    return row.steps == row.samples == 1


def reads_weights(row: Row, run: Run) -> bool:
    """Few samples, and weights that do not stay beside the cores."""
    result = next(r for r in run.results if r.row == row)
    beside = run.second_cache_bytes * run.threads
    return row.mode == "inference" and row.steps > 1 and row.samples <= FEW_SAMPLES and result.step_bytes > beside


def streams_lstm(row: Row, mode: str) -> bool:
    return (row.cell, row.shape, row.mode) == ("lstm", (1, 1, 256, 256), mode)


def own(row: Row, samples: int) -> bool:
    return row.cell in CUSTOM and row.samples == samples


def own_training(samples: int) -> Callable[[Row, Run], bool]:
    return lambda row, run: own(row, samples) and row.mode == "training"


TARGETS = (
    Target("ratio to the best", lambda row, run: is_standard(row, "inference") and not is_single(row), to_best, 0.95),
    Target("ratio to torch", lambda row, run: is_standard(row, "inference") and is_single(row), to("torch"), 0.95),
    Target("ratio to the best", lambda row, run: is_standard(row, "training"), to_best, 1.0),
    Target("peak fraction", lambda row, run: fills(row, "inference"), of_peak, 0.85),
    Target("peak fraction", lambda row, run: fills(row, "training"), of_peak, 0.80),
    Target("fraction of reading", reads_weights, of_reading, 0.85),
    Target("ratio to onnxruntime", lambda row, run: streams_lstm(row, "streaming") and run.threads > 1, to("onnxruntime"), 2.0),
    Target("ratio to onnxruntime", lambda row, run: streams_lstm(row, "streaming") and run.threads == 1, to("onnxruntime"), 1.0),
    Target("ratio to onnxruntime", lambda row, run: streams_lstm(row, "paced"), to("onnxruntime"), 1.0),
    Target("share of an LSTM's rate, or of the memory's", lambda row, run: row.cell in CUSTOM, of_bound, 1 / 1.3),
    Target("ratio to equations", own_training(200), to("equations"), 3.0, explained=True),
    Target("ratio to torch.compile", own_training(200), to("torch.compile"), 2.0, explained=True),
    Target("ratio to equations", own_training(1), to("equations"), 10.0),
    Target("ratio to torch.compile", own_training(1), to("torch.compile"), 5.0),
)
MEANS = {"inference": 1.3, "training": 1.8}
"""Geometric means of the ratios to the best, over the rows of cells that torch.nn has."""
COLD_SECONDS, CACHED_SECONDS = 0.5, 0.02
"""The most that one cell should take, forward and backward, with nothing on disk and with everything."""


def missed(run: Run, compiles: Mapping[str, tuple[float, float]]) -> list[str]:
    """A line for every target of the rows measured that was missed. A figure that was not asked for is not missed."""
    return [*_rows(run), *_means(run), *_compiles(compiles)]


def _rows(run: Run) -> Iterator[str]:
    for target in TARGETS:
        for result in run.results:
            if result.status != "ok" or not target.rows(result.row, run):
                continue
            value = target.figure(result, run)
            if value is not None and value < target.least:
                why = _shares(result, target.what.removeprefix("ratio to "), run.ceilings) if target.explained else ""
                yield f"{result.row.name}: {target.what} {value:.2f}, should be at least {target.least:.2f}{why}"


def _means(run: Run) -> Iterator[str]:
    for mode, least in MEANS.items():
        rows = [r for r in run.results if r.status == "ok" and is_standard(r.row, mode) and not is_single(r.row)]
        mean = geometric_mean([r.ratio_to_best for r in rows if r.ratio_to_best is not None])
        if mean is not None and mean < least:
            yield f"{mode}: geometric mean of the ratios to the best {mean:.2f}, should be at least {least:.2f}"


def _compiles(compiles: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    for cell, seconds in compiles.items():
        for what, found, most in zip(("cold", "cached"), seconds, (COLD_SECONDS, CACHED_SECONDS), strict=True):
            if found > most:
                yield f"{cell}: {what} compile {found:.3f} s, should be at most {most:.3f} s"


def _shares(result: Result, peer: str, ceilings: Ceilings) -> str:
    """How much of the machine both use: where the peer leaves little unused, a ratio cannot be large."""
    timing, ours = result.timings.get(peer), result.arithmetic_fraction(ceilings)
    if timing is None or ours is None or ceilings.arithmetic is None:
        return ""
    used = result.flops / timing.median / ceilings.arithmetic
    share = f"{used:.2f} of this machine's arithmetic, which leaves {1 / used:.2f} at the most"
    return f"; {peer} runs at {share}; ours at {ours:.2f}"
