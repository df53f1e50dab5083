"""What a run needs to go on where it was, in one file."""

from __future__ import annotations

import pickle
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from anyrnn._files import written_aside
from anyrnn.train.errors import UsageError
from anyrnn.train.options import Options
from anyrnn.train.record import Evaluation, Record

CHECKPOINT = "checkpoint.pt"
FORMAT = 1
MAY_DIFFER = ("steps", "threads", "data", "output", "resume", "save_every")
"""Options that a run may be resumed with other values of."""


@dataclass(frozen=True)
class Checkpoint:
    """The state between two training steps: the state dicts of the model and of its optimiser, and what happened so far. The
    order of the sequences and the learning rate follow from the number of the step.
    """

    file: Path
    model: dict[str, Any]
    optimiser: dict[str, Any]
    record: Record

    def restore(self, model: nn.Module, optimiser: torch.optim.Optimizer) -> Record:
        """Raises: UsageError when the model has other parameters."""
        try:
            model.load_state_dict(self.model)
        except RuntimeError as error:
            first = str(error).splitlines()[1].strip()
            raise UsageError(f"--resume: {self.file} is of another model: {first}") from error
        optimiser.load_state_dict(self.optimiser)
        return replace(self.record, interrupted=False)


def save(model: nn.Module, optimiser: torch.optim.Optimizer, record: Record, options: Options) -> None:
    """Into the run's folder, in the place of the one before."""
    evaluations = [{**asdict(e), "predictions": torch.from_numpy(e.predictions)} for e in record.evaluations]
    content = {
        "format": FORMAT,
        "options": _fixed(options),
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
        "record": {**asdict(record), "evaluations": evaluations},
    }
    with written_aside(options.output / CHECKPOINT) as aside:
        torch.save(content, aside)


def load(options: Options) -> Checkpoint:
    """The last one in the run's folder.

    Raises: UsageError when there is none, or it is that of a run with other options.
    """
    file = options.output / CHECKPOINT
    content = _content(file)
    before = content["options"]
    for name, value in _fixed(options).items():
        if before[name] != value:
            raise UsageError(f"--resume: {file} is of a run with {name} {before[name]}, not {value}")
    record = content["record"]
    done = len(record["losses"])
    if done > options.steps:
        raise UsageError(f"--resume: {file} is of a run that has done {done} steps, more than the {options.steps} asked for")
    evaluations = [Evaluation(**{**e, "predictions": e["predictions"].numpy()}) for e in record["evaluations"]]
    return Checkpoint(file, content["model"], content["optimiser"], Record(**{**record, "evaluations": evaluations}))


def _content(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise UsageError(f"--resume: there is no {file}")
    try:
        content = torch.load(file, weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise UsageError(f"--resume: {file} cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UsageError(f"--resume: {file} is no checkpoint of this version of anyrnn")
    return content


def _fixed(options: Options) -> dict[str, Any]:
    """What makes a run what it is."""
    return {name: value for name, value in asdict(options).items() if name not in MAY_DIFFER}
