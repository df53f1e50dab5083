import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import anyrnn
from anyrnn import cli

QUICK = ["--hidden", "12", "--steps", "15", "--threads", "1"]


def run(*arguments: str | Path) -> int:
    return cli.main([str(argument) for argument in arguments])


def test_train_tells_what_it_reached_and_where_it_left_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "digits", *QUICK, "--output", tmp_path / "run") == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    first, second = printed.out.splitlines()
    assert first.startswith("digits, lstm (")
    assert "test accuracy 0." in first
    assert "on 355 held-out images, after 15 steps in" in first
    assert second == f"weights, summary and pictures: {tmp_path / 'run'}"


def test_json_is_one_line_and_the_same_as_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "digits", "--cell", "gru", *QUICK, "--output", tmp_path, "--json") == 0
    (line,) = capsys.readouterr().out.splitlines()
    summary = json.loads(line)
    assert {"test_accuracy", "seconds", "cell", "backend", "steps"} <= summary.keys()
    assert summary["cell"] == "gru"
    assert json.loads((tmp_path / "summary.json").read_text()) == summary


def test_the_defaults_read_digits_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "digits", "--threads", "1", "--output", tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["test_accuracy"] >= 0.96


def test_the_default_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("train", "digits", *QUICK, "--layers-from", "torch") == 0
    assert (tmp_path / "runs" / "digits-lstm-torch" / "summary.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "digits", "--cell", "lstmm"], "anyrnn train: error: --cell: unknown cell 'lstmm'"),
        (
            ["train", "digits", "--cell", "mgu", "--layers-from", "torch"],
            "anyrnn train: error: --layers-from torch: torch.nn has no 'mgu'",
        ),
        (["train", "mnist"], "anyrnn train: error: mnist needs --data DIR"),
        (["train", "mnist", "--data", "nowhere"], "anyrnn train: error: there is no folder 'nowhere' to read MNIST from"),
        (["train", "digits", "--output", __file__], "is a file, not a folder"),
        (["show", "lstmm"], "anyrnn show: error: unknown cell 'lstmm'"),
        (["check", "lstm", "--size", "prjo=4"], "anyrnn check: error: cell 'lstm' has no size 'prjo'; it has no others"),
        (["cells", "lstm_projected", "--size", "prjo=4"], "no cell here has the size 'prjo' (did you mean 'proj'?)"),
        (["show", "nowhere.py:mine"], "anyrnn show: error: cell 'nowhere.py:mine': there is no file 'nowhere.py'"),
    ],
)
def test_a_mistake_of_the_user_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("anyrnn.train.requirements.find_spec", lambda name: None)
    assert run("train", "mnist", "--data", ".") == 2
    expected = (
        '`anyrnn train mnist` needs torch, safetensors, matplotlib, tqdm, which are not installed: pip install "anyrnn[all]"'
    )
    assert capsys.readouterr().err == f"anyrnn train: error: {expected}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["dance"], "invalid choice: 'dance'"),
        (["show"], "the following arguments are required: CELL"),
        (["show", "lstm", "--plan", "--latex"], "argument --latex: not allowed with argument --plan"),
        (["train", "digits", "--hidden", "0"], "error: argument --hidden/--hidden-size: expected a whole number from 1"),
        (["doctor", "now"], "unrecognized arguments: now"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(*arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run("--version")
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"anyrnn {anyrnn.__version__}\n"


def test_divergence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--cell", "rnn_relu", "--lr", "1e30", "--layers-from", "torch", "--output", tmp_path / "run"]
    assert run("train", "digits", *QUICK, *arguments) == 1
    assert capsys.readouterr().err.startswith("anyrnn train: error: the loss is ")


def test_an_interrupted_run_says_so_in_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from anyrnn.train import loop

    answers = iter([False, True])
    real = loop.train
    monkeypatch.setattr(loop, "train", lambda m, d, options, stop, *rest: real(m, d, options, lambda: next(answers), *rest))
    assert run("train", "digits", *QUICK, "--output", tmp_path, "--json") == 130
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert summary["interrupted"] is True
    assert summary["steps"] == 2
    assert f"interrupted after 2 of 15 steps: saving what there is in {tmp_path}" in printed.err
    assert (tmp_path / "model.safetensors").exists()


def test_ctrl_c_before_the_training(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def pressed(options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("anyrnn.train.program.run", pressed)
    assert run("train", "digits") == 130
    assert capsys.readouterr().err == "anyrnn train: interrupted\n"


def test_a_defect_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(options: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr("anyrnn.train.program.run", defect)
    with pytest.raises(ValueError, match="a defect"):
        run("train", "digits")


RAISING = """
from anyrnn import State, affine, cell, tanh
@cell
def mine(x, h):
    {line}
    h = tanh(affine("n", x, h))
    return h, State(h=h)
"""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("assert h is x", "AssertionError: "),
        ("raise RuntimeError('no')", "RuntimeError: no"),
        ("raise NotImplementedError", "NotImplementedError: "),
        ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("open('/nowhere/at/all')", "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/at/all'"),
        ("mine(x, h)", "RecursionError: "),
    ],
)
def test_what_a_cell_raises_is_told_with_its_line(line: str, told: str, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "mine.py"
    file.write_text(RAISING.format(line=line))
    assert run("show", f"{file}:mine") == 2
    assert capsys.readouterr().err.startswith(f"anyrnn show: error: {file}:5: {told}")


@pytest.mark.parametrize("error", [MemoryError("no"), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_sizes_beyond_memory(error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def beyond(*given: object, **sizes: object) -> None:
        raise error

    monkeypatch.setattr("anyrnn.workbench.check", beyond)
    assert run("check", "lstm") == 1
    assert capsys.readouterr().err == f"anyrnn check: error: the system has not the memory for this: {error}\n"


@pytest.mark.parametrize("name", ["timed", "spec", "input_size"])
def test_sizes_that_are_no_sizes(name: str, capsys: Any) -> None:
    assert run("check", "lstm", "--size", f"{name}=3") == 2
    assert f"--size {name}: that is no size of a cell's own" in capsys.readouterr().err


@pytest.mark.parametrize(("flags", "what"), [([], "text"), (["--plan"], "plan"), (["--latex"], "latex"), (["--llvm"], "llvm")])
def test_show(flags: list[str], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    from anyrnn import cells, show

    assert run("show", "gru", *flags) == 0
    assert capsys.readouterr().out == show.render(cells.load("gru"), what) + "\n"


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor") == 0
    assert anyrnn.__version__ in capsys.readouterr().out


def test_a_reader_that_leaves_early_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def leave(chosen: object) -> int:
        raise BrokenPipeError

    with (tmp_path / "out").open("w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(
            cli, "_parser", lambda: SimpleNamespace(parse_args=lambda _: SimpleNamespace(run=leave, command="show"))
        )
        assert run("show", "lstm") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [["show", "lstm"], ["show", "lstm", "--llvm"], ["doctor"]])
def test_a_full_disk_is_told_in_a_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "anyrnn", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"anyrnn {arguments[0]}: error: No space left on device"]


@pytest.mark.parametrize(("path", "told"), [("nowhere.onnx", "No such file or directory"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read_is_told_in_a_line(path: str, told: str, capsys: Any) -> None:
    assert run("inspect", path) == 1
    assert capsys.readouterr().err == f"anyrnn inspect: error: {path}: {told}\n"


def test_the_file_that_is_named_is_the_users(tmp_path: Path, capsys: Any) -> None:
    anyrnn.runtime.Network(3, [anyrnn.runtime.Recurrent.of("rnn", ["x"], anyrnn.Recurrent("gru", 3, 5))]).save(
        tmp_path / "a.safetensors"
    )
    (tmp_path / "b.onnx").mkdir()
    assert run("convert", str(tmp_path / "a.safetensors"), str(tmp_path / "b.onnx")) == 1
    assert capsys.readouterr().err == f"anyrnn convert: error: {tmp_path / 'b.onnx'}: Is a directory\n"


def test_what_an_encoding_has_not_is_escaped() -> None:
    command, environment = [sys.executable, "-m", "anyrnn", "show", "lstm"], {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert rb"\xb7" in done.stdout


def test_a_process_without_standard_output() -> None:
    program = "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-m', 'anyrnn', 'show', 'lstm'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_command_line_is_light() -> None:
    program = (
        "import sys, anyrnn.cli, anyrnn.train.program, anyrnn.datasets; "
        "print([m for m in ('torch', 'sklearn', 'matplotlib', 'tqdm', 'safetensors', 'llvmlite') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_python_m_anyrnn() -> None:
    result = subprocess.run([sys.executable, "-m", "anyrnn", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout == f"anyrnn {anyrnn.__version__}\n"


def test_doctor_clears_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ANYRNN_CACHE", str(tmp_path))
    (tmp_path / f"{'0123' * 8}.compiled").write_bytes(b"x" * 2**19)
    assert cli.main(["doctor", "--clear-cache"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}: 1 file removed, 0.5 MiB\n"
    assert not list(tmp_path.iterdir())


def test_cells(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("cells", "gru", "residual(lstm)", "--hidden-size", "5") == 0
    table = capsys.readouterr().out
    assert "residual(lstm)" in table
    assert "2 cells; parameters for input=28, hidden=5" in table
    assert run("cells", "--json") == 0
    assert {"gru", "lstm"} <= {row["name"] for row in json.loads(capsys.readouterr().out)}
    assert run("cells", "gruu") == cli.WRONG_USAGE
    assert "unknown cell 'gruu' (did you mean 'gru'?)" in capsys.readouterr().err


def test_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "mgu", "--no-timing") == 0
    assert "no faults found" in capsys.readouterr().out
    file = tmp_path / "mine.py"
    file.write_text("from anyrnn import *\n\n@cell\ndef mine(x, h):\n    if h > 0:\n        h = x\n    return h, State(h=h)\n")
    assert run("check", f"{file}:mine") == cli.FAILED
    assert f"error: {file}:5: a cell cannot branch on a traced value" in capsys.readouterr().out
    assert run("check", "nowhere.py:mine") == cli.WRONG_USAGE


def test_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new" / "lstm.svg"
    assert run("show", "lstm", "--picture", file) == 0
    assert capsys.readouterr().out == f"{file}\n"
    assert file.read_text().startswith("<svg")
    assert run("show", "lstm", "--picture", tmp_path / "lstm.png") == cli.WRONG_USAGE
    assert "pictures are SVG" in capsys.readouterr().err


def test_assembly(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "indrnn", "--assembly") == 0
    printed = capsys.readouterr().out
    assert "# indrnn, backward" in printed
    assert ".globl" in printed


BROKEN = """
from anyrnn import State, affine, cell, tanh

@cell
def broken(x, h):
    h = tanh(affine("a", x, h) + undefined)
    return h, State(h=h)
"""


@pytest.mark.parametrize("command", [
    ("show",), ("cells",), ("check",), ("train", "digits", "--steps", "1", "--cell"), ("compare", "--task", "digits", "--cells"),
])  # fmt: skip
def test_an_error_of_python_in_a_cell(command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file.py"
    file.write_text(BROKEN)
    assert run(*command, f"{file}:broken") != 0
    printed = capsys.readouterr()
    assert f"error: {file}:6: NameError: name 'undefined' is not defined" in printed.out + printed.err


def test_a_cell_that_needs_more_than_the_data_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "digits", "--cell", "augru") == 2
    assert "it needs the per-step input a, which no data here have" in capsys.readouterr().err
