"""The training loop and the evaluation on what is held out."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from anyrnn.datasets import Dataset, Sequences
from anyrnn.train.checkpoint import Checkpoint, Checkpoints
from anyrnn.train.errors import DivergedError
from anyrnn.train.model import Reader
from anyrnn.train.options import Options
from anyrnn.train.processes import ALONE, Processes
from anyrnn.train.record import Evaluation, Record

EVALUATIONS = 10
EVALUATION_BATCH = 1000


def learning_rate(initial: float, step: int) -> float:
    """The rate at a step counted from 0: `initial * (1 + 1e-4 * step) ** -0.85`."""
    return float(initial * (1 + 1e-4 * step) ** -0.85)


def batches(count: int, size: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Endless batches of indices, int64 [size]: all `count` sequences in random order, then all in another order, and so on.

    A batch may hold the end of one order and the beginning of the next. Depends on the arguments alone.
    """
    generator = np.random.default_rng(seed)
    waiting = np.empty(0, dtype=np.int64)
    while True:
        while len(waiting) < size:
            waiting = np.concatenate([waiting, generator.permutation(count)])
        yield waiting[:size]
        waiting = waiting[size:]


def train(
    model: Reader,
    dataset: Dataset,
    options: Options,
    stop: Callable[[], bool],
    checkpoints: Checkpoints,
    processes: Processes = ALONE,
    before: Checkpoint | None = None,
) -> Record:
    """Train by Adam on the cross-entropy, from a checkpoint on if there is one, evaluating and saving checkpoints now and then on
    the way and one at the end; `stop` is asked at each step, for after it. Several processes take their parts of
    each batch, and the first evaluates and saves.

    Raises: DivergedError as soon as a loss is not finite, before it reaches the weights.
    """
    optimiser = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    record = Record() if before is None else before.restore(model, optimiser)
    together = processes.together(model)
    inputs, lengths, labels = _tensors(dataset.train)
    order = batches(len(dataset.train), options.batch, options.seed)
    done, every = len(record.losses), math.ceil(options.steps / EVALUATIONS)
    for _ in range(done):
        next(order)
    with tqdm(
        total=options.steps,
        initial=done,
        unit="step",
        desc=f"{options.dataset} {options.cell}",
        disable=not (processes.leads and sys.stderr.isatty()),
    ) as bar:
        for step in range(done, options.steps):
            start = perf_counter()
            optimiser.param_groups[0]["lr"] = learning_rate(options.learning_rate, step)
            batch = torch.from_numpy(processes.part(next(order)))
            some = inputs[batch], None if lengths is None else lengths[batch]
            loss = cross_entropy(together(*some), labels[batch], reduction="sum") / options.batch
            value, stops = processes.sums(float(loss.detach()), stop())
            _check(value, step)
            optimiser.zero_grad()
            (loss * processes.count).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            record.losses.append(value)
            record.seconds += perf_counter() - start
            bar.set_postfix(loss=f"{value:.4f}", held_out=_shown(record), refresh=False)
            bar.update()
            ends = step + 1 == options.steps
            record.interrupted = bool(stops) and not ends
            if processes.leads and ((step + 1) % every == 0 or ends):
                evaluate(model, dataset.test, record)
            if processes.leads and ((step + 1) % (options.save_every or every) == 0 or ends or stops):
                checkpoints.save(model, optimiser, record)
            if stops:
                break
    return record


def evaluate(model: Reader, held_out: Sequences, record: Record) -> None:
    """Read what is held out with the weights after the last step, and add the evaluation to the record if it is not there.

    Raises: DivergedError for a loss that is not finite.
    """
    if record.evaluations and record.evaluations[-1].step == len(record.losses):
        return
    start = perf_counter()
    inputs, lengths, labels = _tensors(held_out)
    model.eval()
    with torch.no_grad():
        parts = [slice(i, i + EVALUATION_BATCH) for i in range(0, len(inputs), EVALUATION_BATCH)]
        logits = torch.cat([model(inputs[i], None if lengths is None else lengths[i]) for i in parts])  # [N, classes]
        loss = float(cross_entropy(logits, labels))
        predictions = logits.argmax(dim=1)
    model.train()
    _check(loss, len(record.losses) - 1, "on what is held out ")
    accuracy = int((predictions == labels).sum()) / len(labels)
    record.evaluations.append(Evaluation(len(record.losses), loss, predictions.numpy(), accuracy))
    record.evaluation_seconds += perf_counter() - start


def _tensors(some: Sequences) -> tuple[Tensor, Tensor | None, Tensor]:
    """Inputs, lengths and labels."""
    lengths = None if some.lengths is None else torch.from_numpy(some.lengths)
    return torch.from_numpy(some.inputs), lengths, torch.from_numpy(some.labels)


def _check(loss: float, step: int, where: str = "") -> None:
    if not math.isfinite(loss):
        raise DivergedError(f"the loss {where}is {loss} at step {step + 1}: training has diverged; try a smaller --lr")


def _shown(record: Record) -> str:
    return f"{record.evaluations[-1].accuracy:.2%}" if record.evaluations else "?"
