"""Does the model choose well between samples and columns? Both are measured, on the shapes of the benchmarks with fewer steps."""

from __future__ import annotations

import time

import numpy as np
import pytest

from anyrnn import Recurrent
from anyrnn.backends.llvm import run, split, threads
from benchmarks.suite import Row, rows_of

STEPS = 20
LEAST_SECONDS = 0.02
"""Of a measurement, since the first calls are slower: of the smallest rows it takes twenty."""
SHAPES = sorted({(row.cell, row.samples, row.features, row.hidden) for row in rows_of("all") if row.samples > 1})


def seconds(layer: Recurrent, x: np.ndarray, calls: int) -> float:
    """The best of a few training steps' forward passes: what disturbs them only adds."""
    times: list[float] = []
    while len(times) < calls or sum(times) < LEAST_SECONDS:
        start = time.perf_counter()
        layer.forward_training(x)
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.skipif(threads._count()[0] < 2, reason="with one thread there is nothing to choose")
@pytest.mark.parametrize(("cell", "rows", "features", "hidden"), SHAPES)
def test_the_choice_is_within_a_tenth_of_the_better(
    cell: str, rows: int, features: int, hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = Recurrent(cell, features, hidden, seed=0, backend="llvm")
    x = np.random.default_rng(0).standard_normal((STEPS, rows, features), np.float32)
    chosen = split.splits_columns
    best = {"chosen": np.inf, "columns": np.inf, "samples": np.inf}
    ways = {"chosen": chosen, "columns": lambda *_: True, "samples": lambda *_: False}
    for attempt in range(6):
        for name, way in ways.items():
            monkeypatch.setattr(split, "splits_columns", way)
            run.POOLS.known.clear()
            layer.forward_training(x)
            best[name] = min(best[name], seconds(layer, x, 2 + attempt))
        if best["chosen"] <= 1.1 * min(best["columns"], best["samples"]):
            return
    pytest.fail(f"{Row(cell, STEPS, rows, features, hidden).name}: {best}")
