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
from anyrnn.ir import show
from anyrnn.torch import Recurrent
from anyrnn.train.errors import UsageError
from anyrnn.train.model import Reader
from anyrnn.train.options import Options
from anyrnn.train.record import Evaluation, Record

CHECKPOINT = "checkpoint.pt"
FORMAT = 2
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
    """The cell's; none of torch's layers."""
    data: str
    """A digest of the training sequences."""

    @property
    def file(self) -> Path:
        return self.options.output / CHECKPOINT

    def save(self, model: nn.Module, optimiser: torch.optim.Optimizer, record: Record) -> None:
        """After a step; on the disk when this returns."""
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

    def load(self) -> Checkpoint:
        """The last one. Raises: UsageError when there is none, it is damaged, or it is that of another run."""
        content = self._content()
        for name, value in _fixed(self.options).items():
            if content["options"][name] != value:
                raise self._unfit(f"is of a run with {name} {content['options'][name]}, not {value}")
        if content["equations"] != self.equations:
            raise self._unfit(f"is of a run whose cell {self.options.cell} had other equations")
        if content["data"] != self.data:
            raise self._unfit("is of a run with other training data")
        record = content["record"]
        done, steps = len(record["losses"]), self.options.steps
        if done > steps:
            raise self._unfit(f"is of a run that has done {done} steps, more than the {steps} asked for")
        evaluations = [Evaluation(**{**e, "predictions": e["predictions"].numpy()}) for e in record["evaluations"]]
        return Checkpoint(content["model"], content["optimiser"], Record(**{**record, "evaluations": evaluations}))

    def _content(self) -> dict[str, Any]:
        if not self.file.is_file():
            raise UsageError(f"--resume: there is no {self.file}")
        whole = self.file.read_bytes()
        content, digest = whole[:-32], whole[-32:]
        if hashlib.sha256(content).digest() != digest:
            raise self._unfit("is damaged, or no checkpoint of this version of anyrnn")
        found: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
        if found["format"] != FORMAT:
            raise self._unfit("is no checkpoint of this version of anyrnn")
        return found

    def _unfit(self, why: str) -> UsageError:
        return UsageError(f"--resume: {self.file} {why}")


def of_run(model: Reader, dataset: Dataset, options: Options) -> Checkpoints:
    """The checkpoints of a run."""
    equations = show.text(model.recurrent.cell.trace()) if isinstance(model.recurrent, Recurrent) else ""
    digest = hashlib.sha256()
    for array in (dataset.train.inputs, dataset.train.labels, dataset.train.lengths):
        digest.update(b"" if array is None else array.tobytes())
    return Checkpoints(options, equations, digest.hexdigest())


def _fixed(options: Options) -> dict[str, Any]:
    """What makes a run what it is."""
    return {name: value for name, value in asdict(options).items() if name not in MAY_DIFFER}
