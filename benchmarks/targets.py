"""What the figures should be, as data, and which are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.measure import geometric_mean
from benchmarks.result import FEW_SAMPLES, Ceilings, Result, middle
from benchmarks.suite import DIGITS, TORCH_CELLS


@dataclass(frozen=True)
class Run:
    """All that targets look at."""

    results: Sequence[Result]
    ceilings: Ceilings
    threads: int
    second_cache_bytes: int
    """Of one core."""


Figure = Callable[[Result, Run], float | None]
Rows = Callable[[Result, Run], bool]


@dataclass(frozen=True)
class Target:
    """The least that a figure should be, in the rows that it is for."""

    what: str
    rows: Rows
    figure: Figure
    least: float
    why: Callable[[Result, Run], str] = lambda result, run: ""
    """What is told of a miss beside its figure."""


def to_best(result: Result, run: Run) -> float | None:
    return result.ratio_to_best


def to(peer: str) -> Figure:
    return lambda result, run: result.ratios.get(peer)


def of_peak(result: Result, run: Run) -> float | None:
    return result.peak_fraction


def of_reading(result: Result, run: Run) -> float | None:
    """Of the rate at which the very arrays are read: which cache holds them is the same for both."""
    return result.bandwidth_fraction


def parts_of_time(result: Result, run: Run) -> str:
    """How much of its time the parts are. What a row is held against is arithmetic, or sequences where they take longer."""
    rate, input_rate = middle(result.lstm_rates), middle(result.input_rates)
    if not rate or not run.ceilings.memory or not result.seconds:
        return ""
    products, others, arrays = (part / result.seconds for part in _parts(result, run.ceilings, rate))
    told, rest = f"products {products:.2f}", max(0.0, 1 - products - others - arrays)
    if input_rate:
        by_torch = ((result.flops - result.input_flops) / rate + result.input_flops / input_rate) / result.seconds
        told += f" ({by_torch:.2f} with the input's as torch has them)"
    return f"; of its time: {told}, other arithmetic {others:.2f}, sequences {arrays:.2f}, all else {rest:.2f}"


def share_of_machine(peer: str) -> Callable[[Result, Run], str]:
    """How much of the machine's arithmetic both sides use: where the peer leaves little unused, a ratio cannot be large."""

    def told(result: Result, run: Run) -> str:
        timing, ours = result.timings.get(peer), result.arithmetic_fraction(run.ceilings)
        if timing is None or ours is None or run.ceilings.arithmetic is None:
            return ""
        used = result.flops / timing.median / run.ceilings.arithmetic
        share = f"{used:.2f} of this machine's arithmetic, which leaves {1 / used:.2f} at the most"
        return f"; {peer} runs at {share}; ours at {ours:.2f}"

    return told


def of_bound(result: Result, run: Run) -> float | None:
    """Of the time of its products at an LSTM's rate and of its other arithmetic at the machine's, or of the memory's where arrays
    take longer.
    """
    if not result.lstm_rates or not run.ceilings.memory:
        return None

    def fraction(seconds: float, rate: float) -> float:
        products, others, arrays = _parts(result, run.ceilings, rate)
        return max(products + others, arrays) / seconds

    return middle(map(fraction, result.seconds_of_rounds, result.lstm_rates))


def _parts(result: Result, ceilings: Ceilings, rate: float) -> tuple[float, float, float]:
    """The least seconds of products at a rate, of other arithmetic, of reading and writing sequences."""
    arrays = result.array_bytes / ceilings.memory if ceilings.memory else 0.0
    return result.flops / rate, ceilings.pointwise(result.elements), arrays


def is_standard(result: Result, mode: str) -> bool:
    return result.row.cell in TORCH_CELLS and result.row.mode == mode


def is_single(result: Result) -> bool:
    return result.row.steps == result.row.samples == 1


def standard(mode: str, single: bool = False) -> Rows:
    """The cells that torch.nn has, with one step of one sample, or with more."""
    return lambda result, run: is_standard(result, mode) and is_single(result) == single


def filling(mode: str) -> Rows:
    """Enough samples and features for the arithmetic to be what takes long."""
    return lambda result, run: is_standard(result, mode) and result.row.samples >= 32 and result.row.hidden >= 256


def reads_weights(result: Result, run: Run) -> bool:
    """Few samples, and weights that do not stay beside the cores."""
    row, beside = result.row, run.second_cache_bytes * run.threads
    return row.mode == "inference" and row.steps > 1 and row.samples <= FEW_SAMPLES and result.step_bytes > beside


def lstm_stream(mode: str, alone: bool | None = None) -> Rows:
    """The LSTM whose single steps are held against onnxruntime's; `alone` says with one thread, or with more."""

    def chosen(result: Result, run: Run) -> bool:
        row = result.row
        fits = alone is None or alone == (run.threads == 1)
        return fits and (row.cell, row.shape, row.mode) == ("lstm", (1, 1, 256, 256), mode)

    return chosen


def other_stream(result: Result, run: Run) -> bool:
    """Any but the LSTM's that has a target of its own."""
    return result.row.mode == "streaming" and not lstm_stream("streaming")(result, run)


def own(result: Result, run: Run) -> bool:
    return result.row.cell not in TORCH_CELLS


def own_training(samples: int) -> Rows:
    return lambda result, run: own(result, run) and result.row.samples == samples and result.row.mode == "training"


TARGETS = (
    Target("ratio to the best", standard("inference"), to_best, 0.95),
    Target("ratio to torch", standard("inference", single=True), to("torch"), 0.95),
    Target("ratio to the best", standard("training"), to_best, 1.0),
    Target("peak fraction", filling("inference"), of_peak, 0.85),
    Target("peak fraction", filling("training"), of_peak, 0.80),
    Target("fraction of the rate at which weights are read", reads_weights, of_reading, 0.85),
    Target("ratio to onnxruntime", other_stream, to("onnxruntime"), 0.95),
    Target("ratio to onnxruntime", lstm_stream("streaming", alone=False), to("onnxruntime"), 2.0),
    Target("ratio to onnxruntime", lstm_stream("streaming", alone=True), to("onnxruntime"), 1.0),
    Target("ratio to onnxruntime", lstm_stream("paced"), to("onnxruntime"), 1.0),
    Target("share of an LSTM's rate, or of the memory's", own, of_bound, 1 / 1.3, parts_of_time),
    Target("ratio to equations", own_training(200), to("equations"), 3.0, share_of_machine("equations")),
    Target("ratio to torch.compile", own_training(200), to("torch.compile"), 2.0, share_of_machine("torch.compile")),
    Target("ratio to equations", own_training(1), to("equations"), 10.0),
    Target("ratio to torch.compile", own_training(1), to("torch.compile"), 5.0),
)
MEANS, LEAST_ROWS = {"inference": 1.3, "training": 1.8}, 5
"""Geometric means of the ratios to the best, over the rows of cells that torch.nn has; of how many rows it says something."""
ZOO_MEAN = 5.0
"""The same to torchrecurrent, of training the cells that torch.nn does not have on digits row by row."""
COLD_SECONDS, CACHED_SECONDS = 0.5, 0.02
"""The most that one cell should take, forward and backward, with nothing on disk and with everything."""


def missed(run: Run, compiles: Mapping[str, tuple[float, float]]) -> list[str]:
    """A line for every target of the rows measured that was missed. A figure that was not asked for is not missed."""
    return [*_rows(run), *_means(run), *_compiles(compiles)]


def figures(run: Run) -> Iterator[tuple[Target, Result, float]]:
    """The figure of every target and row that it is for."""
    for target in TARGETS:
        for result in run.results:
            if result.status == "ok" and target.rows(result, run):
                value = target.figure(result, run)
                if value is not None:
                    yield target, result, value


def _rows(run: Run) -> Iterator[str]:
    for target, result, value in figures(run):
        if value >= target.least:
            continue
        why = target.why(result, run)
        yield f"{result.row.name}: {target.what} {value:.2f}, should be at least {target.least:.2f}{why}"


def _means(run: Run) -> Iterator[str]:
    for mode, least in MEANS.items():
        rows = [r for r in run.results if r.status == "ok" and is_standard(r, mode) and not is_single(r)]
        ratios = [r.ratio_to_best for r in rows if r.ratio_to_best is not None]
        mean = geometric_mean(ratios)
        if len(ratios) >= LEAST_ROWS and mean is not None and mean < least:
            yield f"{mode}: geometric mean of the ratios to the best {mean:.2f}, should be at least {least:.2f}"
    yield from _zoo_mean(run)


def _zoo_mean(run: Run) -> Iterator[str]:
    peer, arithmetic = "torchrecurrent", run.ceilings.arithmetic
    rows = [r for r in run.results if r.row.shape == DIGITS and r.row.mode == "training" and own(r, run) and peer in r.ratios]
    mean = geometric_mean([r.ratios[peer] for r in rows])
    if len(rows) < LEAST_ROWS or mean is None or mean >= ZOO_MEAN:
        return
    used = geometric_mean([r.flops / r.timings[peer].median / arithmetic for r in rows if r.flops]) if arithmetic else None
    share = f"; {peer} runs at {used:.2f} of this machine's arithmetic, which leaves {1 / used:.2f} at the most" if used else ""
    what = f"training at {'x'.join(map(str, DIGITS))}: geometric mean of the ratios to {peer}"
    yield f"{what} {mean:.2f}, should be at least {ZOO_MEAN:.2f}{share}"


def _compiles(compiles: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    for cell, seconds in compiles.items():
        for what, found, most in zip(("cold", "cached"), seconds, (COLD_SECONDS, CACHED_SECONDS), strict=True):
            if found > most:
                yield f"{cell}: {what} compile {found:.3f} s, should be at most {most:.3f} s"
