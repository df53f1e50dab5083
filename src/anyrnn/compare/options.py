"""What `anyrnn compare` can be asked for."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

from anyrnn.errors import meant
from anyrnn.trace import Cell
from anyrnn.train import arguments
from anyrnn.train.errors import UsageError
from anyrnn.train.options import FILES as FILES_TO_TRAIN

TaskName = Literal["digits", "mnist", "pixels", "adding", "copy", "vowels", "chars"]
Equal = Literal["hidden", "parameters"]
FILES: dict[str, str] = {
    "mnist": FILES_TO_TRAIN["mnist"],
    "pixels": FILES_TO_TRAIN["mnist"],
    "vowels": FILES_TO_TRAIN["vowels"],
    "chars": "tiny_shakespeare.txt or input.txt",
}
"""What the folder holds of data that come in files."""
RATES = (0.001, 0.003, 0.01)
FIRST_TUNING_SEED = 10_000
"""Seeds by which rates are chosen begin here, those that are reported at 0."""


@dataclass(frozen=True)
class Defaults:
    """What depends on the task; `length` is None where sequences are as long as they are."""

    hidden: int
    batch: int
    steps: int
    length: int | None = None


# adding and copy: the sizes of Arjovsky, Shah & Bengio 2016 are 128 features and batches of 50 and 20.
DEFAULTS: dict[str, Defaults] = {
    "digits": Defaults(hidden=64, batch=64, steps=600),
    "mnist": Defaults(hidden=128, batch=100, steps=2000),
    "pixels": Defaults(hidden=128, batch=100, steps=5000),
    "adding": Defaults(hidden=128, batch=50, steps=4000, length=100),
    "copy": Defaults(hidden=128, batch=50, steps=4000, length=100),
    "vowels": Defaults(hidden=32, batch=30, steps=400),
    "chars": Defaults(hidden=128, batch=50, steps=2000, length=100),
}


@dataclass(frozen=True)
class Options:
    """One comparison, complete. `length` is that of sequences that are made or cut, `sizes` are named ones of cells beside input
    and hidden, `threads` None is torch's own choice. Raises: UsageError for what does not go together.
    """

    cells: tuple[Cell | str, ...]
    task: TaskName
    output: Path
    hidden: int
    batch: int
    steps: int
    length: int | None
    learning_rates: tuple[float, ...] = RATES
    seeds: int = 5
    equal: Equal = "hidden"
    tuning_seeds: int = 2
    clip: float = 1.0
    data: Path | None = None
    threads: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.cells:
            raise UsageError("--cells is empty; give names of built-in cells or my_file.py:my_cell, with commas between them")
        names = [name_of(cell) for cell in self.cells]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"--cells: {name} is there twice")
        for option, count, least in (
            *(("seeds", self.seeds, 1), ("hidden", self.hidden, 1), ("batch", self.batch, 1), ("steps", self.steps, 1)),
            *(("tuning-seeds", self.tuning_seeds, 1), ("length", self.length, 2), ("threads", self.threads, 1)),
        ):
            if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < least):
                raise UsageError(f"--{option} {count}: expected a whole number from {least}")
        if self.seeds > FIRST_TUNING_SEED:
            raise UsageError(f"--seeds {self.seeds}: expected {FIRST_TUNING_SEED} at the most")
        if self.equal not in get_args(Equal):
            raise UsageError(f"--equal {self.equal}: expected {' or '.join(get_args(Equal))}")
        rates = self.learning_rates
        if not rates or len(set(rates)) < len(rates) or not all(rate > 0 and math.isfinite(rate) for rate in rates):
            shown = ",".join(f"{rate:g}" for rate in rates)
            raise UsageError(f"--learning-rate {shown}: expected finite numbers above 0, each once")
        if not 0 <= self.clip < math.inf:
            raise UsageError(f"--clip {self.clip}: expected a finite number from 0")
        self._check_data()

    def _check_data(self) -> None:
        if self.task in FILES and self.data is None:
            raise UsageError(f"{self.task} needs --data DIR: the folder with {FILES[self.task]}")
        if self.task not in FILES and self.data is not None:
            raise UsageError(f"--data is for {', '.join(FILES)}: {self.task} needs no files")
        if DEFAULTS[self.task].length is None and self.length is not None:
            own = ", ".join(name for name, values in DEFAULTS.items() if values.length is not None)
            raise UsageError(f"--length is for {own}: those of {self.task} are as long as they are")

    @property
    def folder(self) -> Path:
        """Of the data, where they come in files."""
        assert self.data is not None
        return self.data

    @property
    def steps_of_sequence(self) -> int:
        """Of sequences that are made or cut."""
        assert self.length is not None
        return self.length

    @property
    def tuning(self) -> tuple[int, ...]:
        """The seeds by which rates are chosen; none where there is nothing to choose."""
        count = self.tuning_seeds if len(self.learning_rates) > 1 else 0
        return tuple(range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + count))


def make(cells: str | Sequence[Cell | str], task: str, output: Any = None, **given: Any) -> Options:
    """The options of a comparison; what is None, or not there, is filled in. Raises: UsageError."""
    if task not in DEFAULTS:
        raise UsageError(f"--task: unknown task {task!r}{meant(task, DEFAULTS)}; the tasks are {', '.join(DEFAULTS)}")
    values = asdict(DEFAULTS[task]) | {name: value for name, value in given.items() if value is not None}
    rates = values.pop("learning_rate", RATES)
    if "data" in values:
        values["data"] = Path(values["data"])
    return Options(
        cells=tuple(split(cells) if isinstance(cells, str) else cells),
        task=cast(TaskName, task),
        output=Path("runs") / f"compare-{task}" if output is None else Path(output),
        learning_rates=tuple(float(rate) for rate in ([rates] if isinstance(rates, (int, float)) else rates)),
        **values,
    )


def split(text: str) -> list[str]:
    """Cells with commas between them; those within parentheses belong to a cell. Raises: UsageError for parentheses that do not
    close, and for nothing between two commas.

    >>> split("lstm, fast_slow(lstm, gru),cells.py:mine(kind=')')")
    ['lstm', 'fast_slow(lstm, gru)', "cells.py:mine(kind=')')"]
    """
    found, depth = [""], 0
    quote = ""
    """that has begun; an apostrophe outside of parentheses is a part of a file's name"""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"" and depth:
            quote = letter
        else:
            depth += (letter == "(") - (letter == ")")
        if depth < 0:
            break
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    if depth:
        raise UsageError(f"--cells {text!r}: parentheses do not match")
    found = [cell.strip() for cell in found]
    if not all(found):
        raise UsageError(f"--cells {text!r}: a cell is missing beside a comma" if len(found) > 1 else "--cells is empty")
    return found


def name_of(cell: Cell | str) -> str:
    """What a cell is called in results: as it was asked for."""
    return cell.name if isinstance(cell, Cell) else str(cell)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `anyrnn compare`."""

    def default(name: str) -> str:
        values = {task: getattr(defaults, name) for task, defaults in DEFAULTS.items()}
        return ", ".join(f"{task} {value}" for task, value in values.items() if value is not None)

    count = arguments.positive
    parser.add_argument(
        "--cells",
        required=True,
        metavar="CELL,...",
        help="built-in cells, my_file.py:my_cell, cells in wrappers such as 'residual(lstm)', cells with other hyper-parameters "
        "such as 'ctrnn(dt=0.5)'; with commas between them",
    )
    parser.add_argument(
        "--task",
        required=True,
        choices=list(DEFAULTS),
        help="digits: scans of 8x8 pixels, by rows; mnist: 28x28 pixels, by rows; pixels: the same, pixel by pixel in one "
        "random order; adding, copy: the tasks of Hochreiter & Schmidhuber 1997 in the form of Arjovsky, Shah & Bengio 2016; "
        "vowels: who of 9 speaks, 7 to 29 steps; chars: the next character of a text. mnist, pixels, vowels, chars need --data",
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="the folder with the files of mnist, pixels, vowels or chars")
    parser.add_argument(
        "--seeds", type=count, default=Options.seeds, metavar="N", help="runs of each cell (default: %(default)s)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="the folder for results; what is there already is kept (default: runs/compare-TASK)",
    )
    parser.add_argument(
        "--hidden", "--hidden-size", type=count, metavar="H", help=f"hidden features (default: {default('hidden')})"
    )
    parser.add_argument(
        "--equal",
        choices=get_args(Equal),
        default=Options.equal,
        help="what is the same for all cells: H; or, as nearly as an H of their own allows, the number of trained parameters of "
        "a network around an LSTM with H features (default: %(default)s)",
    )
    parser.add_argument("--size", action="append", metavar="NAME=N", help="another named size of cells (default: half of H)")
    parser.add_argument("--batch", type=count, metavar="N", help=f"sequences in a step (default: {default('batch')})")
    parser.add_argument("--steps", type=count, metavar="STEPS", help=f"training steps of a run (default: {default('steps')})")
    parser.add_argument(
        "--length", type=count, metavar="T", help=f"steps of a sequence, of copy those to wait (default: {default('length')})"
    )
    parser.add_argument(
        "--learning-rate",
        "--lr",
        type=_rates,
        metavar="RATE,...",
        help="of Adam. Of several each cell gets the one that is best for it on data to choose by "
        f"(default: {','.join(map(str, RATES))})",
    )
    parser.add_argument(
        "--tuning-seeds",
        type=count,
        default=Options.tuning_seeds,
        metavar="N",
        help="runs to choose among rates, of each (default: %(default)s)",
    )
    parser.add_argument(
        "--clip",
        type=float,
        default=Options.clip,
        metavar="NORM",
        help="largest norm of the gradient, 0 for any (default: %(default)s)",
    )
    parser.add_argument("--threads", type=arguments.threads, metavar="COUNT", help="CPU threads (default: torch's choice)")
    parser.add_argument("--json", action="store_true", help="print the summary as one line of JSON instead of a table")


def from_arguments(chosen: argparse.Namespace, sizes: Mapping[str, int] | None) -> Options:
    """The options of a command line, with what was left out filled in. Raises: UsageError."""
    names = ("seeds", "hidden", "equal", "batch", "steps", "length", "learning_rate", "tuning_seeds", "clip", "data", "threads")
    return make(chosen.cells, chosen.task, chosen.output, sizes=sizes, **{name: getattr(chosen, name) for name in names})


def _rates(text: str) -> tuple[float, ...]:
    return tuple(arguments.rate(part) for part in text.split(","))
