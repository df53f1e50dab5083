"""`check`: what it says of wrong cells and of right ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from anyrnn import Scalar, Several, Step, Vec, cell, cells, concat, equal, log, relu, split, sqrt, vector, where
from anyrnn.trace import Cell, State
from anyrnn.trace.language import affine, scope, sigmoid, stop_gradient, tanh
from anyrnn.workbench import check, checking
from tests.workbench import wrong_cells
from tests.zoo import EVERY

FILE = Path(wrong_cells.__file__)
WRONG = {name: value for name, value in vars(wrong_cells).items() if isinstance(value, Cell)}


def expected(name: str) -> tuple[int, str]:
    """The line with the fault, and what is to be said of it."""
    lines = FILE.read_text().splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith(f"def {name}("))
    for k in range(start, len(lines)):
        _, comment, says = lines[k].partition("# fault: ")
        if comment:
            return k + 1, says
    raise AssertionError(name)


def test_there_are_many() -> None:
    assert len(WRONG) >= 20


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_is_named_with_its_line(name: str, quick_compile: None) -> None:
    line, says = expected(name)
    report = check(WRONG[name], timed=False)
    assert report.faults, f"nothing was found wrong with {name}"
    found = [fault for fault in report.faults if re.search(says, fault.what)]
    assert found, f"{report}"
    places = {fault.where.rpartition(":")[2] for fault in found}
    assert str(line) in places, f"line {line} expected: {report}"
    assert all(Path(fault.where.rpartition(":")[0]).name == FILE.name for fault in found)


@pytest.mark.parametrize("name", EVERY)
def test_nothing_is_wrong_with_the_built_in_ones(name: str, quick_compile: None) -> None:
    report = check(name, timed=False)
    assert report.faults == []
    assert report.ok
    assert report.kernel_error is not None
    assert report.kernel_error < 1e-12


@cell
def of_28_features(x, h):  # type: ignore[no-untyped-def]
    first, rest = split(x, [14, "input - 14"])
    h = tanh(affine("n", h, first=first, rest=rest))
    return h, State(h=h)


@cell
def of_201_features(x, h):  # type: ignore[no-untyped-def]
    rest, last = split(h, ["hidden - 200", 200])
    h = tanh(affine("n", x, rest=rest, last=last))
    return h, State(h=h)


@cell
def of_seven_heads(x, h):  # type: ignore[no-untyped-def]
    h = tanh(affine("n", x, h, heads=7))
    return h, State(h=h)


@cell
def of_times(x, h, dt: Step(1)):  # type: ignore[no-untyped-def, valid-type]
    g = sigmoid(affine("g", x) + log(1 + dt))
    h = g * h + (1 - g) * tanh(affine("n", x, h))
    return h, State(h=h)


@cell
def of_masks(x, h, m: Step(1)):  # type: ignore[no-untyped-def, valid-type]
    h = where(equal(m, 1.0), tanh(affine("n", x, h)), h)
    return h, State(h=h)


@cell
def with_a_choice(x, h, *, activation="tanh"):  # type: ignore[no-untyped-def]
    h = {"tanh": tanh, "sigmoid": sigmoid}[activation](affine("n", x, h))
    return h, State(h=h)


@cell
def with_a_delay(x, h, *past: Several("delay"), delay=3):
    new = tanh(affine("n", x, h=past[-1]))
    return new, State(h=new, past=(h, *past[:-1]))


@cell
def with_an_option(x, h, *, leaky=False, keep=0.5):  # type: ignore[no-untyped-def]
    n = tanh(affine("n", x, h))
    h = keep * h + (1 - keep) * n if leaky else n
    return h, State(h=h)


FINE = [with_an_option, with_a_delay, of_28_features, of_201_features, of_times, of_masks, with_a_choice]


@pytest.mark.parametrize("fine", FINE, ids=str)
def test_nothing_is_wrong_with_these(fine: Cell, quick_compile: None) -> None:
    assert check(fine, timed=False).faults == []


def test_a_step_that_is_too_long_for_any_backend() -> None:
    @cell
    def long(x, h):  # type: ignore[no-untyped-def]
        h = tanh(affine("h", x, h))
        for _ in range(4000):
            h = h + 0.001 * tanh(h)
        return h, State(h=h)

    report = check(long, timed=False)
    assert "ops in a step; plans are made of 10000 at most" in report.faults[-1].what


def test_sizes_that_are_asked_for_are_tried(quick_compile: None) -> None:
    assert check(of_seven_heads, timed=False, input_size=28, hidden_size=14).faults == []
    [fault] = check(of_seven_heads, timed=False, input_size=28, hidden_size=15).faults
    assert fault.what == "cell 'of_seven_heads': the size hidden/7 is not a whole number for hidden=15"


@cell
def with_a_gain_of_zero(x, h):  # type: ignore[no-untyped-def]
    h = 0.9 * h + vector("g", init=0.0) * tanh(affine("n", x, h))
    return h, State(h=h)


@cell
def large(x, h):  # type: ignore[no-untyped-def]
    h = 0.5 * h + 1000 * tanh(affine("n", x, h))
    return h / 1000, State(h=h)


@pytest.mark.parametrize(("doubtful", "says"), [(with_a_gain_of_zero, "as the cell begins"), (large, "does not grow")], ids=str)
def test_what_looks_wrong_and_may_be_right_is_a_warning(doubtful: Cell, says: str, quick_compile: None) -> None:
    report = check(doubtful, timed=False)
    assert report.ok
    [fault] = report.faults
    assert fault.severity == "warning"
    assert says in fault.what


def test_features_that_move_do_not_go_their_own_way() -> None:
    @cell
    def rotating(x: Vec("hidden"), h):  # type: ignore[no-untyped-def, valid-type]
        most, last = split(h, ["hidden - 1", 1])
        h = 0.9 * concat(last, most) + x
        return tanh(h), State(h=h)

    assert check(rotating, timed=False).limits == ["1 forward, 1 backward"]


def test_what_limits_a_cell() -> None:
    assert check("gru_before", timed=False).limits == [
        "2 forward, 2 backward",
        "weight_hh[r]·h needs all of h",
        "weight_hh[n]·(r * h) needs all of r * h",
    ]
    assert check("indrnn", timed=False).limits == ["0 forward, 0 backward: each feature goes its own way through the steps"]


def test_times(quick_compile: None) -> None:
    report = check("mgu", hidden_size=8, input_size=3)
    assert report.inference is not None
    assert report.training is not None
    assert min(report.inference.milliseconds, report.training.milliseconds) > 0
    assert report.inference.flops == 2 * 28 * 200 * 2 * 8 * (3 + 8)
    assert report.training.lstm_flops == 3 * 2 * 28 * 200 * 4 * 8 * (3 + 8)
    text = str(report)
    for word in ("of an LSTM's time", "no faults found", "compiled", "H = 8"):
        assert word in text


def test_further_inputs_and_sizes(quick_compile: None) -> None:
    @cell
    def driven(x, h, dt: Step(2)):
        h = h + 0.1 * (tanh(affine("h", x, h, dt)) - h)
        return h, State(h=h)

    assert check(driven, timed=False).ok
    assert check("lstm_projected", hidden_size=8, proj=3).ok


def test_what_may_be_meant_is_a_warning(quick_compile: None) -> None:
    @cell
    def detached(x, h):
        h = tanh(affine("h", x, h=stop_gradient(h)))
        return h, State(h=h)

    report = check(detached, timed=False)
    assert report.ok
    (fault,) = report.faults
    assert fault.severity == "warning"
    assert "no gradient reaches state 'h': all that reads it goes through stop_gradient" in fault.what
    assert report.gradient_error is None


def test_what_is_shared_by_mistake_is_a_warning(quick_compile: None) -> None:
    @cell
    def copied(x, h):
        z = sigmoid(affine("z", x, h))
        n = tanh(affine("z", x, h))
        h = (1 - z) * n + z * h
        return h, State(h=h)

    @cell
    def twice(x, h, g):
        y, new_h = cells.gru(x, h)
        z, new_g = cells.gru(x, g)
        return y + z, State(h=new_h.h, g=new_g.h)

    @cell
    def apart(x, h, g):
        y, new_h = cells.gru(x, h)
        with scope("other"):
            z, new_g = cells.gru(x, g)
        return y + z, State(h=new_h.h, g=new_g.h)

    (fault,) = check(copied, timed=False).faults
    first = copied.function.__code__.co_firstlineno + 2
    assert fault.what == f"gate 'z' of x, h is asked for in lines {first} and {first + 1}: it is the same value"
    (fault,) = check(twice, timed=False).faults
    first = twice.function.__code__.co_firstlineno + 2
    assert fault.what.startswith(f"cell 'gru' is called in lines {first} and {first + 1}: they share all parameters")
    assert check(apart, timed=False).faults == []


def test_rows_shared_with_a_built_in_cell_are_told() -> None:
    @cell
    def beside(x, h, m):  # type: ignore[no-untyped-def]
        y, state = cells.gru(x, h)
        m = tanh(affine("n", x, m))
        return y + m, State(h=state.h, m=m)

    faults = check(beside, timed=False).faults
    first = beside.function.__code__.co_firstlineno + 2
    assert [f.what for f in faults if "they share its weights" in f.what] == [
        f"gate 'n' is asked for in lines {first} and {first + 1}: they share its weights"
    ]


def test_lines_that_are_shared_once_are_told_once() -> None:
    """Neither rounds of a recursion nor the gates of a cell that is called twice."""

    def deep(levels, x, h):  # type: ignore[no-untyped-def]
        return h if levels == 0 else deep(levels - 1, x, tanh(affine("a", x, h=h)))

    @cell
    def recursive(x, h):  # type: ignore[no-untyped-def]
        h = deep(3, x, h)
        return h, State(h=h)

    @cell
    def inner(x, h):  # type: ignore[no-untyped-def]
        z = sigmoid(affine("z", x, h))
        h = z * h + (1 - z) * tanh(affine("n", x, h))
        return h, State(h=h)

    @cell
    def outer(x, h, g):  # type: ignore[no-untyped-def]
        y, a = inner(x, h)
        z, b = inner(x, g)
        return y + z, State(h=a.h, g=b.h)

    assert recursive.trace().warnings == ()
    ((_, what),) = outer.trace().warnings
    assert what.startswith("cell 'inner' is called in lines")


def test_kernels_that_give_nan_are_wrong(monkeypatch: pytest.MonkeyPatch, quick_compile: None) -> None:
    right = checking._results

    def wrong(layer: Any, x: Any, further: Any) -> dict[str, Any]:
        found = right(layer, x, further)
        last = list(found)[-1]
        return found | ({last: found[last] * float("nan")} if layer.backend_name == "llvm" else {})

    monkeypatch.setattr(checking, "_results", wrong)
    (fault,) = check("rnn_tanh", timed=False).faults
    assert "kernels and reference differ in the gradient of bias_hh_l0 by nan" in fault.what


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"hidden_size": -1}, "hidden_size must be greater than zero"),
        ({"input_size": 0}, "input_size must be greater than zero"),
        ({"hidden": 3}, r"cell 'lstm' has no size 'hidden' \(did you mean 'hidden_size'\?\); it has no others"),
    ],
    ids=["hidden", "input", "name"],
)
def test_sizes_that_cannot_be(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check("lstm", timed=False, **sizes)


def test_why_a_gradient_is_not_compared() -> None:
    assert "gradient   not compared: floor has not the derivative of its values" in str(check("clockwork", timed=False))


def test_flops_are_those_of_all_products() -> None:
    report = check("ltc", input_size=8, hidden_size=16)
    assert report.inference is not None
    assert report.inference.flops == 2 * 28 * 200 * (8 * 16 + 6 * 16 * 16)


@pytest.mark.parametrize(
    ("spec", "message"),
    [("lstmm", "unknown cell 'lstmm'"), (3, "cell should be a Cell"), ("nowhere.py:mine", "there is no file 'nowhere.py'")],
)
def test_what_is_no_cell(spec: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=message):
        check(spec)


def test_a_file_whose_cell_cannot_be_made(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from anyrnn import *\n\n@cell\ndef mine(x):\n    return x, State()\n")
    report = check(f"{file}:mine", timed=False)
    (fault,) = report.faults
    assert fault.where.startswith(f"{file}:")
    assert "has no state" in fault.what
    assert cells.load("lstm") is cells.lstm


def test_heads_that_do_not_divide_16(quick_compile: None) -> None:
    @cell
    def three(x, h, *, heads=3):  # type: ignore[no-untyped-def]
        h = tanh(affine("h", x) + affine("r", h=h, heads=heads))
        return h, State(h=h)

    assert check(three, timed=False).faults == []


def test_a_number_that_doubles(quick_compile: None) -> None:
    @cell
    def doubling(x, h, t: Scalar(1.0)):  # type: ignore[no-untyped-def,valid-type]
        h = tanh(affine("u", x, h)) * (t / (t + 1))
        return h, State(h=h, t=2 * t)

    (fault,) = check(doubling, timed=False).faults
    assert re.search(r"state 't' grows: its norm is over 1e\+06 after 20 steps", fault.what)


def test_a_state_that_adds_up(quick_compile: None) -> None:
    """It may be meant, so all else is looked at too."""

    @cell
    def adding(x, h, k):  # type: ignore[no-untyped-def]
        k = k + sigmoid(affine("k", x))
        h = tanh(affine("h", x, h)) * relu(k) / (1 + relu(k))
        return h, State(h=h, k=k)

    report = check(adding, timed=False)
    (fault,) = report.faults
    assert fault.severity == "warning"
    assert re.search(r"state 'k' grows: its norm is over 1000 after \d+ steps .*; it adds up, step by step", fault.what)
    assert report.gradient_error is not None


def test_a_state_that_is_nan_after_a_while(quick_compile: None) -> None:
    @cell
    def rooted(x, h, t: Scalar(0.0)):  # type: ignore[no-untyped-def,valid-type]
        h = tanh(affine("u", x, h)) + 0 * sqrt(50.5 - t)
        return h, State(h=h, t=t + 1)

    (fault,) = check(rooted, timed=False).faults
    assert re.search(r"state 'h' is NaN after 52 steps", fault.what)
