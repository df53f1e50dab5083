"""What the figures should be, as data, and which are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.result import Ceilings, Result
from benchmarks.suite import DIGITS, ONE_SAMPLE, STANDARD, Mode

PEAK = "peak fraction"


@dataclass(frozen=True)
class Target:
    """The least that a figure should be in rows of these cells, of a shape and a mode.

    A figure is the name of a peer, for the ratio of its time to ours, or PEAK.
    """

    cells: tuple[str, ...]
    shape: tuple[int, int, int, int]
    mode: Mode
    figure: str
    least: float


TARGETS = (
    Target(STANDARD, DIGITS, "training", "torch", 1.3),
    Target(STANDARD, DIGITS, "inference", "torch", 1.0),
    Target(("lstm",), DIGITS, "training", PEAK, 0.60),
    Target(("lstm",), DIGITS, "inference", PEAK, 0.70),
    Target(STANDARD, ONE_SAMPLE, "training", "torch", 1.0),
    Target(STANDARD, ONE_SAMPLE, "inference", "torch", 1.0),
    *(
        Target(("lstm_layernorm", "gru_before"), DIGITS, mode, peer, least)
        for mode, least in (("training", 3.0), ("inference", 1.8))
        for peer in ("equations", "eager")  # as the cell's equations stand, and as a loop written for speed
    ),
)
COLD_COMPILE_SECONDS = 1.0
"""The most that any cell should take, forward and backward."""


def missed(results: Sequence[Result], ceilings: Ceilings, cold: Mapping[str, float]) -> list[str]:
    """A line for every target of the rows measured that was missed, or could not be looked at."""
    lines = []
    for target in TARGETS:
        for result in results:
            row = result.row
            if row.cell not in target.cells or (row.shape, row.mode, row.loss, row.layers) != (
                target.shape,
                target.mode,
                "all",
                1,
            ):
                continue
            what = PEAK if target.figure == PEAK else f"ratio to {target.figure}"
            value = result.peak_fraction(ceilings) if target.figure == PEAK else result.ratios.get(target.figure)
            if value is None:
                lines.append(f"{row.name}: {what} was not measured, should be at least {target.least:.2f}")
            elif value < target.least:
                lines.append(
                    f"{row.name}: {what} {value:.2f}, should be at least {target.least:.2f}{_bound(result, target, ceilings)}"
                )
    lines += [
        f"{cell}: cold compile {seconds:.2f} s, should be at most {COLD_COMPILE_SECONDS:.2f} s"
        for cell, seconds in cold.items()
        if seconds > COLD_COMPILE_SECONDS
    ]
    return lines


def _bound(result: Result, target: Target, ceilings: Ceilings) -> str:
    """How much of the machine both use: where the peer leaves little unused, a ratio cannot be large."""
    timing, ours = result.timings.get(target.figure), result.peak_fraction(ceilings)
    if timing is None or ours is None or ceilings.arithmetic is None:
        return ""
    used = result.flops / timing.median / ceilings.arithmetic
    share = f"{used:.2f} of this machine's arithmetic, which leaves {1 / used:.2f} at the most"
    return f"; {target.figure} runs at {share}; ours at {ours:.2f}"
