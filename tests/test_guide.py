"""Everything in docs/guide.md runs, in its order, and prints what the guide says.

A block of Python whose first line is a comment with a file's name is that file, or goes on with it; a diff changes lines of
`my_cells.py`; all others run in one namespace, and a block of text after one is what it prints. In a console, lines with a dollar
are commands and the others what they print. C is compiled. Dots stand for anything. A comment `not run: why` leaves a block out.
"""

import contextlib
import doctest
import io
import linecache
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import anyrnn
from anyrnn import cli

GUIDE = Path(__file__).parents[1] / "docs" / "guide.md"
KINDS = ("c", "console", "diff", "python", "text")


@dataclass(frozen=True)
class Block:
    line: int
    kind: str
    text: str
    left_out: str


def blocks():
    text = GUIDE.read_text(encoding="utf-8")
    found = [
        Block(text.count("\n", 0, match.start("text")) + 1, match["kind"], match["text"], match["why"] or "")
        for match in re.finditer(r"(?:<!-- not run: (?P<why>.+?) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)```\n", text, re.DOTALL)
    ]
    assert text.count("```") == 2 * len(found), "a block of the guide is not read"
    return found


def check_printed(block, line, wanted, printed):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if not doctest.OutputChecker().check_output(wanted, printed, flags):
        pytest.fail(f"docs/guide.md, line {block.line + line}: expected\n{wanted}\nprinted\n{printed}", pytrace=False)


def run_command(words):
    """What a command prints, and its status."""
    if words[0] == "python":
        paths = os.pathsep.join([str(Path(anyrnn.__file__).parents[1]), *filter(None, sys.path)])
        done = subprocess.run(
            [sys.executable, *words[1:]], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths}
        )
        return done.stdout + done.stderr, done.returncode
    assert words[0] == "anyrnn", f"the guide has an unknown command: {shlex.join(words)}"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = cli.main(words[1:])
    return printed.getvalue(), status


def run_console(block):
    for command in re.finditer(r"^\$ (?P<words>.*)\n(?P<wanted>(?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
        printed, status = run_command(shlex.split(command["words"]))
        check_printed(block, block.text.count("\n", 0, command.start()), command["wanted"], printed)
        assert (status != 0) == ("error:" in command["wanted"]), f"{command['words']} ended with status {status}"


def write(name, text, further):
    path = Path(name)
    assert path.exists() == further, f"{name} is there already, or is not there to go on with"
    path.write_text((path.read_text(encoding="utf-8") + "\n\n" if further else "") + text, encoding="utf-8")


def change(name, lines):
    """Lines that are taken out make room for those that are put in, one for one."""
    path = Path(name)
    text = path.read_text(encoding="utf-8")
    out, into = ([line[1:] + "\n" for line in lines.splitlines() if line[0] == sign] for sign in "-+")
    for old, new in zip(out, into, strict=True):
        assert text.count(old) == 1, f"{name} has not one line {old}"
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    linecache.checkcache()


def compile_c(block):
    """Where there is a compiler."""
    Path("main.c").write_text(block.text, encoding="utf-8")
    if shutil.which("cc"):
        subprocess.run(["cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c", "main.c"], check=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file that changes within a second may have its old size
    yield tmp_path
    sys.modules.pop("my_cells", None)


@pytest.mark.usefixtures("folder", "quick_compile")
def test_the_guide_runs_and_prints_what_it_says():
    found, namespace = blocks(), {"__name__": "guide"}
    assert {block.kind for block in found} == set(KINDS)
    for number, block in enumerate(found):
        if block.left_out or block.kind == "text":
            continue
        file = re.match(r"# (\w+\.py)(, further down)?\n", block.text)
        if block.kind == "console":
            run_console(block)
        elif block.kind == "c":
            compile_c(block)
        elif block.kind == "diff":
            change("my_cells.py", block.text)
        elif file:
            write(file[1], block.text, further=bool(file[2]))
        else:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile("\n" * (block.line - 1) + block.text, GUIDE, "exec"), namespace)
            after = found[number + 1] if number + 1 < len(found) else block
            check_printed(after, 0, after.text if after.kind == "text" else "", printed.getvalue())
    assert namespace["model"].rnn.network.layers == 2
    assert Path("mine.svg").read_text(encoding="utf-8").startswith("<svg")
