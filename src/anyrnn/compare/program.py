"""A comparison, from options to the files it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anyrnn._files import written_aside
from anyrnn.compare.options import Options
from anyrnn.errors import MissingExtraError
from anyrnn.train.output import check_folder, holding
from anyrnn.train.program import limited_threads
from anyrnn.train.requirements import ALWAYS, FOR_DATASET, need

if TYPE_CHECKING:
    from anyrnn.compare.examples import Task
    from anyrnn.compare.record import Record

TABLE, COMMAS = "table.md", "table.csv"
FILES = ("results.json", TABLE, COMMAS, "curves.svg", "curves.png", "final.svg", "final.png")


@dataclass(frozen=True)
class Comparison:
    """What a comparison has found. `summary` is plain data, see `anyrnn.compare.run`; printed, it is a table.

    `without` says what is missing for the pictures; None where they are there.
    """

    summary: dict[str, Any]
    without: str | None

    def __str__(self) -> str:
        from anyrnn.compare import table

        return table.text(self.summary)

    def _repr_markdown_(self) -> str:
        """In a notebook."""
        return str(self)


def run(options: Options) -> Comparison:
    """See `anyrnn.compare.run`."""
    needs = {name: ALWAYS[name] for name in ("torch", "tqdm")} | (dict(FOR_DATASET["digits"]) if options.task == "digits" else {})
    need("`anyrnn compare`", needs)
    from anyrnn.compare import contenders, tasks
    from anyrnn.compare.protocol import protocol
    from anyrnn.compare.record import open_record
    from anyrnn.compare.schedule import make_runs

    check_folder(options.output, FILES)
    task = tasks.load(options)
    with limited_threads(options.threads):
        found = contenders.find(options, task)
        descriptions = {one.name: one.description for one in found}
        with holding(options.output, "comparison"):
            record = open_record(options.output, protocol(options, task), descriptions)
            rates = make_runs(options, found, record)
            return _finish(options, task, record, rates)


def _finish(options: Options, task: Task, record: Record, rates: Mapping[str, float]) -> Comparison:
    """From the runs to tables and pictures."""
    from anyrnn.compare import table
    from anyrnn.compare.summary import reported, summarise

    folder = options.output
    record.summary = summary = summarise(options, task, record.cells, record.runs, rates)
    record.save()
    for name, content in (
        (TABLE, table.markdown(summary, record.protocol, record.sessions)),
        (COMMAS, table.comma_separated(summary)),
    ):
        with written_aside(folder / name) as aside:
            aside.write_text(content, encoding="utf-8", newline="\n")
    try:
        need("no pictures: drawing them", {"matplotlib": ALWAYS["matplotlib"]})
    except MissingExtraError as missing:
        return Comparison(summary, str(missing))
    from anyrnn.compare import pictures

    pictures.save(folder, summary, [run for name, rate in rates.items() for run in reported(record.runs, name, rate)])
    return Comparison(summary, None)
