"""The command line: `anyrnn train`, `anyrnn show`, `anyrnn doctor`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

import anyrnn
from anyrnn.errors import CellError, MissingExtraError, UnsupportedError
from anyrnn.train import options
from anyrnn.train.errors import DivergedError, UsageError

FAILED = 1
WRONG_USAGE = 2  # argparse's own
INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (default: that of the process) and give the exit status.

    What the user can mend is told in one line on stderr, and so is what the system refuses; anything else is a defect and keeps
    its traceback.
    """
    chosen = _parser().parse_args(arguments)
    try:
        status = int(chosen.run(chosen))
        sys.stdout.flush()
        return status
    except (UsageError, MissingExtraError, CellError, UnsupportedError) as error:
        return _complain(chosen, f"error: {error}", WRONG_USAGE)
    except DivergedError as error:
        return _complain(chosen, f"error: {error}", FAILED)
    except KeyboardInterrupt:
        return _complain(chosen, "interrupted", INTERRUPTED)
    except BrokenPipeError:  # `anyrnn show lstm --llvm | head`; the interpreter must not try to flush once more
        _write_no_more()
        return FAILED
    except OSError as error:  # a full disk, a folder that is gone: one process alone may meet it
        _tell(chosen, f"error: {error}")
        try:
            sys.stdout.flush()
        except OSError:
            _write_no_more()
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="anyrnn", description="Recurrent networks in which any cell runs at fused-kernel speed."
    )
    parser.add_argument("--version", action="version", version=f"anyrnn {anyrnn.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    train = commands.add_parser(
        "train",
        help="train a reader of digits or of speech",
        description="Train a network that reads images row by row, or speech.",
    )
    options.add_arguments(train)
    train.set_defaults(run=_train)

    show = commands.add_parser("show", help="print a cell's equations, plan or code", description="Print what a cell becomes.")
    show.add_argument("cell", metavar="CELL", help="a built-in cell's name or my_file.py:my_cell")
    forms = show.add_mutually_exclusive_group()
    forms.add_argument("--plan", dest="what", action="store_const", const="plan", help="stages, barriers, saved values")
    forms.add_argument("--latex", dest="what", action="store_const", const="latex", help="the equations as LaTeX")
    forms.add_argument("--llvm", dest="what", action="store_const", const="llvm", help="the code of the CPU kernels")
    show.set_defaults(run=_show, what="text")

    doctor = commands.add_parser(
        "doctor", help="say what can run here, and why not the rest", description="Say what can run here."
    )
    doctor.add_argument("--clear-cache", action="store_true", help="remove what was compiled and kept on disk")
    doctor.set_defaults(run=_doctor)
    return parser


def _train(chosen: argparse.Namespace) -> int:
    request = options.from_arguments(chosen)
    from anyrnn.train import program

    summary = program.run(request)
    if summary is None:
        return 0  # whatever happened, or torchrun would end the process that still saves
    if chosen.json:
        print(json.dumps(summary, allow_nan=False))
    else:
        held_out = f"{summary['test_' + summary['of']]} held-out {summary['of']}"
        print(
            f"{summary['dataset']}, {summary['cell']} ({summary['backend']}): test accuracy {summary['test_accuracy']:.4f} on "
            f"{held_out}, after {summary['steps']} steps in {summary['seconds']:.1f} s\n"
            f"weights, summary and pictures: {summary['output']}"
        )
    return INTERRUPTED if summary["interrupted"] else 0


def _show(chosen: argparse.Namespace) -> int:
    from anyrnn import cells, show

    try:
        cell = cells.load(chosen.cell)
    except (ValueError, FileNotFoundError) as error:
        raise UsageError(str(error)) from error
    print(show.render(cell, chosen.what))
    return 0


def _doctor(chosen: argparse.Namespace) -> int:
    from anyrnn import _cache, doctor

    print(_cache.clear() if chosen.clear_cache else doctor.report())
    return 0


def _write_no_more() -> None:
    """Leave what is still to be written to stdout unwritten, or the interpreter would try once more when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _complain(chosen: argparse.Namespace, what: str, status: int) -> int:
    """Of the processes that torchrun has started on a machine to train, which all meet the same, the first speaks."""
    if chosen.command != "train" or os.environ.get("LOCAL_RANK", "0") == "0":
        _tell(chosen, what)
    return status


def _tell(chosen: argparse.Namespace, what: str) -> None:
    print(f"anyrnn {chosen.command}: {what}", file=sys.stderr)
