"""Cells compared under one protocol: the same network, batches, steps and optimiser around each, several seeds, and intervals.

options -> tasks, contenders -> protocol, record -> schedule, training -> statistics, summary -> table, pictures
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from anyrnn.compare.options import TaskName, make
from anyrnn.compare.program import Comparison as Comparison
from anyrnn.trace import Cell


def run(
    cells: str | Sequence[Cell | str],
    task: TaskName,
    *,
    output: str | os.PathLike[str] | None = None,
    seeds: int = 5,
    data: str | os.PathLike[str] | None = None,
    hidden: int | None = None,
    equal: Literal["hidden", "parameters"] = "hidden",
    batch: int | None = None,
    steps: int | None = None,
    length: int | None = None,
    learning_rate: float | Sequence[float] | None = None,
    tuning_seeds: int = 2,
    clip: float = 1.0,
    threads: int | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Comparison:
    """Train cells on a task under one protocol, and say how they differ.

    A network is one layer of a cell and a linear layer on its output. Adam trains it on batches that are the same for all cells
    at a seed. The weights of the best validation are tested, once a run. Where several learning rates are given each cell gets
    the one with the best mean validation over seeds of their own. What is decided beforehand stands in `results.json`, beside
    the runs.

    Args:
        cells: what `anyrnn.cells.load` takes, or text with commas between names; commas within parentheses belong to a cell.
        task: `digits` (T = 8 rows of D = 8 pixels), `mnist` (28 rows of 28), `pixels` (784 of one pixel, in one random order for
            all), `vowels` (7 to 29 steps of 12 numbers), of which test accuracy is reported in percent; `adding` (mean squared
            error), `copy` (cross-entropy in nats), `chars` (bits per character).
        output: the folder for `results.json`, `table.md`, `table.csv` and pictures. Runs that are there already are not made
            again, so that the same call goes on where one stopped. Default: `runs/compare-TASK`.
        seeds: N runs of each cell, with the seeds 0 to N - 1. One tells no interval.
        data: the folder of the files of mnist, pixels, vowels and chars.
        hidden: H, features of the state.
        equal: `hidden` for the same H; `parameters` for the H with which the number of trained parameters of the network is
            nearest to that of one around an LSTM with `hidden` features.
        batch: sequences in a training step.
        steps: training steps of a run, with a validation after each tenth.
        length: T of adding and chars; of copy the steps to wait, with T = length + 20.
        learning_rate: one, or those to choose from. Default: 0.001, 0.003 and 0.01.
        tuning_seeds: runs by which the rate is chosen, for each rate, with the seeds from 10000 on.
        clip: largest norm of the gradient, 0 for any.
        threads: CPU threads. Default: torch's choice.
        sizes: named sizes of cells beside input and hidden; half of H by default.

    Returns: a Comparison, which prints as a table. Its `summary` holds `cells` (each with `hidden`, `parameters`,
    `learning_rate`, `figures` by seed, None of runs that diverged, `mean`, `interval` of 95 %, `deviation`, `diverged`,
    `differs_from`, `steps_per_second`, `seconds` of training in a run) and `pairs` (`difference`, `half` of its interval, `p`,
    `corrected_p` by Holm, `differ`).

    Raises, before any work: UsageError (of `anyrnn.train.errors`) for what cannot be done, in the words of the command line, and
    for a folder that holds another protocol; MissingExtraError for a library that is not installed. While it works:
    KeyboardInterrupt when Ctrl-C has stopped it after a training step, with the runs that had ended in the folder.

    Sources: Student 1908, The Probable Error of a Mean; Holm 1979, A Simple Sequentially Rejective Multiple Test Procedure.

    Example:
        >>> import tempfile
        >>> import anyrnn.compare
        >>> found = anyrnn.compare.run(
        ...     "gru,indrnn", "adding", seeds=2, steps=20, hidden=8, length=10, learning_rate=0.01, output=tempfile.mkdtemp()
        ... )
        >>> [(cell["cell"], cell["parameters"], len(cell["figures"])) for cell in found.summary["cells"]]
        [('gru', 297, 2), ('indrnn', 41, 2)]
    """
    from anyrnn.compare import program

    options = make(
        cells,
        task,
        output=None if output is None else Path(output),
        seeds=seeds,
        data=data,
        hidden=hidden,
        equal=equal,
        batch=batch,
        steps=steps,
        length=length,
        learning_rate=learning_rate,
        tuning_seeds=tuning_seeds,
        clip=clip,
        threads=threads,
        sizes=sizes,
    )
    return program.run(options)
