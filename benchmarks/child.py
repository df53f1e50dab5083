"""Work in fresh processes: `python -m benchmarks.child TASK` reads its arguments as JSON and prints its answer as JSON.

Tasks: `alone` times one system on one row with no other about; `cold` times what a cell's first call costs beyond the second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.measure import Blocks
from benchmarks.run import DTYPES, Settings
from benchmarks.suite import Row


class ChildError(RuntimeError):
    """A process ended without an answer; the message is its last line."""


def time_alone(row: Row, system: str, settings: Settings) -> float:
    """The median seconds of a system's call in a process of its own. Raises: ChildError."""
    return float(_ask("alone", {"row": asdict(row), "system": system, "settings": asdict(settings)})["seconds"])


def time_cold_compile(cell: str, settings: Settings) -> float:
    """Seconds to trace and compile a cell, forward and backward, with nothing on disk and llvmlite and torch imported.

    Raises: ChildError.
    """
    with tempfile.TemporaryDirectory() as nothing:
        answer = _ask("cold", {"cell": cell, "dtype": settings.dtype, "threads": settings.threads}, XDG_CACHE_HOME=nothing)
    return float(answer["seconds"])


def _ask(task: str, arguments: dict[str, Any], **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.child", task], input=json.dumps(arguments), cwd=Path(__file__).parent.parent,
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise ChildError((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _alone(arguments: dict[str, Any]) -> dict[str, float]:
    from benchmarks import peers
    from benchmarks.job import Job
    from benchmarks.measure import measure

    given, settings = arguments["row"], arguments["settings"]
    row = Row(**{**given, "lengths": tuple(given["lengths"]) if given["lengths"] else None})
    settings = Settings(settings["threads"], settings["dtype"], tuple(settings["peers"]), Blocks(**settings["blocks"]))
    peers.set_threads(settings.threads)
    system = peers.build(arguments["system"], Job(row, DTYPES[settings.dtype], settings.threads))
    if system is None:
        raise ValueError(f"{arguments['system']} does not have {row.name}")
    system.results()
    return {"seconds": measure({"": system.call}, settings.blocks_for(row))[""].median}


def _cold(arguments: dict[str, Any]) -> dict[str, float]:
    import llvmlite.binding  # noqa: F401
    import torch

    from anyrnn.torch import Recurrent
    from benchmarks.job import find_cell
    from benchmarks.peers import set_threads

    set_threads(arguments["threads"])
    dtype = DTYPES[arguments["dtype"]]
    x = torch.randn(3, 2, 4, dtype=dtype, requires_grad=True)
    torch.nn.Linear(4, 4, dtype=dtype)(x).sum().backward()  # what torch itself does once

    def once() -> float:
        start = time.perf_counter()
        Recurrent(find_cell(arguments["cell"]), 4, 8, backend="llvm", dtype=dtype)(x)[0].sum().backward()
        return time.perf_counter() - start

    return {"seconds": once() - once()}


if __name__ == "__main__":
    print(json.dumps({"alone": _alone, "cold": _cold}[sys.argv[1]](json.load(sys.stdin))))
