"""Learning curves with their bands, and final figures with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from anyrnn._files import written_aside
from anyrnn.compare.statistics import estimate
from anyrnn.compare.training import Run
from anyrnn.train.pictures import figure, plain

CURVES, FINAL = "curves", "final"
KINDS = ("svg", "png")
STYLES = ("-", "--", ":", "-.")


def save(folder: Path, summary: Mapping[str, Any], runs: Sequence[Run]) -> list[str]:
    """Both pictures, each as SVG and PNG; the names of the files."""
    drawings: dict[str, Callable[[], Figure]] = {
        CURVES: lambda: curves_picture(summary, runs),
        FINAL: lambda: final_picture(summary),
    }
    names = []
    for name, draw in drawings.items():
        drawn = draw()
        for kind in KINDS:
            with written_aside(folder / f"{name}.{kind}") as aside, rc_context({"svg.hashsalt": name}):
                drawn.savefig(aside, format=kind, metadata={"Date": None} if kind == "svg" else None)
            names.append(f"{name}.{kind}")
    return names


def curves_picture(summary: Mapping[str, Any], runs: Sequence[Run]) -> Figure:
    """What was measured on data to choose by at each validation: the mean of the runs that got so far, in the band of its 95 %
    interval. `runs` are those that are reported.
    """
    drawn = figure((7, 4.5))
    axes = drawn.subplots()
    for place, cell in enumerate(summary["cells"]):
        curve = curve_of([run for run in runs if run.plan.cell == cell["cell"]])
        if not curve:
            continue
        steps, means, halves = (np.array(column) for column in zip(*curve, strict=True))
        style: dict[str, Any] = {"color": f"C{place % 10}", "linestyle": STYLES[place // 10 % len(STYLES)]}
        axes.plot(steps, means, marker=".", label=_named(cell), **style)
        axes.fill_between(steps, means - halves, means + halves, color=style["color"], alpha=0.15, linewidth=0)
    _guess(axes.axhline, summary)
    axes.set(xlabel="training step", ylabel=_label(summary).replace("test", "validation", 1), title=summary["task"])
    axes.legend(frameon=False, fontsize="small")
    axes.grid(alpha=0.3)
    return drawn


def curve_of(runs: Sequence[Run]) -> list[tuple[int, float, float]]:
    """Step, mean and half of the interval, 0 where one run alone got so far."""
    by_step: dict[int, list[float]] = {}
    for run in runs:
        for validation in run.validations:
            by_step.setdefault(validation["step"], []).append(validation["figure"])
    found = [(step, estimate(figures)) for step, figures in sorted(by_step.items())]
    return [(step, one.mean, one.half or 0.0) for step, one in found]


def final_picture(summary: Mapping[str, Any]) -> Figure:
    """What was measured in the tests: each run a point, each cell's mean with its 95 % interval."""
    cells = summary["cells"]
    drawn = figure((7, 1.2 + 0.4 * len(cells)))
    axes = drawn.subplots()
    for place, cell in enumerate(cells):
        figures = [value for value in cell["figures"] if value is not None]
        axes.plot(figures, [place + 0.15] * len(figures), ".", color=f"C{place % 10}", alpha=0.5)
        if cell["mean"] is not None:
            axes.errorbar(cell["mean"], place, xerr=cell["half"], fmt="o", capsize=3, color=f"C{place % 10}")
    _guess(axes.axvline, summary)
    axes.set_yticks(range(len(cells)), [_named(cell) for cell in cells])
    axes.set_ylim(len(cells) - 0.5, -0.5)
    axes.set(xlabel=_label(summary), title=summary["task"])
    axes.grid(alpha=0.3, axis="x")
    return drawn


def _guess(line: Callable[..., Any], summary: Mapping[str, Any]) -> None:
    """Where nothing is learned of the input; left out of accuracies, which it would press into a corner."""
    if summary["guess"] is not None and not summary["higher_is_better"]:
        line(summary["guess"], color="black", linewidth=0.8, linestyle=":", label=f"without learning: {summary['guessing']}")


def _label(summary: Mapping[str, Any]) -> str:
    return f"{summary['measure']}, {summary['unit']}" if summary["unit"] else str(summary["measure"])


def _named(cell: Mapping[str, Any]) -> str:
    name = plain(cell["cell"])
    if name.startswith("_"):
        name = f" {name}"  # legends leave out what begins with an underscore
    return f"{name} ({cell['diverged']} diverged)" if cell["diverged"] else name
