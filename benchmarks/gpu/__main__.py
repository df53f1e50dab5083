"""The command, which leaves what is done on the device to other processes."""

from __future__ import annotations

import argparse
import json
import os
import platform
import queue
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import anyrnn
from benchmarks.gpu.items import CHECKS, FAILED, NOT_HERE, TIMED

MINUTES = 8.5
TOGETHER = 0.55
"""The part of the time after which nothing is begun by several processes any more."""
SECONDS = 150
"""Of an item at the most, with its compiling."""
AFTER = 20
"""Seconds that an item may go on when the time is over."""
MOST_PROCESSES = 12
COMMAND = [sys.executable, "-m", "benchmarks.gpu.worker"]
Item = tuple[str, str]
"""The part and the name."""


class Worker:
    """A process that does items, one after the other."""

    def __init__(self, parts: Sequence[str], command: Sequence[str] = COMMAND) -> None:
        self.process = subprocess.Popen([*command, *parts], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.goes_on = True
        self.lines: queue.Queue[str] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def answer(self, seconds: float) -> Any:
        """Raises: TimeoutError; EOFError when the process has ended."""
        try:
            line = self.lines.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(f"not done after {seconds:.0f} s") from None
        if not line:
            raise EOFError(f"its process ended with status {self.process.wait()}")
        return json.loads(line)

    def ask(self, item: Item, timed: bool, seconds: float) -> Any:
        """What an item found. Raises: as `answer`."""
        print(json.dumps([*item, timed]), file=self.process.stdin, flush=True)
        found, self.goes_on = self.answer(seconds)
        return found

    def end(self) -> None:
        self.process.kill()
        self.reader.join()
        with suppress(BrokenPipeError), self.process:
            pass  # closes its pipes


@dataclass
class Report:
    """What was found, in a file."""

    file: Path
    begin: float
    seconds: float
    data: dict[str, Any] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    noted: int = 0
    """Items that were done, or found to be impossible."""

    def left(self, part: float = 1.0) -> float:
        """Seconds until such a part of the time is over."""
        return self.begin + part * self.seconds - time.monotonic()

    def plan(self, items: Sequence[Item], before: dict[str, Any] | None = None) -> None:
        """`before`: what was found already, and is kept."""
        nothing: dict[str, Any] = {part: {} for part in (*CHECKS, *TIMED, "not_here")}
        self.data = nothing | (before or {}) | self.data | {"not_measured": [": ".join(item) for item in items]}
        self.write()

    def note(self, item: Item, found: Any) -> None:
        """What an item found, or why there is nothing."""
        (part, name), label = item, ": ".join(item)
        with self.lock:
            planned = self.data["not_measured"]
            self.noted += 1
            if str(found).startswith(NOT_HERE):
                self.data["not_here"][label] = found.removeprefix(NOT_HERE).strip(": ")
            else:
                self.data[part][name] = found
            planned.remove(label)
            print(f"{label}: {found}", flush=True)
            self.write()

    def write(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.data, indent=1) + "\n", encoding="utf-8")

    def finish(self) -> int:
        """Judge, and tell in a line. The status: 0 where something was done, checks are made and right, and nothing failed."""
        checked = [name for part in CHECKS for name in self.data[part]]
        wrong, broken, late = wrong_of(self.data), broken_of(self.data), self.data["not_measured"]
        unchecked = [name for name in late if name.startswith(CHECKS)]
        self.data |= {"wrong": [name.partition(": ")[2] for name in wrong], "failed": broken}
        self.write()
        print(f"{self.file}: {len(checked)} checks, {len(wrong)} wrong; {len(broken)} failed; {len(late)} not measured")
        return int(bool(wrong or broken or unchecked or not self.noted or not (checked or "only" in self.data)))


def wrong_of(data: dict[str, Any]) -> list[str]:
    """The checks whose results are not right, 'part: name'."""
    return [f"{part}: {name}" for part in CHECKS for name, found in data[part].items() if not str(found).startswith("ok")]


def broken_of(data: dict[str, Any]) -> list[str]:
    """What was to be timed and could not be, or not all of it."""
    named = [(f"{part}: {name}", found) for part in TIMED for name, found in data[part].items()]
    return [name for name, found in named if any(str(one).startswith(FAILED) for one in _values(found))]


def rest_of(before: dict[str, Any], items: Sequence[Item], now: dict[str, Any]) -> list[Item]:
    """What a file has not measured, or found to be wrong or broken. `before` is told that it goes on now.

    Raises: ValueError where the device, or what is installed, is another one.
    """
    for what in ("device", "versions"):
        if before[what] != now[what]:
            raise ValueError(f"that file has other {what}: {before[what]}, and here are {now[what]}")
    again = {*before["not_measured"], *wrong_of(before), *broken_of(before)}
    before["began"] = [*before.pop("began", []), before["date"]]
    return [item for item in items if ": ".join(item) in again]


def _values(found: Any) -> list[Any]:
    return list(found.values()) if isinstance(found, dict) else [found]


def done_by(
    report: Report, items: deque[Item], part: float, timed: bool, tell: Callable[[Item, Any], None], command: Sequence[str]
) -> None:
    """Do items until there are none, or such a part of the time is over."""
    worker: Worker | None = None
    parts = list(dict.fromkeys(item[0] for item in items))
    while items and report.left(part) > 0:
        try:
            if worker is None:
                worker = Worker(parts, command)
                worker.answer(SECONDS)
            item = items.popleft()
        except (TimeoutError, EOFError, IndexError):
            break  # no process does anything here, or others were quicker
        try:
            tell(item, worker.ask(item, timed, min(SECONDS, max(1.0, report.left() + AFTER))))
        except (TimeoutError, EOFError, BrokenPipeError) as error:
            if report.left() > 0:  # else it is one of those that were not measured
                tell(item, f"{FAILED}: {error}")
            worker.goes_on = False
        if not worker.goes_on:
            worker.end()
            worker = None
    if worker is not None:
        worker.end()


def together(report: Report, items: Sequence[Item], command: Sequence[str]) -> list[Item]:
    """The checks, and once what is timed later, by several processes. Gives the checks that are left."""
    waiting = deque(items)

    def tell(item: Item, found: Any) -> None:
        if item[0] in CHECKS:
            report.note(item, found)

    count = max(1, min(MOST_PROCESSES, 3 * (os.cpu_count() or 1) // 4))
    threads = [threading.Thread(target=done_by, args=(report, waiting, TOGETHER, False, tell, command)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [item for item in waiting if item[0] in CHECKS]


def device() -> dict[str, Any] | str:
    """The device and what is installed; or what is missing."""
    try:
        import torch
        import triton
    except ImportError as error:
        return f"{error}. It needs torch for CUDA and Triton in the Python that runs it: make gpu PYTHON=/path/to/python"
    if not torch.cuda.is_available():
        return f"there is no CUDA device that torch {torch.__version__} finds"
    from benchmarks.machine import versions

    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name(),
        "capability": list(torch.cuda.get_device_capability()),
        "system": platform.platform(),
        "versions": versions()
        | {
            "anyrnn": anyrnn.__version__,
            "triton": triton.__version__,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        },
    }


def main(command: Sequence[str] = COMMAND) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="Checks and measures on a CUDA device.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to (default: benchmarks/results/gpu-<device>.json)")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="after which nothing is begun (default: %(default)s)")
    parser.add_argument("--only", metavar="PATTERN", help="items whose 'part: name' has this regular expression (default: all)")
    parser.add_argument("--rest", action="store_true", help="go on with what the file has not measured, or found to be broken")
    chosen = parser.parse_args()
    if chosen.only and not (chosen.json or chosen.rest):
        parser.error("--only needs --json: some items must not take the place of all")
    found = device()
    if isinstance(found, str):
        print(f"python -m benchmarks.gpu: {found}", file=sys.stderr)
        return 1
    slug = re.sub(r"[^a-z0-9]+", "-", found["device"].lower()).strip("-")
    file = chosen.json or Path(__file__).parents[1] / "results" / f"gpu-{slug}.json"
    report = Report(file, time.monotonic(), 60 * chosen.minutes, found)
    planner = Worker((*CHECKS, *TIMED), command)
    try:
        items: list[Item] = [(part, name) for part, name in planner.answer(SECONDS)]
    except (TimeoutError, EOFError) as error:
        report.plan([])
        print(f"python -m benchmarks.gpu: what there is to do is not known: {error}", file=sys.stderr)
        return 1
    finally:
        planner.end()
    before: dict[str, Any] = {}
    if chosen.rest:
        try:
            before = json.loads(file.read_text(encoding="utf-8"))
            items = rest_of(before, items, found)
        except (OSError, ValueError) as error:
            parser.error(f"--rest: {error}")
        except (KeyError, TypeError, AttributeError):
            parser.error(f"--rest: {file} is no report of this command")
    wanted = [item for item in items if re.search(chosen.only or "", ": ".join(item))]
    if not wanted:
        parser.error("--rest: there is nothing left" if not items else f"--only: no item has {chosen.only!r}")
    if chosen.only and not chosen.rest:
        report.data["only"], items = chosen.only, wanted
    report.plan(items, before)
    items = wanted
    checks = [item for item in items if item[0] == "checks"]
    timed = [item for item in items if item[0] in TIMED]
    alone = [*together(report, [*checks, *timed], command), *(item for item in items if item[0] != "checks")]
    done_by(report, deque(alone), 1.0, True, report.note, command)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
