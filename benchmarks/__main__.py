"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from anyrnn import cells
from anyrnn._files import written_aside
from anyrnn.compare.options import split
from anyrnn.train.errors import UsageError
from benchmarks import machine, peers, plot, report
from benchmarks.again import NEAR, measure_again
from benchmarks.child import ChildError, measure_memory, time_compiles
from benchmarks.journal import Journal
from benchmarks.prove import Proof, prove
from benchmarks.result import OURS, Result
from benchmarks.run import DTYPES, Settings, run_row, settings_missing
from benchmarks.suite import SUITES, TORCH_CELLS, Row, rows_of
from benchmarks.targets import Run

FAILED = 1
HERE = Path()
INTERRUPTED = 130
BUSY = 0.5
"""More than this many other processes waiting for a core spoil the figures."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. The status is 1 when results are wrong, something failed or a proof does not hold."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.resume and not chosen.json:
        parser.error("--resume is for runs with --json, whose rows are kept")
    rows = [row for row in rows_of(chosen.suite, chosen.cells) if chosen.rows is None or chosen.rows.search(row.name)]
    if not rows:
        parser.error(f"--rows {chosen.rows.pattern!r} matches no row of suite {chosen.suite!r}")
    missing = settings_missing(chosen.peers)
    settings = Settings(chosen.threads, chosen.dtype, tuple(name for name in chosen.peers if name not in missing))
    peers.set_threads(settings.threads)

    status = 0
    about = machine.describe()
    _warn(about, missing, settings)
    probe = machine.Probe(DTYPES[settings.dtype], settings.threads)
    results: list[Result] = []
    proofs: list[Proof] = []
    compiles: dict[str, tuple[float, float]] = {}
    memory: dict[str, dict[str, int]] = {}
    failures: list[str] = []
    file = _results_file(str(about["cpu"])) if chosen.json == HERE else chosen.json
    versions = machine.versions()
    journal = Journal(file, settings, about, versions) if file else None
    try:
        known = journal.read() if journal and chosen.resume else {}
    except ValueError as error:
        parser.error(f"--resume: {error}")
    if journal and chosen.resume and not known:
        _say(f"--resume: nothing was measured yet in {journal.path}")
    if journal:
        journal.begin(known)

    def measured(row: Row, what: str) -> Result:
        """What an earlier run has found, as often as it did; then what this one does."""
        if known.get(row):
            return known[row].pop(0)
        _say(f"{what} {row.name}")
        probe.block()
        result = run_row(row, settings, probe.references)
        if journal:
            journal.add(result)
        return result

    def reported() -> report.Report:
        """What there is; if a file was asked for, it is there from now on."""
        parts = (probe.ceilings, about, versions, compiles, memory, proofs, missing, failures)
        found = report.Report(settings, results, *parts)
        if file:
            with written_aside(file) as aside:
                aside.write_text(json.dumps(report.data(found), indent=1) + "\n", encoding="utf-8")
        return found

    try:
        for number, row in enumerate(rows, 1):
            results.append(measured(row, f"[{number}/{len(rows)}]"))
            if chosen.prove and results[-1].status == "ok":
                with _noting(failures, f"proof of {row.name}"):
                    proofs += prove(row, settings, results[-1], probe.references)
        probe.block()
        probe.memory()
        reported()  # what follows may take as long again
        if chosen.again:
            run = Run(tuple(results), probe.ceilings, settings.threads, about["second_cache_bytes"])
            for place, result in measure_again(run, lambda row: measured(row, "again:"), chosen.again):
                results[place] = result
        if not chosen.no_compile:
            for cell in dict.fromkeys(result.row.cell for result in results if result.status == "ok"):
                _say(f"compile of {cell}")
                with _noting(failures, f"compile of {cell}"):
                    compiles[cell] = time_compiles(cell, settings)
        for result in results if chosen.memory else ():
            for system in [s for s in (OURS, "torch") if result.status == "ok" and s in result.timings]:
                _say(f"memory of {system} on {result.row.name}")
                with _noting(failures, f"memory of {system} on {result.row.name}"):
                    found_bytes = measure_memory(result.row, system, settings)
                    if found_bytes is not None:
                        memory.setdefault(result.row.name, {})[system] = found_bytes
    except KeyboardInterrupt:
        _say("interrupted; this is what there is")
        status = INTERRUPTED

    found = reported()
    if journal and not status:
        journal.end()
    print(report.text(found))
    if chosen.plot:
        plot.plot(found, chosen.plot)
    return status or (0 if found.sound else FAILED)


@contextmanager
def _noting(failures: list[str], what: str) -> Iterator[None]:
    """A process that breaks is told at the end, with everything else."""
    try:
        yield
    except ChildError as error:
        failures.append(f"{what}: {error}")


def _parser() -> argparse.ArgumentParser:
    default = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="How fast anyrnn is, against other libraries and against the machine."
    )
    parser.add_argument("--suite", choices=[*SUITES, "all"], default="quick", help="which rows (default: quick)")
    parser.add_argument(
        "--cells", type=_cells, default=[], metavar="NAMES", help="of the custom suite: cells with commas between, or all"
    )
    parser.add_argument(
        "--peers", type=_peers, default=list(default.peers), metavar="NAMES",
        help=f"what to compare with, of {', '.join(peers.PEERS)}, with commas between (default: {','.join(default.peers)})",
    )  # fmt: skip
    parser.add_argument(
        "--threads", type=_positive, default=default.threads, metavar="N", help="of every library (default: %(default)s)"
    )
    parser.add_argument("--dtype", choices=list(DTYPES), default=default.dtype, help="of weights and data (default: %(default)s)")
    parser.add_argument("--rows", type=_expression, metavar="REGEX", help="only rows whose names it is found in")
    parser.add_argument(
        "--json", type=Path, nargs="?", const=HERE, metavar="FILE",
        help="put everything there for programs (without FILE: in benchmarks/results, named after the day and the machine)",
    )  # fmt: skip
    parser.add_argument(
        "--resume", action="store_true", help="take up what a run with the same --json had measured when it was stopped"
    )
    parser.add_argument(
        "--plot", type=_picture, metavar="FILE", help="put a picture of ratios and peak fractions there (.png, .svg)"
    )
    parser.add_argument("--memory", action="store_true", help="measure the memory of calls, each in a fresh process")
    parser.add_argument(
        "--prove", action="store_true", help="hold each figure against the system's figure alone in a fresh process; takes long"
    )
    parser.add_argument(
        "--again", type=_share, nargs="?", const=NEAR, metavar="SHARE",
        help="measure rows below their targets, and of up to SHARE times those (%(const)s), twice more; the middle one of three "
        "counts",
    )  # fmt: skip
    parser.add_argument("--no-compile", action="store_true", help="leave out the times of compiles")
    return parser


def _peers(names: str) -> list[str]:
    wanted = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    unknown = [name for name in wanted if name not in peers.PEERS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown peer {unknown[0]!r}; there are {', '.join(peers.PEERS)}")
    return wanted


def _cells(names: str) -> list[str]:
    try:
        wanted = [name for name in cells.names() if name not in TORCH_CELLS] if names == "all" else split(names)
        return [name for name in wanted if cells.load(name)]
    except (ValueError, FileNotFoundError, UsageError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _picture(text: str) -> Path:
    if Path(text).suffix not in (".png", ".svg", ".pdf"):
        raise argparse.ArgumentTypeError(f"expected a name that ends in .png, .svg or .pdf, got {text!r}")
    return Path(text)


def _results_file(cpu: str) -> Path:
    """Where results are kept: one file for a day and a machine, so that a later run takes the place of an earlier one."""
    name = re.sub(r"[^a-z0-9]+", "-", cpu.lower()).strip("-") or "unknown"
    return Path(__file__).parent / "results" / f"{date.today().isoformat()}-{name}.json"  # noqa: DTZ011 (the user's own day)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above zero, got {text!r}")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 1 <= share < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text!r}")
    return share


def _expression(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from error


def _warn(about: dict[str, object], missing: dict[str, str], settings: Settings) -> None:
    """What makes figures worth less, before any work."""
    for name, reason in missing.items():
        _say(f"peer {name}: {reason}")
    load, cores = about["load"], about["cores"]
    if isinstance(load, float) and load > BUSY:
        _say(f"the machine is busy (load {load:.1f}): figures will be off")
    if isinstance(cores, int) and settings.threads > cores:
        _say(f"{settings.threads} threads, but {cores} cores: figures will be off")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
