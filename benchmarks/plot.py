"""A run as a picture: how many times as fast as each peer, and which part of the machine's rate, row by row."""

from __future__ import annotations

from pathlib import Path

from anyrnn._files import written_aside
from benchmarks.report import Report

ROW_INCHES, LEAST_INCHES = 0.2, 3.0


def plot(report: Report, file: Path) -> None:
    """Write a picture; its ending says which kind. Raises: ValueError for a kind that matplotlib does not know."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot, ticker

    results = [r for r in report.results if r.status == "ok"]
    names = [r.row.name for r in results]
    height = max(LEAST_INCHES, 1.5 + ROW_INCHES * len(results))
    figure, (left, right) = pyplot.subplots(1, 2, sharey=True, figsize=(14, height), layout="constrained")
    for peer in report.settings.peers:
        points = [(r.ratios[peer], k) for k, r in enumerate(results) if peer in r.ratios]
        if points:
            left.plot([x for x, _ in points], [y for _, y in points], "o", markersize=4, label=peer)
    left.axvline(1.0, color="black", linewidth=0.8)
    left.set_xscale("log", base=2)
    left.xaxis.set_major_formatter(ticker.ScalarFormatter())
    left.set_xlabel("times as fast as the peer")
    left.set_yticks(range(len(names)), names, fontsize=6)
    left.invert_yaxis()
    for label, fractions in (
        ("of a library's large product", [r.peak_fraction for r in results]),
        ("of reading the weights", [r.bandwidth_fraction for r in results]),
    ):
        points = [(x, k) for k, x in enumerate(fractions) if x is not None]
        if points:
            right.plot([x for x, _ in points], [y for _, y in points], "o", markersize=4, label=label)
    right.axvline(1.0, color="black", linewidth=0.8)
    right.set_xlim(left=0)
    right.set_xlabel("part of what the machine allows")
    for axes in (left, right):
        axes.grid(visible=True, linewidth=0.3)
        if axes.has_data():
            axes.legend(fontsize=7)
    figure.suptitle(f"{report.machine['cpu']}, {report.settings.threads} threads, {report.settings.dtype}", fontsize=9)
    with written_aside(file) as aside:
        figure.savefig(aside, format=file.suffix.removeprefix(".") or "png", dpi=120)
    pyplot.close(figure)
