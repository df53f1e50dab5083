"""One run: a network is trained, chosen by its best validation, and tested once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from statistics import median
from time import perf_counter
from typing import Any, Literal

import torch
from torch.nn.utils import clip_grad_norm_

from anyrnn.compare.contenders import Contender
from anyrnn.compare.examples import ACCURACY, Examples, Task
from anyrnn.compare.options import Options
from anyrnn.train.loop import EVALUATIONS
from anyrnn.train.model import Reader

ROWS = 100_000
"""Steps of sequences that an evaluation takes at once, about."""


class Stopped(Exception):
    """Somebody asked for it."""


@dataclass(frozen=True)
class Plan:
    """A run before it is made: its cell by name, whether it is one to choose a rate by, the rate, the seed."""

    cell: str
    purpose: Literal["tuning", "comparison"]
    learning_rate: float
    seed: int


@dataclass(frozen=True)
class Run:
    """A run that has ended.

    `validations` are dicts of `step`, `train_loss` (the mean since the one before), `loss` and `figure`, which is what the task
    measures. `best_step` is that of the best of them, and `test` the `loss` and `figure` of the model of then; None of runs that
    diverged, and no test of those to choose a rate by. `diverged` is the step whose loss was not finite. `seconds` are those of
    training steps, compiling kernels included, `steps_per_second` the reciprocal of the median step's.
    """

    plan: Plan
    validations: list[dict[str, Any]]
    diverged: int | None
    best_step: int | None
    test: dict[str, float] | None
    seconds: float
    steps_per_second: float
    backend: str

    @property
    def best(self) -> dict[str, Any] | None:
        """The best validation; None of a run that diverged."""
        return next((v for v in self.validations if v["step"] == self.best_step), None)


def train(
    plan: Plan,
    contender: Contender,
    options: Options,
    stop: Callable[[], bool],
    tell: Callable[[float], None],
) -> Run:
    """Make a run. `stop` is asked after each step, and `tell` told its loss. Depends on the plan, the contender and the options
    alone, but for the times.

    Raises: Stopped.
    """
    task = contender.task
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.seed)
        network = contender.network()
    backend = str(_recurrent(network).backend_name)
    optimiser = torch.optim.Adam([p for p in network.parameters() if p.requires_grad], lr=plan.learning_rate)
    every = validation_every(options.steps)
    validations: list[dict[str, Any]] = []
    best: dict[str, Any] | None = None
    best_state: dict[str, torch.Tensor] = {}
    losses: list[float] = []
    times: list[float] = []

    def ended(diverged: int | None, test: dict[str, float] | None) -> Run:
        best_step = None if diverged or best is None else int(best["step"])
        speed = 1 / median(times) if times else 0.0
        return Run(plan, validations, diverged, best_step, test, math.fsum(times), speed, backend)

    for step, batch in enumerate(islice(task.batches(options.batch, plan.seed), options.steps), 1):
        start = perf_counter()
        loss = _step(network, optimiser, task, batch, options.clip)
        times.append(perf_counter() - start)
        tell(loss)
        if not math.isfinite(loss):
            return ended(step, None)
        losses.append(loss)
        if stop():
            raise Stopped
        if step % every and step < options.steps:
            continue
        found = evaluate(network, task, task.validation)
        if not math.isfinite(found["loss"]):
            return ended(step, None)
        validations.append({"step": step, "train_loss": math.fsum(losses) / len(losses), **found})
        losses.clear()
        if best is None or task.measure.better(_rank(found, task), _rank(best, task)):
            best, best_state = validations[-1], {k: v.clone() for k, v in network.state_dict().items()}
    if plan.purpose == "tuning":
        return ended(None, None)
    network.load_state_dict(best_state)
    test = evaluate(network, task, task.test)
    return ended(None, test) if math.isfinite(test["loss"]) else ended(options.steps, None)


def validation_every(steps: int) -> int:
    """Training steps between two validations: about a tenth of all."""
    return math.ceil(steps / EVALUATIONS)


def evaluate(network: Reader, task: Task, examples: Examples) -> dict[str, float]:
    """The mean `loss`, and the `figure` that the task measures."""
    losses, right = [], 0
    network.eval()
    with torch.no_grad():
        for part in _parts(examples, max(1, ROWS // task.steps)):
            answers = network(*task.tensors(part))
            losses.append(float(task.loss(answers, part)) * len(part))
            if task.measure is ACCURACY:
                right += int((answers.argmax(dim=1) == torch.from_numpy(part.targets)).sum())
    network.train()
    loss = math.fsum(losses) / len(examples)
    of_measure = right / len(examples) if task.measure is ACCURACY else loss
    return {"loss": loss, "figure": of_measure * task.measure.scale}


def _step(network: Reader, optimiser: torch.optim.Optimizer, task: Task, batch: Examples, clip: float) -> float:
    """The loss; one that is not finite reaches no weight."""
    loss = task.loss(network(*task.tensors(batch)), batch)
    value = float(loss.detach())
    if math.isfinite(value):
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if clip:
            clip_grad_norm_(network.parameters(), clip)
        optimiser.step()
    return value


def _rank(found: dict[str, Any], task: Task) -> Any:
    """Of two figures that are equal the one with the smaller loss is better."""
    loss = found["loss"]
    return found["figure"], -loss if task.measure.higher_is_better else loss


def _parts(examples: Examples, size: int) -> Iterator[Examples]:
    return (examples.at(slice(i, i + size)) for i in range(0, len(examples), size))


def _recurrent(network: Reader) -> Any:
    return getattr(network.recurrent, "recurrent", network.recurrent)
