"""The learning curve and the confusion matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from anyrnn.datasets import Dataset
from anyrnn.train.record import Record

SMOOTHING = 50


def learning_picture(record: Record, title: str) -> Figure:
    """Training loss at every step above, held-out accuracy at every evaluation below."""
    drawn = figure((7, 6))
    above, below = drawn.subplots(2, 1, sharex=True)
    steps = np.arange(1, len(record.losses) + 1)
    losses = np.asarray(record.losses)
    above.plot(steps, losses, color="tab:blue", alpha=0.3, linewidth=0.8, label="each batch")
    window = min(SMOOTHING, len(losses))
    smooth = np.convolve(losses, np.full(window, 1 / window), mode="valid")
    above.plot(steps[window - 1 :], smooth, color="tab:blue", label=f"mean of {window}")
    if losses.min() > 0:
        above.set_yscale("log")
    above.set(ylabel="training loss (cross-entropy)", title=plain(title))
    above.legend(frameon=False)
    accuracies = [evaluation.accuracy for evaluation in record.evaluations]
    last = f"{accuracies[-1]:.2%} at the end"
    below.plot([evaluation.step for evaluation in record.evaluations], accuracies, marker="o", color="tab:orange", label=last)
    below.legend(frameon=False, loc="lower right")
    below.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    below.set(xlabel="training step", ylabel="held-out accuracy")
    for axes in (above, below):
        axes.grid(alpha=0.3)
    return drawn


def confusion_picture(confusion: np.ndarray[Any, Any], title: str, dataset: Dataset) -> Figure:
    """Rows are the true classes, columns the classes read; the colour is the share of the row."""
    drawn = figure((6, 6))
    axes = drawn.subplots()
    classes = len(confusion)
    shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    axes.imshow(np.sqrt(shares), cmap="Blues", vmin=0, vmax=1)  # the root, so that rare mistakes can be seen
    for row, column in zip(*np.nonzero(confusion), strict=True):
        colour = "white" if shares[row, column] > 0.3 else "black"
        axes.text(column, row, str(confusion[row, column]), ha="center", va="center", color=colour, fontsize=9)
    right = int(np.trace(confusion))
    total = int(confusion.sum())
    axes.set(
        xticks=range(classes),
        yticks=range(classes),
        xlabel="read as",
        ylabel=dataset.label,
        title=f"{plain(title)}\n{right} of {total} held-out {dataset.of} right ({right / total:.2%})",
    )
    return drawn


def plain(text: str) -> str:
    """Text that is drawn as it stands: what is between two dollars would be a formula."""
    return text.replace("$", r"\$")


def figure(size: tuple[float, float]) -> Figure:
    """A figure that belongs to nobody: pyplot keeps global state, this does not."""
    empty = Figure(figsize=size, dpi=120, layout="constrained")
    FigureCanvasAgg(empty)
    return empty
