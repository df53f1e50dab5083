import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anyrnn import cli
from anyrnn.compare import training

TINY = ["--task", "adding", "--length", "6", "--steps", "6", "--hidden", "8", "--learning-rate", "0.01", "--threads", "1"]


def run(*arguments: str | Path) -> int:
    return cli.main(["compare", *map(str, arguments)])


def test_the_table_and_where_the_rest_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--cells", "gru,residual(indrnn)", *TINY, "--seeds", 2, "--output", tmp_path) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    lines = printed.out.splitlines()
    assert lines[0].startswith("|   # | cell ")
    assert lines[2].startswith("|   1 | gru ")
    assert lines[3].startswith("|   2 | residual(indrnn) ")
    assert lines[-1] == f"runs, tables and pictures: {tmp_path}"
    assert (tmp_path / "table.md").read_text().startswith("# adding: test mean squared error\n")


def test_json_is_one_line_and_the_same_as_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--cells", "gru", *TINY, "--seeds", 1, "--output", tmp_path, "--json") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == json.loads((tmp_path / "results.json").read_text())["summary"]


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from anyrnn.train import requirements

    real = requirements.find_spec
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if name == "matplotlib" else real(name))
    assert run("--cells", "gru", *TINY, "--seeds", 1, "--output", tmp_path) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == f"runs, tables: {tmp_path}"
    assert printed.err == (
        'anyrnn compare: no pictures: drawing them needs matplotlib, which is not installed: pip install "anyrnn[plot]"\n'
    )


def test_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.compare.test_program import press

    with monkeypatch.context() as pressed:
        press(pressed, when=8)
        assert run("--cells", "gru", *TINY, "--seeds", 3, "--output", tmp_path) == 130
    printed = capsys.readouterr()
    assert printed.out == ""
    kept = f"what had ended is kept in {tmp_path / 'results.json'}, and the same command goes on from there"
    assert printed.err == f"anyrnn compare: interrupted after 1 of 3 runs; {kept}\n"
    steps: list[Any] = []
    real = training._step
    monkeypatch.setattr(training, "_step", lambda *given: (steps.append(1), real(*given))[1])
    assert run("--cells", "gru", *TINY, "--seeds", 3, "--output", tmp_path) == 0
    assert len(steps) == 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cells", "gruu", "--task", "digits"], "error: --cells: unknown cell 'gruu'"),
        (["--cells", "residual(gru", "--task", "digits"], "error: --cells 'residual(gru': parentheses do not match"),
        (["--cells", "gru", "--task", "mnist"], "error: mnist needs --data DIR: the folder with train-images"),
        (["--cells", "gru", "--task", "mnist", "--data", "nowhere"], "error: there is no folder 'nowhere' to read MNIST from"),
        (["--cells", "gru", "--task", "digits", "--output", __file__], "is a file, not a folder"),
        (["--cells", "gru", "--task", "digits", "--size", "proj"], "error: --size should be given as NAME=N"),
        (["--cells", "gru", "--task", "digits", "--size", "proj=3"], "error: --size proj: no cell has it; there are none"),
    ],
)
def test_a_mistake_of_the_user_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("anyrnn compare: ")
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "digits"], "the following arguments are required: --cells"),
        (["--cells", "gru", "--task", "dance"], "argument --task: invalid choice: 'dance'"),
        (["--cells", "gru", "--task", "digits", "--seeds", "0"], "argument --seeds: expected a whole number from 1"),
        (["--cells", "gru", "--task", "digits", "--learning-rate", "0.1,x"], "--learning-rate/--lr: expected a number, got 'x'"),
        (["--cells", "gru", "--task", "digits", "--equal", "size"], "argument --equal: invalid choice: 'size'"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(*arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_the_package_is_light() -> None:
    program = (
        "import sys, anyrnn.compare; "
        "print([m for m in ('torch', 'sklearn', 'matplotlib', 'tqdm', 'safetensors', 'llvmlite') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
