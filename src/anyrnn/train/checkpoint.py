"""What a run needs to go on where it was, in one file."""

from __future__ import annotations

import hashlib
import io
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from anyrnn._files import written_aside
from anyrnn.datasets import Dataset
from anyrnn.torch import Recurrent
from anyrnn.train import identity
from anyrnn.train.errors import UsageError
from anyrnn.train.model import Reader
from anyrnn.train.options import Options
from anyrnn.train.record import Evaluation, Record

CHECKPOINT = "checkpoint.pt"
FORMAT = 2
DIGEST = hashlib.sha256().digest_size
MAY_DIFFER = ("steps", "threads", "data", "output", "resume", "save_every")
"""Options that a run may be resumed with other values of; of data, the folder alone."""


@dataclass(frozen=True)
class Checkpoint:
    """The state between two training steps: the state dicts of the model and of its optimiser, and what happened so far. The
    order of the sequences and the learning rate follow from the number of the step.
    """

    model: dict[str, Any]
    optimiser: dict[str, Any]
    record: Record

    def restore(self, model: nn.Module, optimiser: torch.optim.Optimizer) -> Record:
        """Give both what they had; what happened until then."""
        model.load_state_dict(self.model)
        optimiser.load_state_dict(self.optimiser)
        return replace(self.record, interrupted=False)


@dataclass(frozen=True)
class Checkpoints:
    """Those of one run, each in the place of the one before: `torch.save`'s file with its SHA-256 behind it."""

    options: Options
    equations: str
    """A digest of the cell's, with its numbers; the same for all of torch's layers."""
    data: str
    """A digest of the training sequences."""

    @property
    def file(self) -> Path:
        return self.options.output / CHECKPOINT

    def save(self, model: nn.Module, optimiser: torch.optim.Optimizer, record: Record) -> None:
        """After a step; the numbers are on the disk before the file takes the place of the one before."""
        evaluations = [{**asdict(e), "predictions": torch.from_numpy(e.predictions)} for e in record.evaluations]
        buffer = io.BytesIO()
        torch.save(
            {
                "format": FORMAT,
                "options": _fixed(self.options),
                "equations": self.equations,
                "data": self.data,
                "model": model.state_dict(),
                "optimiser": optimiser.state_dict(),
                "record": {**asdict(record), "evaluations": evaluations},
            },
            buffer,
        )
        content = buffer.getvalue()
        with written_aside(self.file) as aside, aside.open("wb") as opened:
            opened.write(content + hashlib.sha256(content).digest())
            opened.flush()
            os.fsync(opened.fileno())

    def checked(self, content: dict[str, Any]) -> Checkpoint:
        """Of what was `read`. Raises: UsageError when it is that of another cell, or of other data."""
        if content["equations"] != self.equations:
            raise _unfit(self.file, f"is of a run whose cell {self.options.cell} had other equations")
        if content["data"] != self.data:
            raise _unfit(self.file, "is of a run with other training data")
        record = content["record"]
        evaluations = [Evaluation(**{**e, "predictions": e["predictions"].numpy()}) for e in record["evaluations"]]
        return Checkpoint(content["model"], content["optimiser"], Record(**{**record, "evaluations": evaluations}))


def of_run(model: Reader, dataset: Dataset, options: Options) -> Checkpoints:
    """The checkpoints of a run."""
    train, recurrent = dataset.train, model.recurrent
    equations = identity.of_cell(recurrent.cell) if isinstance(recurrent, Recurrent) else identity.of_text("")
    return Checkpoints(options, equations, identity.of_arrays((train.inputs, train.labels, train.lengths)))


def read(options: Options) -> dict[str, Any]:
    """The last checkpoint in the run's folder, before anything else is known of the run.

    Raises: UsageError when there is none, it is damaged, or it is that of a run with other options.
    """
    file = options.output / CHECKPOINT
    if not file.is_file():
        raise UsageError(f"--resume: there is no {file}")
    whole = file.read_bytes()
    content, digest = whole[:-DIGEST], whole[-DIGEST:]
    if hashlib.sha256(content).digest() != digest:
        raise _unfit(file, "is damaged, or no checkpoint of this version of anyrnn")
    found: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
    if found["format"] != FORMAT:
        raise _unfit(file, "is no checkpoint of this version of anyrnn")
    for name, value in _fixed(options).items():
        if found["options"][name] != value:
            raise _unfit(file, f"is of a run with {name} {found['options'][name]}, not {value}")
    done = len(found["record"]["losses"])
    if done > options.steps:
        raise _unfit(file, f"is of a run that has done {done} steps, more than the {options.steps} asked for")
    return found


def _unfit(file: Path, why: str) -> UsageError:
    return UsageError(f"--resume: {file} {why}")


def _fixed(options: Options) -> dict[str, Any]:
    """What makes a run what it is."""
    return {name: value for name, value in asdict(options).items() if name not in MAY_DIFFER}
