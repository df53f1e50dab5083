"""What a run has measured so far, row by row in a file, so that one that was stopped goes on where it was.

Rows are taken up again only of a run of the same settings, on the same machine, with the same versions of everything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.measure import Timing
from benchmarks.result import Result
from benchmarks.run import Settings
from benchmarks.suite import Row


class Journal:
    """Beside the file of a run's results; gone once they are there."""

    def __init__(self, results: Path, settings: Settings, about: Mapping[str, Any], versions: Mapping[str, str]) -> None:
        self.path = results.with_suffix(".rows")
        kept = {name: value for name, value in about.items() if name != "load"}
        self.run = json.loads(json.dumps({"settings": asdict(settings), "machine": kept, "versions": dict(versions)}))

    def read(self) -> dict[Row, list[Result]]:
        """What an earlier run has measured, of each row as often as it did. A line that is cut off does not count.

        Raises: ValueError where that was another kind of run, whose rows would be lost.
        """
        try:
            run, *lines = self._lines()
        except (FileNotFoundError, ValueError):
            return {}
        if other := [
            f"{part} {name}"
            for part in self.run
            for name in {**run.get(part, {}), **self.run[part]}
            if run.get(part, {}).get(name) != self.run[part].get(name)
        ]:
            raise ValueError(f"{self.path} has rows of another run ({', '.join(other)}), which a run without --resume replaces")
        found: dict[Row, list[Result]] = {}
        for result in map(_result, lines):
            found.setdefault(result.row, []).append(result)
        return found

    def _lines(self) -> list[Any]:
        """What its lines say, but for a last one that is cut off. Raises: FileNotFoundError; ValueError for no such file."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines[:-1]]
        with suppress(ValueError):
            found += map(json.loads, lines[-1:])
        return found

    def begin(self, kept: Mapping[Row, Sequence[Result]]) -> None:
        """Begin anew, with what is taken up."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(self.run), *(json.dumps(asdict(result)) for results in kept.values() for result in results)]
        self.path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def add(self, result: Result) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")

    def end(self) -> None:
        self.path.unlink(missing_ok=True)


def _result(data: dict[str, Any]) -> Result:
    timings = {name: Timing(tuple(map(tuple, timing["blocks"]))) for name, timing in data["timings"].items()}
    parts = {name: tuple(value) for name, value in data.items() if isinstance(value, list)}
    return Result(**{**data, **parts, "row": Row.from_data(data["row"]), "timings": timings})
