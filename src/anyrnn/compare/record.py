"""What a comparison keeps in its folder, so that it can go on where it stopped: results.json."""

from __future__ import annotations

import json
import math
import platform
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import anyrnn
from anyrnn._files import written_aside
from anyrnn.compare.training import Plan, Run
from anyrnn.train.errors import UsageError

RESULTS = "results.json"
FORMAT = 1


@dataclass
class Record:
    """`protocol` is what was decided before the first run, `cells` what each cell is, by name; `sessions` are the processes that
    have made runs, each with its command and versions, and each run says which one made it.
    """

    folder: Path
    protocol: dict[str, Any]
    cells: dict[str, dict[str, Any]]
    sessions: list[dict[str, Any]] = field(default_factory=list)
    runs: dict[Plan, Run] = field(default_factory=dict)
    made_in: dict[Plan, int] = field(default_factory=dict)
    summary: dict[str, Any] | None = None

    @property
    def file(self) -> Path:
        return self.folder / RESULTS

    def begin(self) -> None:
        """A session, in which runs will be made."""
        self.sessions.append(session())
        self.save()

    def add(self, run: Run) -> None:
        """A run of the last session; it is on the disk when this returns."""
        self.runs[run.plan] = run
        self.made_in[run.plan] = len(self.sessions) - 1
        self.save()

    def save(self) -> None:
        """The whole file, in the place of the one before."""
        runs = [{**_flat(run), "session": self.made_in[plan]} for plan, run in self.runs.items()]
        content = {
            "format": FORMAT,
            "protocol": self.protocol,
            "cells": self.cells,
            "sessions": self.sessions,
            "summary": self.summary,
            "runs": runs,
        }
        with written_aside(self.file) as aside:
            aside.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def open_record(folder: Path, protocol: dict[str, Any], cells: dict[str, dict[str, Any]]) -> Record:
    """The record in a folder, or a new one, of which nothing is written yet. Cells may be others than before: what is there of
    them stays there.

    Raises: UsageError when what is there is of another protocol, of another cell with a name that is asked for, or damaged.
    """
    protocol, cells = _plain(protocol), _plain(cells)
    file = folder / RESULTS
    if not file.is_file():
        return Record(folder, protocol, cells)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']}")
        before, known, sessions = content["protocol"], content["cells"], content["sessions"]
        if not all(isinstance(one, dict) for one in (before, known, *known.values(), *sessions)):
            raise TypeError("no dict where one should be")
        runs = [(_run(entry), range(len(sessions))[entry["session"]]) for entry in content["runs"]]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _unfit(folder, f"{RESULTS} there is damaged, or of another version of anyrnn ({error!r})") from error
    for name in {**protocol, **before}:
        old, new = before.get(name), protocol.get(name)
        if old != new:
            other = "other data" if name == "data" else f"{name} {_shown(old)}, not {_shown(new)}"
            raise _unfit(folder, f"{RESULTS} there is of a comparison with {other}")
    for cell, description in cells.items():
        for name, new in description.items():
            old = known.get(cell, description).get(name)
            if old != new:
                other = _DIGESTS.get(name, f"{name} {_shown(old)}, not {_shown(new)}")
                raise _unfit(folder, f"{RESULTS} there has runs of {cell} with {other}")
    return Record(folder, protocol, known | cells, sessions, {run.plan: run for run, _ in runs}, {run.plan: k for run, k in runs})


_DIGESTS = {"equations": "other equations", "begins": "other initial values"}


def session() -> dict[str, Any]:
    """This process: its command, the versions of what computes, the machine."""
    return {
        "command": sys.argv,
        "versions": {
            "anyrnn": anyrnn.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "machine": platform.machine(),
        "system": platform.platform(),
        "threads": torch.get_num_threads(),
    }


def _flat(run: Run) -> dict[str, Any]:
    content = asdict(run)
    return {**content.pop("plan"), **content}


def _run(entry: dict[str, Any]) -> Run:
    rest = {name: value for name, value in entry.items() if name != "session"}
    plan = Plan(**{name: rest.pop(name) for name in ("cell", "purpose", "learning_rate", "seed")})
    run = Run(plan, **rest)
    figures = [plan.learning_rate, run.seconds, run.steps_per_second, *(run.test or {}).values()]
    figures += [figure for validation in run.validations for figure in validation.values()]
    if not all(isinstance(figure, (int, float)) and math.isfinite(figure) for figure in figures):
        raise ValueError(f"{plan}: not all figures are numbers")
    if not isinstance(plan.seed, int) or (run.test is None and run.diverged is None and plan.purpose == "comparison"):
        raise ValueError(f"{plan}: not the result of a run")
    return run


def _plain(content: Any) -> Any:
    """As it comes out of a file."""
    return json.loads(json.dumps(content))


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


def _unfit(folder: Path, why: str) -> UsageError:
    return UsageError(f"--output {folder}: {why}; give another folder, or the arguments of then")
