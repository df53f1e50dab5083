"""Cells from files, by themselves and in wrappers."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anyrnn import cells, relu, tanh
from anyrnn.errors import CellError

MINE = """
from anyrnn import State, affine, cell, tanh

@cell
def mine(x, h):
    h = tanh(affine("h", x, h))
    return h, State(h=h)
"""
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(text: str, name: str = "of_mine.py") -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return written


@pytest.mark.parametrize(
    "spec", ["residual({}:mine)", "fast_slow(lstm, {}:mine, depth=3)", "normalised(residual({}:mine), 'rms')"]
)
def test_in_wrappers(write: Write, spec: str) -> None:
    file = write(MINE)
    assert cells.load(spec.format(file)).name == spec.replace("{}:", "").replace("depth=", "")


@pytest.mark.parametrize("spec", ["{}:leaky(leak=0.5)", "residual({}:leaky(leak=0.5))"])
def test_with_hyper_parameters(write: Write, spec: str) -> None:
    file = write(MINE.replace("mine(x, h)", "leaky(x, h, *, leak=0.1)").replace("tanh(aff", "leak * tanh(aff"))
    made = cells.load(spec.format(file))
    assert (made.name, made.values({})) == (spec.replace("{}:", ""), {"leak": 0.5})


KINDS = MINE.replace("mine(x, h)", "kinds(x, h, *, kind='a', f=tanh, more=None)").replace("= tanh(aff", "= f(aff")


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("kind='a:q'", {"kind": "a:q"}),
        ("kind=', (own0)'", {"kind": ", (own0)"}),
        ("f=relu", {"f": relu}),
        ("more=None", {}),
        ("more=-2.5", {"more": -2.5}),
    ],
)
@pytest.mark.parametrize("file", ["of_mine.py", "of (mine), x=1.py"])
def test_values_of_all_kinds(write: Write, written: str, values: dict[str, Any], file: str) -> None:
    made = cells.load(f"{write(KINDS, file)}:kinds({written})")
    assert made.values({}) == {"kind": "a", "f": tanh, "more": None, **values}


@pytest.mark.parametrize("spec", ["residual(ctrnn)(dt=0.5)", "residual(ctrnn(dt=0.5))", "ran(g=sigmoid)", "mgu"])
def test_the_name_of_a_cell_loads_it(spec: str) -> None:
    assert cells.load(spec).name == cells.load(cells.load(spec).name).name == spec


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("kind=lstm", "'kind' of cell 'kinds' should be text, got a Cell"),
        ("f='relu'", "'f' of cell 'kinds' should be a function, got 'relu'"),
        ("more=[1]", "the value of 'more' should be a cell, a number, True, False, None, the name of a function, or text in"),
        ("more=1/2", "the value of 'more' should be a cell"),
        ("more=nan", "unknown cell 'nan'"),
        ("more=own0", "unknown cell 'own0'"),
        ("kind='a', kind='b'", "an argument is given twice"),
        ("'a'", "hyper-parameters are given by name, as "),
        ("**mgu", "arguments are written as name=value"),
    ],
)
def test_values_that_cannot_be(write: Write, written: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message).replace("'", "['\"]")):
        cells.load(f"{write(KINDS)}:kinds({written})")


def test_many_cells_of_files(write: Write) -> None:
    """More than the name of a file could have."""
    assert len(cells.load(f"stacked({', '.join([f'{write(MINE)}:mine'] * 60)})").signature.states) == 60


def test_modules_beside_a_file_are_found_while_it_runs(write: Write) -> None:
    write("SIZE = 3\n", "beside_mine.py")
    before = list(sys.path)
    file = write(MINE.replace("\n@cell", "from beside_mine import SIZE\n\n@cell"))
    assert cells.load(f"{file}:mine").name == "mine"
    assert sys.path == before
    assert "of_mine" not in sys.modules


def test_a_file_with_a_dataclass_and_postponed_annotations(write: Write) -> None:
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass Sizes:\n    many: int = 3\n"
    assert cells.load(f"{write(head + MINE)}:mine").name == "mine"


def test_annotations_are_not_postponed_for_files_that_do_not_ask(write: Write) -> None:
    text = "from anyrnn import Vec\ndef made(many):" + MINE.replace("\n", "\n    ").replace("h):", "h: Vec(many)):")
    file = write(text.replace('affine("h", x, h)', 'affine("h", x, h, size=many)') + "\n    return mine\nmine = made(4)\n")
    assert [str(d) for d in cells.load(f"{file}:mine").trace().states[0].shape] == ["4"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_module_here\n", "of_mine.py:1: ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("x = 1\n1 / 0\n", "of_mine.py:2: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)\n", "of_mine.py:1: SystemExit: 3"),
        ("def mine(x, h):\n    return h\n", "of_mine.py:mine' is a function: put @cell above it"),
    ],
    ids=["import", "division", "exit", "function"],
)
def test_a_file_that_fails(write: Write, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        cells.load(f"{write(text)}:mine")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("h: Vec(many)", "the annotations of cell 'mine': name 'many' is not defined"),
        ("h: Vec(init='one')", "Vec: init should be a number, got 'one'"),
        ("h: Scalar(init=None)", "Scalar: init should be a number, got None"),
    ],
    ids=["name", "vector", "scalar"],
)
def test_annotations_that_fail(write: Write, argument: str, message: str) -> None:
    head = "from __future__ import annotations\nfrom anyrnn import Scalar, Vec\n"
    with pytest.raises(CellError, match=rf"of_mine.py:7: {message}"):
        cells.load(f"{write(head + MINE.replace('h):', argument + '):'))}:mine")


def test_annotations_that_fail_while_the_file_runs(write: Write) -> None:
    file = write("from anyrnn import Vec\n" + MINE.replace("h):", "h: Vec(0)):"))
    line = next(k for k, text in enumerate(file.read_text().splitlines(), 1) if "Vec(0)" in text)
    with pytest.raises(CellError, match=rf"^\S*of_mine.py:{line}: the size of Vec should be"):
        cells.load(f"{file}:mine")


@pytest.mark.parametrize(("name", "meant"), [("LSTM", "lstm"), ("ltsm", "lstm"), ("Ctrnn", "ctrnn")])
def test_slips(name: str, meant: str) -> None:
    with pytest.raises(ValueError, match=rf"unknown cell '{name}' \(did you mean '{meant}'\?\); `anyrnn cells` lists"):
        cells.load(name)
    with pytest.raises(ValueError, match=rf"unknown wrapper or cell '{name}' \(did you mean '{meant}'\?\); the wrappers are"):
        cells.load(f"{name}(dt=0.5)")


def test_a_folder_with_brackets(tmp_path: Path) -> None:
    (tmp_path / "project(copy)").mkdir()
    file = tmp_path / "project(copy)" / "of_mine.py"
    file.write_text(MINE)
    assert cells.load(f"{file}:mine").name == "mine"


def test_a_file_alone_is_answered_with_a_cell_of_its_own(write: Write) -> None:
    file = write("from anyrnn.cells import gru\n" + MINE)
    with pytest.raises(ValueError, match=r"write .*of_mine.py:mine$"):
        cells.load(str(file))
