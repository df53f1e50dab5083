import io
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import anyrnn
import anyrnn.compare
from anyrnn._files import held
from anyrnn.compare import options, record, schedule, training
from anyrnn.compare.program import Comparison
from anyrnn.errors import MissingExtraError
from anyrnn.train import requirements
from anyrnn.train.errors import UsageError

Compared = Callable[..., Comparison]
FILES = ["curves.png", "curves.svg", "final.png", "final.svg", "results.json", "table.csv", "table.md"]
TIMES = ("seconds", "steps_per_second", "session")


def content(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


def runs_of(folder: Path) -> list[dict[str, Any]]:
    """Those of a file, without what two machines would have different, in one order."""
    runs = [{name: value for name, value in run.items() if name not in TIMES} for run in content(folder)["runs"]]
    return sorted(runs, key=lambda run: [str(run[name]) for name in ("cell", "purpose", "learning_rate", "seed")])


def figures(found: Comparison) -> list[dict[str, Any]]:
    return [{name: value for name, value in cell.items() if name not in TIMES} for cell in found.summary["cells"]]


def press(monkeypatch: pytest.MonkeyPatch, when: int) -> None:
    """Press Ctrl-C in a training step."""
    real, calls = training._step, iter(range(1, 10**9))

    def pressed(*arguments: Any) -> float:
        if next(calls) == when:
            signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    monkeypatch.setattr(training, "_step", pressed)


def test_what_a_comparison_leaves(settings: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    found = anyrnn.compare.run(**settings())
    folder = tmp_path / "comparison"
    assert sorted(file.name for file in folder.iterdir()) == FILES
    kept = content(folder)
    assert kept["summary"] == found.summary
    assert kept["protocol"]["steps"] == 6
    assert kept["protocol"]["seeds"] == [0, 1]
    assert list(kept["cells"]) == ["gru", "indrnn"]
    assert len(kept["runs"]) == 4
    assert kept["sessions"][0]["versions"]["anyrnn"] == anyrnn.__version__
    assert kept["sessions"][0]["versions"]["torch"] == torch.__version__
    assert kept["sessions"][0]["command"] == sys.argv
    for name in ("curves", "final"):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        assert "</svg>" in (folder / f"{name}.svg").read_text()
    assert "gru" in str(found)
    assert found._repr_markdown_() == str(found)


def test_all_cells_meet_the_same_batches(compared: Compared, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: dict[tuple[str, int], list[bytes]] = {}
    real = schedule.train

    def train(plan: Any, *rest: Any) -> Any:
        seen = taken.setdefault((plan.cell, plan.seed), [])
        step = training._step
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                training, "_step", lambda n, o, t, batch, c: (seen.append(batch.inputs.tobytes()), step(n, o, t, batch, c))[1]
            )
            return real(plan, *rest)

    monkeypatch.setattr(schedule, "train", train)
    compared()
    assert taken["gru", 0] == taken["indrnn", 0] != taken["gru", 1]


def test_the_rate_is_chosen_with_other_seeds(compared: Compared, tmp_path: Path) -> None:
    found = compared(learning_rate=[1e-9, 0.03], tuning_seeds=1)
    assert [cell["learning_rate"] for cell in found.summary["cells"]] == [0.03, 0.03]
    runs = content(tmp_path / "comparison")["runs"]
    assert {run["seed"] for run in runs if run["purpose"] == "tuning"} == {10_000}
    assert all(run["test"] is None for run in runs if run["purpose"] == "tuning")
    assert {(run["learning_rate"], run["seed"]) for run in runs if run["purpose"] == "comparison"} == {(0.03, 0), (0.03, 1)}


@pytest.mark.parametrize("when", [1, 9, 40])
def test_an_interrupted_comparison_goes_on_to_the_same_bits(
    compared: Compared, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, when: int
) -> None:
    """In the first run to choose a rate by, in the second, and in one of those that are reported."""
    given = {"learning_rate": [0.003, 0.03], "tuning_seeds": 1}
    whole = compared(output=tmp_path / "whole", **given)
    with monkeypatch.context() as pressed:
        press(pressed, when)
        done = (when - 1) // 6
        said = f"interrupted after {done} of 8 runs; what had ended is kept in .*, and the same command goes on from there"
        with pytest.raises(KeyboardInterrupt, match=said):
            compared(**given)
    folder = tmp_path / "comparison"
    assert len(content(folder)["runs"]) == done
    assert not (folder / "table.md").exists()
    resumed = compared(**given)
    assert figures(resumed) == figures(whole)
    assert runs_of(folder) == runs_of(tmp_path / "whole")
    assert [run["session"] for run in content(folder)["runs"]] == [0] * done + [1] * (8 - done)
    for pair, expected in zip(resumed.summary["pairs"], whole.summary["pairs"], strict=True):
        assert pair == expected


def test_a_second_ctrl_c_ends_at_once(compared: Compared, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def twice(*arguments: Any) -> float:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("not reached")

    monkeypatch.setattr(training, "_step", twice)
    with pytest.raises(KeyboardInterrupt):
        compared()
    assert content(tmp_path / "comparison")["runs"] == []


def test_what_is_there_is_not_made_again(compared: Compared, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compared()
    monkeypatch.setattr(schedule, "train", None)
    again = compared()
    assert again.summary == first.summary


def test_another_cell_can_join(compared: Compared, tmp_path: Path) -> None:
    first = compared()
    both = compared(cells="indrnn,rnn_tanh")
    assert [cell["cell"] for cell in both.summary["cells"]] == ["indrnn", "rnn_tanh"]
    assert figures(both)[0]["figures"] == figures(first)[1]["figures"]
    kept = content(tmp_path / "comparison")
    assert [run["cell"] for run in kept["runs"]] == ["gru", "indrnn"] * 2 + ["rnn_tanh"] * 2
    assert list(kept["cells"]) == ["gru", "indrnn", "rnn_tanh"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"steps": 7},
            "results.json there is of a comparison with steps 6, not 7; give another folder, or the arguments of then",
        ),
        ({"seeds": 3}, "of a comparison with seeds 0, 1, not 0, 1, 2;"),
        ({"learning_rate": 0.02}, r"of a comparison with learning_rates 0\.01, not 0\.02;"),
        ({"task": "adding"}, "of a comparison with task digits, not adding;"),
        ({"equal": "parameters"}, "of a comparison with equal hidden, not parameters;"),
    ],
)
def test_a_folder_with_another_protocol_is_refused(
    compared: Compared, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    compared()
    before = (tmp_path / "comparison" / "results.json").read_bytes()
    with pytest.raises(UsageError, match=f"--output .*comparison: .*{message}"):
        compared(**changes)
    assert (tmp_path / "comparison" / "results.json").read_bytes() == before


def test_a_folder_with_other_data_is_refused(compared: Compared, monkeypatch: pytest.MonkeyPatch) -> None:
    compared()
    monkeypatch.setattr("anyrnn.train.identity.of_arrays", lambda arrays: "0" * 64)
    with pytest.raises(UsageError, match="is of a comparison with other data;"):
        compared()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2.0 * h", "3.0 * h", "has runs of .*mine with other equations;"),
        ("@cell", "@cell(init={'bias_ih g': 1.0})", "has runs of .*mine with other initial values;"),
    ],
)
def test_a_cell_that_has_changed_is_refused(compared: Compared, tmp_path: Path, old: str, new: str, message: str) -> None:
    text = "from anyrnn import State, affine, cell, tanh\n@cell\ndef mine(x, h):\n    h = tanh(affine('g', x, h))\n"
    file = tmp_path / "mine.py"
    file.write_text(text + "    return 2.0 * h, State(h=h)\n")
    compared(cells=f"{file}:mine")
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(UsageError, match=message):
        compared(cells=f"{file}:mine")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 0}', '{"format": 1, "runs": [{}]}'])
def test_a_damaged_record_is_refused(compared: Compared, tmp_path: Path, text: str) -> None:
    (tmp_path / "comparison").mkdir()
    (tmp_path / "comparison" / "results.json").write_text(text)
    with pytest.raises(UsageError, match=r"--output .*: results\.json there is damaged, or of another version of anyrnn"):
        compared()


def test_errors_come_before_any_work(compared: Compared, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(UsageError, match=r"--output .*taken: '.*taken' is a file, not a folder"):
        compared(output=tmp_path / "taken")
    with pytest.raises(UsageError, match="--cells: unknown cell 'grru'"):
        compared(cells="lstm,grru")
    with pytest.raises(UsageError, match="--batch 5000: there are only 1157 training sequences"):
        compared(batch=5000)
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]


def test_a_diverging_cell_is_counted(compared: Compared) -> None:
    found = compared(cells="gru,rnn_relu", learning_rate=1e12)
    gru, relu = found.summary["cells"]
    assert (relu["diverged"], relu["mean"], relu["figures"]) == (2, None, [None, None])
    assert gru["diverged"] == 0
    assert "rnn_relu: 2 of 2 runs diverged; none is left." in str(found)
    assert found.summary["pairs"][0]["seeds"] == 0


def test_a_rate_at_which_nothing_diverges_is_chosen(compared: Compared) -> None:
    found = compared(cells="rnn_relu", learning_rate=[0.003, 1e30], tuning_seeds=1)
    (cell,) = found.summary["cells"]
    assert (cell["learning_rate"], cell["diverged"], cell["diverged_while_tuning"]) == (0.003, 0, 1)
    assert "rnn_relu: 1 of the runs to choose the rate by diverged." in str(found)


def test_ragged_sequences(compared: Compared, shared: Callable[[str], Path]) -> None:
    found = compared(task="vowels", data=shared("data/japanese-vowels"), steps=60, seeds=2, hidden=16)
    assert all(cell["mean"] > 24 for cell in found.summary["cells"])


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    real = requirements.find_spec
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if name in missing else real(name))


def test_without_matplotlib_there_are_tables(compared: Compared, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without(monkeypatch, "matplotlib")
    found = compared()
    assert found.without == ('no pictures: drawing them needs matplotlib, which is not installed: pip install "anyrnn[plot]"')
    assert sorted(file.name for file in (tmp_path / "comparison").iterdir()) == ["results.json", "table.csv", "table.md"]


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (["tqdm"], '`anyrnn compare` needs tqdm, which is not installed: pip install "anyrnn[all]"'),
        (["torch"], '`anyrnn compare` needs torch, which is not installed: pip install "anyrnn[torch]"'),
        (["sklearn"], '`anyrnn compare` needs scikit-learn, which is not installed: pip install "anyrnn[all]"'),
    ],
)
def test_what_is_missing_is_named(compared: Compared, monkeypatch: pytest.MonkeyPatch, missing: list[str], message: str) -> None:
    without(monkeypatch, *missing)
    with pytest.raises(MissingExtraError) as raised:
        compared()
    assert str(raised.value) == message


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_over_all_runs_and_silence_in_a_pipe(compared: Compared, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    terminal, pipe = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    compared(learning_rate=[0.01, 0.02], tuning_seeds=1)
    shown = terminal.getvalue()
    assert "digits indrnn: 100%" in shown
    assert "48/48" in shown
    assert "run 8 of 8, seed 1, rate 0.0" in shown
    again = Terminal()
    monkeypatch.setattr(sys, "stderr", again)
    compared(cells="gru,rnn_tanh", learning_rate=[0.01, 0.02], tuning_seeds=1)
    assert "digits rnn_tanh: 100%" in again.getvalue()
    monkeypatch.setattr(sys, "stderr", pipe)
    compared(output=tmp_path / "other")
    assert pipe.getvalue() == ""


def test_threads_hold_for_the_comparison_only(compared: Compared, tmp_path: Path) -> None:
    compared(cells="gru", threads=2)
    assert content(tmp_path / "comparison")["sessions"][0]["threads"] == 2
    assert torch.get_num_threads() == 1


def test_the_files_are_those_that_are_checked_for() -> None:
    from anyrnn.compare import program

    assert sorted(program.FILES) == FILES
    assert record.RESULTS in program.FILES
    assert set(options.DEFAULTS) >= set(options.FILES)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("cells", "gru"), 3),
        (("cells",), []),
        (("sessions",), [1]),
        (("runs", 0, "seed"), "0"),
        (("runs", 0, "validations"), None),
        (("runs", 0, "test"), None),
        (("runs", 0, "seconds"), None),
        (("runs", 0, "steps_per_second"), "a"),
        (("runs", 0, "session"), 99),
        (("runs", 0, "test", "loss"), float("nan")),
    ],
    ids=str,
)
def test_a_record_of_another_content_is_refused(compared: Compared, tmp_path: Path, place: tuple[Any, ...], value: Any) -> None:
    asked = {"cells": "gru", "seeds": 1, "learning_rate": 0.01}
    compared(**asked)
    inner: Any = content(tmp_path / "comparison")
    kept = inner
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    (tmp_path / "comparison" / "results.json").write_text(json.dumps(kept))
    with pytest.raises(UsageError, match=r"--output .*: results\.json there is damaged, or of another version of anyrnn"):
        compared(**asked)


def test_one_comparison_at_a_time(compared: Compared, tmp_path: Path) -> None:
    (tmp_path / "comparison").mkdir()
    with held(tmp_path / "comparison"), pytest.raises(UsageError, match="another comparison is at work there"):
        compared()
    compared(cells="gru", seeds=1)
