"""The training loop and the evaluation on what is held out."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from anyrnn.datasets import Dataset, Sequences
from anyrnn.train.errors import DivergedError
from anyrnn.train.model import Reader
from anyrnn.train.options import Options

EVALUATIONS = 10
EVALUATION_BATCH = 1000


@dataclass(frozen=True)
class Evaluation:
    """How the held-out sequences were read after `step` training steps: mean cross-entropy, each one's class (int64 [N])."""

    step: int
    loss: float
    predictions: NDArray[np.int64]
    accuracy: float


@dataclass
class Record:
    """What happened: the loss of each training step, the evaluations, and the time.

    `seconds` is that of the training steps (compiling kernels and taking batches included), `evaluation_seconds` that of the
    evaluations.
    """

    losses: list[float] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    seconds: float = 0.0
    evaluation_seconds: float = 0.0
    interrupted: bool = False


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


def train(model: Reader, dataset: Dataset, options: Options, stop: Callable[[], bool]) -> Record:
    """Train by Adam on the cross-entropy, evaluating now and then on the way; `stop` is asked after each step.

    Raises: DivergedError as soon as a loss is not finite, before it reaches the weights.
    """
    record = Record()
    inputs, lengths, labels = _tensors(dataset.train)
    optimiser = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    order = batches(len(dataset.train), options.batch, options.seed)
    every = math.ceil(options.steps / EVALUATIONS)
    with tqdm(total=options.steps, unit="step", desc=f"{options.dataset} {options.cell}", disable=not sys.stderr.isatty()) as bar:
        for step in range(options.steps):
            start = perf_counter()
            optimiser.param_groups[0]["lr"] = learning_rate(options.learning_rate, step)
            batch = torch.from_numpy(next(order))
            some = inputs[batch], None if lengths is None else lengths[batch]
            record.losses.append(_step(model, optimiser, some, labels[batch], step))
            record.seconds += perf_counter() - start
            bar.set_postfix(loss=f"{record.losses[-1]:.4f}", held_out=_shown(record), refresh=False)
            bar.update()
            if stop():
                record.interrupted = step + 1 < options.steps
                break
            if (step + 1) % every == 0 and step + 1 < options.steps:
                evaluate(model, dataset.test, record)
    return record


def evaluate(model: Reader, held_out: Sequences, record: Record) -> None:
    """Read what is held out with the weights after the last step, and add the evaluation to the record."""
    start = perf_counter()
    inputs, lengths, labels = _tensors(held_out)
    model.eval()
    with torch.no_grad():
        parts = [slice(i, i + EVALUATION_BATCH) for i in range(0, len(inputs), EVALUATION_BATCH)]
        logits = torch.cat([model(inputs[i], None if lengths is None else lengths[i]) for i in parts])  # [N, classes]
        loss = float(cross_entropy(logits, labels))
        predictions = logits.argmax(dim=1)
    model.train()
    accuracy = int((predictions == labels).sum()) / len(labels)
    record.evaluations.append(Evaluation(len(record.losses), loss, predictions.numpy(), accuracy))
    record.evaluation_seconds += perf_counter() - start


def _tensors(some: Sequences) -> tuple[Tensor, Tensor | None, Tensor]:
    """Inputs, lengths and labels."""
    lengths = None if some.lengths is None else torch.from_numpy(some.lengths)
    return torch.from_numpy(some.inputs), lengths, torch.from_numpy(some.labels)


def _step(
    model: Reader, optimiser: torch.optim.Optimizer, some: tuple[Tensor, Tensor | None], labels: Tensor, step: int
) -> float:
    loss = cross_entropy(model(*some), labels)
    value = float(loss.detach())
    if not math.isfinite(value):
        raise DivergedError(
            f"the loss is {value} at step {step + 1}: training has diverged; try a smaller --lr. Nothing was saved"
        )
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    return value


def _shown(record: Record) -> str:
    return f"{record.evaluations[-1].accuracy:.2%}" if record.evaluations else "?"
