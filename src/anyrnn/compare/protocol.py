"""What is decided before the first run of a comparison."""

from __future__ import annotations

from typing import Any

from anyrnn.compare.examples import Task
from anyrnn.compare.options import Options
from anyrnn.compare.training import validation_every


def protocol(options: Options, task: Task) -> dict[str, Any]:
    """It in words and numbers: what runs must have in common to be told of in one table."""
    several = len(options.learning_rates) > 1
    seen = "its last output" if task.head == "last" else "each of its outputs"
    return {
        "task": task.name,
        "length": options.length,
        "hidden": options.hidden,
        "equal": options.equal,
        "sizes": dict(options.sizes),
        "seeds": list(range(options.seeds)),
        "steps": options.steps,
        "batch": options.batch,
        "learning_rates": list(options.learning_rates),
        "tuning_seeds": list(options.tuning),
        "clip": options.clip,
        "validated_every": validation_every(options.steps),
        "network": f"one layer of the cell in one direction and a linear layer that sees {seen}; a cell whose input has the size "
        "of its state gets a linear layer before it; initial values are the cell's own or uniform within 1 / sqrt(H)",
        "training": "Adam (0.9, 0.999) at a constant rate, in float32; a seed gives the initial values, and the same batches to "
        "all cells; gradients are scaled down to the norm `clip`, if that is not 0",
        "rate": "for each cell, of `learning_rates` the one with the best mean over `tuning_seeds` of a run's best validation; "
        "those runs are not tested"
        if several
        else "fixed",
        "figure": f"{task.measure.name} of the weights of the best validation, tested once in each run; a run whose loss is not "
        "finite has diverged, is counted and has no figure",
        "statistics": "mean and 95 % interval over seeds by Student's t; differences by the paired t-test, with Holm's "
        "correction for all pairs",
        "about": task.about,
        "data": task.digest,
    }
