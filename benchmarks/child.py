"""Work in fresh processes: `python -m benchmarks.child TASK` reads its arguments as JSON and prints its answer as JSON.

Tasks: `alone` times one system on one row with no other about; `first` times what a cell's first call costs beyond the second;
`memory` measures what one system's call on one row needs.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.measure import Blocks
from benchmarks.run import DTYPES, Settings
from benchmarks.suite import STREAMS, Row
from benchmarks.systems import System


class ChildError(RuntimeError):
    """A process ended without an answer; the message is its last line."""


def time_alone(row: Row, system: str, settings: Settings) -> float:
    """The median seconds of a system's call in a process of its own. Raises: ChildError."""
    return float(_ask("alone", {"row": asdict(row), "system": system, "settings": asdict(settings)})["seconds"])


def time_compiles(cell: str, settings: Settings) -> tuple[float, float]:
    """Seconds to trace and compile a cell, forward and backward, with llvmlite and torch imported: with nothing on disk, and in
    the next process. Raises: ChildError.
    """
    task = {"cell": cell, "dtype": settings.dtype, "threads": settings.threads}
    with tempfile.TemporaryDirectory() as folder:
        cold, cached = (float(_ask("first", task, ANYRNN_CACHE=folder)["seconds"]) for _ in range(2))
    return cold, cached


def measure_memory(row: Row, system: str, settings: Settings) -> int | None:
    """Bytes that a call needs beside what it is given and what stays for the next one; None where the system does not say.

    Raises: ChildError.
    """
    found = _ask("memory", {"row": asdict(row), "system": system, "settings": asdict(settings)})["bytes"]
    return None if found is None else int(found)


def _ask(task: str, arguments: dict[str, Any], **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.child", task], input=json.dumps(arguments), cwd=Path(__file__).parent.parent,
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise ChildError((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _given(arguments: dict[str, Any]) -> tuple[Row, Settings]:
    row, settings = Row.from_data(arguments["row"]), arguments["settings"]
    return row, Settings(settings["threads"], settings["dtype"], tuple(settings["peers"]), Blocks(**settings["blocks"]))


def _system(name: str, row: Row, settings: Settings) -> System:
    from benchmarks import peers
    from benchmarks.job import Job

    peers.set_threads(settings.threads)
    system = peers.build(name, Job(row, DTYPES[settings.dtype], settings.threads))
    if system is None:
        raise ValueError(f"{name} does not have {row.name}")
    return system


def _alone(arguments: dict[str, Any]) -> dict[str, float]:
    from benchmarks.measure import measure

    row, settings = _given(arguments)
    system = _system(arguments["system"], row, settings)
    system.results()
    return {"seconds": measure({"": system.call}, settings.blocks_for(row))[""].median}


def _memory(arguments: dict[str, Any]) -> dict[str, int | None]:
    """A small call first, so that what is compiled or loaded once does not count."""
    row, settings = _given(arguments)
    small = replace(row, steps=1 if row.mode in STREAMS else 2, samples=2, lengths=row.lengths and (1, 2))
    _system(arguments["system"], small, settings).call()
    system = _system(arguments["system"], row, settings)
    gc.collect()
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before = _status("VmRSS")
    except OSError:
        return {"bytes": None}
    system.call()
    return {"bytes": max(0, _status("VmHWM") - before)}


def _status(name: str) -> int:
    """A line of the process's own account, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise OSError(f"the system does not tell {name}")


def _first(arguments: dict[str, Any]) -> dict[str, float]:
    import llvmlite.binding  # noqa: F401
    import torch

    from anyrnn import cells
    from anyrnn.torch import Recurrent
    from benchmarks.job import other_sizes
    from benchmarks.peers import set_threads

    set_threads(arguments["threads"])
    dtype = DTYPES[arguments["dtype"]]
    x = torch.randn(3, 2, 4, dtype=dtype, requires_grad=True)
    torch.nn.Linear(4, 4, dtype=dtype)(x).sum().backward()  # what torch itself does once

    cell, sizes = cells.load(arguments["cell"]), other_sizes(arguments["cell"], 8)
    features = {name: shape[0].evaluate({"input": 4, "hidden": 8, **sizes}) for name, shape in cell.trace().inputs[1:]}
    further = {name: torch.rand(3, 2, n, dtype=dtype) for name, n in features.items()}
    times = [time.perf_counter()]
    layer = Recurrent(cell, 4, 8, backend="llvm", dtype=dtype, **sizes)  # which traces it: that counts
    for _ in range(2):
        layer(x, **further)[0].sum().backward()
        times.append(time.perf_counter())
    return {"seconds": times[1] - times[0] - (times[2] - times[1])}


if __name__ == "__main__":
    print(json.dumps({"alone": _alone, "first": _first, "memory": _memory}[sys.argv[1]](json.load(sys.stdin))))
