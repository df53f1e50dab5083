"""The command line: `anyrnn cells`, `show`, `check`, `train`, `compare`, `convert`, `inspect`, `doctor`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import anyrnn
from anyrnn._files import written_aside
from anyrnn.compare import options as comparing
from anyrnn.errors import CellError, InexactError, MissingExtraError, UnsupportedError
from anyrnn.trace.tracer import place_of_error
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
    if arguments is None and isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for what its encoding has not
    chosen = _parser().parse_args(arguments)
    try:
        status = int(chosen.run(chosen))
        _flush()
        return status
    except (UsageError, MissingExtraError, CellError, UnsupportedError) as error:
        return _complain(chosen, f"error: {error}", WRONG_USAGE)
    except DivergedError as error:
        return _complain(chosen, f"error: {error}", FAILED)
    except KeyboardInterrupt as stopped:
        return _complain(chosen, str(stopped) or "interrupted", INTERRUPTED)
    except BrokenPipeError:  # `anyrnn show lstm --llvm | head`; the interpreter must not try to flush once more
        _write_no_more()
        return FAILED
    except Exception as error:
        place = place_of_error(error)
        if place is not None:
            return _complain(chosen, f"error: {place}: {type(error).__name__}: {error}", WRONG_USAGE)
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # the latter by torch
            return _complain(chosen, f"error: the system has not the memory for this: {error}", FAILED)
        if not isinstance(error, OSError):
            raise
        told = ": ".join(str(part) for part in (error.filename2 or error.filename, error.strerror or error) if part is not None)
        _tell(chosen, f"error: {told}")  # a full disk, a folder that is gone: one process alone may meet it
        try:
            _flush()
        except OSError:
            _write_no_more()
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="anyrnn", description="Recurrent networks in which any cell runs at fused-kernel speed."
    )
    parser.add_argument("--version", action="version", version=f"anyrnn {anyrnn.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    listed = commands.add_parser("cells", help="list the built-in cells", description="List the built-in cells.")
    listed.add_argument("cells", metavar="CELL", nargs="*", help="cells to list (default: all)")
    listed.add_argument("--json", action="store_true", help="as JSON, with hyper-parameters")
    _add_sizes(listed)
    listed.set_defaults(run=_cells)

    checked = commands.add_parser(
        "check",
        help="look at a cell of one's own: its faults, its speed, what limits it",
        description="Look at a cell: what is not used, not finite, growing or without gradient, with the line in which it "
        "stands; its gradient, its kernels, its speed beside an LSTM's, and what limits it.",
    )
    checked.add_argument("cell", metavar="CELL", help=_CELL)
    checked.add_argument("--no-timing", dest="timed", action="store_false", help="leave out the comparison with an LSTM")
    _add_sizes(checked)
    checked.set_defaults(run=_check)

    train = commands.add_parser(
        "train",
        help="train a reader of digits or of speech",
        description="Train a network that reads images row by row, or speech.",
    )
    options.add_arguments(train)
    train.set_defaults(run=_train)

    compared = commands.add_parser(
        "compare",
        help="compare cells: the same training for each, several seeds, confidence intervals",
        description="Train cells under one protocol and say how they differ: the same network, batches, steps and optimiser "
        "around each, learning rates chosen on data of their own, means with 95 % confidence intervals over seeds, differences "
        "with Holm's correction. The same command goes on where it was stopped.",
    )
    comparing.add_arguments(compared)
    compared.set_defaults(run=_compare)

    show = commands.add_parser("show", help="print a cell's equations, plan or code", description="Print what a cell becomes.")
    show.add_argument("cell", metavar="CELL", help=_CELL)
    forms = show.add_mutually_exclusive_group()
    forms.add_argument("--plan", dest="what", action="store_const", const="plan", help="stages, barriers, saved values")
    forms.add_argument("--latex", dest="what", action="store_const", const="latex", help="the equations as LaTeX")
    forms.add_argument("--llvm", dest="what", action="store_const", const="llvm", help="the code of the CPU kernels")
    forms.add_argument(
        "--assembly", dest="what", action="store_const", const="assembly", help="the same as this machine's instructions"
    )
    forms.add_argument("--picture", metavar="FILE", help="draw the data flow of a step as FILE (.svg)")
    show.set_defaults(run=_show, what="text")

    convert = commands.add_parser(
        "convert",
        help="convert a trained network or its weights from file to file",
        description="Convert a trained network, or the weights of a recurrent layer, from file to file.",
        epilog="Whole networks: .safetensors (of anyrnn), .onnx, and from .keras and Keras's .h5. Arrays of one recurrent layer: "
        ".safetensors, .npz, .pt, .params, and from .msgpack and .h5, laid out as --from and --to say. Object files: .o, .obj.",
    )
    convert.add_argument("source", metavar="SOURCE", help="the file to read; its suffix and first bytes tell its format")
    convert.add_argument("target", metavar="DEST", help="the file to write; its suffix tells its format")
    _add_reading(convert)
    convert.add_argument("--to", metavar="SYSTEM", help="whose arrays are written, where the suffix does not tell")
    told = (
        "round matrices to integers of eight bits, which take a quarter of the room, in networks' .safetensors and object files"
    )
    convert.add_argument("--int8", action="store_true", help=told)
    convert.add_argument("--approximate", action="store_true", help="leave out numbers that DEST has no place for")
    told = "run SOURCE by the library it is from, a written ONNX model by onnxruntime, and an object file for this system, and "
    told += "report the errors"
    convert.add_argument("--check", action="store_true", help=f"{told} (status 1: over, or nothing could be compared)")
    objects = convert.add_argument_group(
        "object files (.o, .obj)", "With a header for C and C++, which call them step after step."
    )
    triples = "aarch64-linux-gnu, thumbv7em-none-eabihf, wasm32-unknown-unknown, ..."
    objects.add_argument("--target", dest="machine", metavar="TRIPLE", help=f"the machine: {triples} (default: this system)")
    cpus = (
        "LLVM's name of its processor, such as x86-64-v3 (with AVX2), or native for this one (default: the least that there is)"
    )
    objects.add_argument("--cpu", metavar="NAME", help=cpus)
    objects.add_argument("--batch", type=int, metavar="N", help="how many sequences go on side by side (default: 1)")
    objects.add_argument("--name", metavar="NAME", help="what the functions' names begin with (default: the file's name)")
    convert.set_defaults(run=_convert)

    inspect = commands.add_parser(
        "inspect",
        help="say what is in a file: layers, shapes, equations",
        description="Say what is in a file of a trained network or of weights.",
    )
    inspect.add_argument("file", metavar="FILE")
    inspect.set_defaults(run=_inspect)

    doctor = commands.add_parser(
        "doctor", help="say what can run here, and why not the rest", description="Say what can run here."
    )
    doctor.add_argument("--clear-cache", action="store_true", help="remove what was compiled and kept on disk")
    doctor.set_defaults(run=_doctor)
    return parser


_CELL = (
    "a built-in cell's name, my_file.py:my_cell, one in wrappers ('residual(lstm)'), or with hyper-parameters ('ctrnn(dt=0.5)')"
)


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    size: dict[str, Any] = {"type": int, "help": "features of it (default: %(default)s)"}
    parser.add_argument("--input", "--input-size", dest="input_size", default=28, metavar="D", **size)
    parser.add_argument("--hidden", "--hidden-size", dest="hidden_size", default=256, metavar="H", **size)
    parser.add_argument("--size", action="append", metavar="NAME=N", help="another named size of cells, such as proj=64")


def _add_reading(parser: argparse.ArgumentParser) -> None:
    """What says more of a file of arrays."""
    parser.add_argument("--from", dest="system", metavar="SYSTEM", help="whose arrays are read: torch, keras, mxnet, flax, ...")
    parser.add_argument("--cell", metavar="CELL", help="of arrays that do not tell: lstm, gru, ctrnn(dt=0.5), my_file.py:my_cell")
    parser.add_argument("--layer", metavar="NAME", help="which recurrent layer, where the arrays are those of more than one")
    parser.add_argument("--layers", type=int, default=1, metavar="N", help="of arrays that do not tell (default: 1)")
    parser.add_argument("--bidirectional", action="store_true", help="of arrays that do not tell")
    parser.add_argument("--size", action="append", metavar="NAME=N", help="of flat vectors: --size input=3 --size hidden=5")


def _train(chosen: argparse.Namespace) -> int:
    request = options.from_arguments(chosen, _sizes(chosen.size))
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


def _compare(chosen: argparse.Namespace) -> int:
    from anyrnn.compare import program

    found = program.run(comparing.from_arguments(chosen, _sizes(chosen.size)))
    if chosen.json:
        print(json.dumps(found.summary, allow_nan=False))
    else:
        print(f"{found}\nruns, tables{' and pictures' if found.without is None else ''}: {found.summary['output']}")
    if found.without is not None:
        _tell(chosen, found.without)
    return 0


def _cells(chosen: argparse.Namespace) -> int:
    from anyrnn.workbench import catalogue

    sizes = {"input": chosen.input_size, "hidden": chosen.hidden_size, **(_sizes(chosen.size) or {})}
    try:
        found = catalogue(chosen.cells, **sizes)
    except (ValueError, FileNotFoundError) as error:
        raise UsageError(str(error)) from error
    print(json.dumps(found.records(), indent=1, allow_nan=False) if chosen.json else found)
    return 0


def _check(chosen: argparse.Namespace) -> int:
    from anyrnn.workbench import check

    sizes = _sizes(chosen.size) or {}
    for name in sizes.keys() & {"spec", "timed", "input_size", "hidden_size"}:
        raise UsageError(f"--size {name}: that is no size of a cell's own")
    try:
        report = check(chosen.cell, timed=chosen.timed, input_size=chosen.input_size, hidden_size=chosen.hidden_size, **sizes)
    except (ValueError, FileNotFoundError) as error:
        raise UsageError(str(error)) from error
    print(report)
    return 0 if report.ok else FAILED


def _show(chosen: argparse.Namespace) -> int:
    from anyrnn import cells, show

    try:
        cell = cells.load(chosen.cell)
    except (ValueError, FileNotFoundError) as error:
        raise UsageError(str(error)) from error
    if chosen.picture is None:
        print(show.render(cell, chosen.what))
        return 0
    if not chosen.picture.endswith(".svg"):
        raise UsageError(f"--picture {chosen.picture}: pictures are SVG; the file's name should end in .svg")
    from anyrnn.workbench import picture

    with written_aside(Path(chosen.picture)) as aside:
        aside.write_text(picture(cell), encoding="utf-8")
    print(chosen.picture)
    return 0


def _convert(chosen: argparse.Namespace) -> int:
    from anyrnn import aot, convert

    told = {name: getattr(chosen, name) for name in ("system", "cell", "layer", "layers", "bidirectional")}
    if Path(chosen.target).exists() and Path(chosen.source).exists() and Path(chosen.target).samefile(chosen.source):
        raise UsageError(f"{chosen.target} is SOURCE; what else is in it would be lost")
    machine = {"target": chosen.machine, "cpu": chosen.cpu, "batch_size": chosen.batch, "name": chosen.name}
    machine = {name: value for name, value in machine.items() if value is not None}
    try:
        network = convert.load(chosen.source, sizes=_sizes(chosen.size), **told)
        layer, written = chosen.layer if len(network.layers) > 1 else None, network
        if chosen.int8:
            if chosen.to or Path(chosen.target).suffix.lower() not in (".safetensors", *aot.SUFFIXES):
                raise UsageError(f"{chosen.target}: --int8 is for whole networks in .safetensors and object files")
            written = network.in_int8()
        files = convert.save(
            written, chosen.target, system=chosen.to, layer=layer, approximate=chosen.approximate, machine=machine
        )
    except InexactError as error:
        raise UsageError(str(error).replace("approximate=True", "--approximate")) from error
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error
    for file in files:
        print(f"{file}: {file.stat().st_size:,} bytes written")
    if not chosen.check:
        return 0
    if chosen.int8:
        print(f"products of int8 move results by {convert.int8_error(network, written):.2%} of their norm, on random input")
    right = None
    if files[0].suffix.lower() in aot.SUFFIXES and chosen.machine is None and chosen.cpu in (None, "native"):
        apart = convert.object_error(files[0], written, batch_size=chosen.batch or 1, name=chosen.name)
        right = apart <= (convert.checking.FARTHEST_INT8 if written.int8 else convert.checking.FARTHEST)
        over = "" if right else ": OVER what rounding explains"
        print(f"{files[0]}: run here, its results are within {apart:.1e} of the network's, as part of the largest{over}")
    found = _compared(convert.parity, chosen.source, network)
    if Path(chosen.target).suffix.lower() == ".onnx":
        right = _compared(convert.parity_of_written, chosen.target, network) or False
    if right is None and not chosen.int8:  # then nothing else was compared
        return 0 if found else FAILED
    return FAILED if right is False or found is False else 0


def _compared(parity: Callable[..., Any], file: str, network: Any) -> bool | None:
    """Print how far a file and a network are apart. Whether that is within the budget; None if they cannot be compared."""
    try:
        report = parity(file, network)
    except (ValueError, MissingExtraError) as error:
        print(f"not compared with another library: {error}")
        return None
    print(report)
    return bool(report.within)


def _sizes(given: Sequence[str] | None) -> dict[str, int] | None:
    try:
        return {name: int(size) for name, size in (one.split("=") for one in given)} if given else None
    except ValueError:
        raise UsageError(f"--size should be given as NAME=N, such as hidden=256, got {' '.join(given or ())}") from None


def _inspect(chosen: argparse.Namespace) -> int:
    from anyrnn import convert

    try:
        print(convert.inspect(chosen.file))
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error
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


def _flush() -> None:
    if sys.stdout is not None:  # as it is where the process was started without one
        sys.stdout.flush()


def _complain(chosen: argparse.Namespace, what: str, status: int) -> int:
    """Of the processes that torchrun has started on a machine to train, which all meet the same, the first speaks."""
    if chosen.command != "train" or os.environ.get("LOCAL_RANK", "0") == "0":
        _tell(chosen, what)
    return status


def _tell(chosen: argparse.Namespace, what: str) -> None:
    print(f"anyrnn {chosen.command}: {what}", file=sys.stderr)
