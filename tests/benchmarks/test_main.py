import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as program
from benchmarks import machine, peers
from benchmarks.__main__ import main
from benchmarks.child import ChildError
from benchmarks.journal import Journal
from benchmarks.measure import Timing
from benchmarks.peers import PEERS, Peer
from benchmarks.result import Result
from benchmarks.run import Settings
from benchmarks.suite import Row
from benchmarks.targets import TARGETS

ROWS = (Row("lstm", 5, 3, 4, 6), Row("gru_before", 5, 3, 4, 6, "training"), Row("gru", 1, 1, 6, 6, "streaming"))


@pytest.fixture(autouse=True)
def _threads_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "set_threads", lambda threads: None)


def test_a_whole_run(suite: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite(*ROWS)
    file = tmp_path / "results" / "one.json"
    assert main(["--no-compile", "--threads", "1", "--json", str(file)]) == 0
    shown = capsys.readouterr()
    for row in ROWS:
        assert f"\n{row.name} " in shown.out
        assert f"] {row.name}\n" in shown.err
    assert "geometric mean of ratios" in shown.out
    assert "p99 us" in shown.out
    found = json.loads(file.read_text())
    assert [row["name"] for row in found["rows"]] == [row.name for row in ROWS]
    assert found["settings"]["threads"] == 1
    assert found["memory_gigabytes_per_second"] > 0
    inference, training, stream = found["rows"]
    assert min(inference["product_gflops"], inference["read_gigabytes_per_second"], inference["bandwidth_fraction"]) > 0
    assert training["product_gflops"] > 0
    assert training["read_gigabytes_per_second"] is None
    assert stream["product_gflops"] is None
    assert {"cpu", "cores", "features"} <= found["machine"].keys()
    assert {"python", "torch", "numpy", "llvmlite"} <= found["versions"].keys()
    assert set(found["rows"][0]["systems"]) == {"anyrnn", "torch"}
    assert set(found["rows"][1]["systems"]) == {"anyrnn", "equations", "eager"}
    assert len(found["rows"][0]["systems"]["torch"]["block_medians_ms"]) == 2


@pytest.mark.parametrize(("more", "again"), [(["--resume"], False), ([], True)], ids=lambda v: str(v))
def test_a_run_that_was_stopped_goes_on(
    more: list[str],
    again: bool,
    suite: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the same settings, and when asked to."""
    suite(*ROWS[1:])
    file, measured = tmp_path / "one.json", program.run_row

    def stopped(row: Row, *given: Any) -> Any:
        if row == ROWS[2]:
            raise KeyboardInterrupt
        return measured(row, *given)

    arguments = ["--no-compile", "--threads", "1", "--peers", "eager", "--json", str(file)]
    monkeypatch.setattr(program, "run_row", stopped)
    assert main(arguments) == program.INTERRUPTED
    (before,) = json.loads(file.read_text())["rows"]
    with file.with_suffix(".rows").open("a") as journal:
        journal.write('{"row": {"cell": "ls')  # a process that was killed meanwhile
    monkeypatch.setattr(program, "run_row", measured)
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([*arguments, "--resume", "--dtype", "float64"])
    other = "one.rows has rows of another run (settings dtype), which a run without --resume replaces"
    assert other in capsys.readouterr().err
    assert main([*arguments, *more]) == 0
    assert (f"] {ROWS[1].name}\n" in capsys.readouterr().err) == again
    rows = json.loads(file.read_text())["rows"]
    assert [row["name"] for row in rows] == [row.name for row in ROWS[1:]]
    assert (rows[0]["systems"] == before["systems"]) != again
    assert not file.with_suffix(".rows").exists()


def test_missing_peers_are_named(
    suite: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite(ROWS[0])
    monkeypatch.setitem(PEERS, "jax", Peer(lambda: "not installed: pip install jax", PEERS["jax"].build))
    file = tmp_path / "one.json"
    assert main(["--no-compile", "--peers", "jax,torch", "--json", str(file)]) == 0
    shown = capsys.readouterr()
    assert "peer jax: not installed: pip install jax" in shown.out
    assert "peer jax: not installed: pip install jax" in shown.err
    found = json.loads(file.read_text())
    assert found["missing_peers"] == {"jax": "not installed: pip install jax"}
    assert found["settings"]["peers"] == ["torch"]


def test_what_a_peer_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None if name == "onnx" else object())
    assert PEERS["onnxruntime"].why_missing() == "not installed: pip install onnx"
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    assert PEERS["onnxruntime"].why_missing() == "not installed: pip install onnxruntime onnx"
    monkeypatch.setattr(peers.shutil, "which", lambda name: None)
    assert PEERS["torch.compile"].why_missing() == "no C++ compiler, which torch.compile needs"


def test_a_broken_row_makes_the_status_1(suite: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    suite(ROWS[0], Row("no_such_cell", 5, 3, 4, 6))
    assert main(["--no-compile", "--peers", "torch"]) == 1
    assert "FAILED no_such_cell 5x3x4x6 inference: ValueError: unknown cell" in capsys.readouterr().out


@pytest.mark.slow
def test_a_broken_compile_costs_nothing_else(
    suite: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(cell: str, settings: program.Settings) -> tuple[float, float]:
        raise ChildError("NameError: name 'x' is not defined")

    suite(ROWS[0])
    monkeypatch.setattr(program, "time_compiles", broken)
    assert main([]) == 1
    shown = capsys.readouterr().out
    assert f"\n{ROWS[0].name} " in shown
    assert "FAILED compile of lstm: NameError: name 'x' is not defined" in shown


def test_an_interrupted_run_shows_what_there_is(
    suite: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite(*ROWS)
    run_row = program.run_row

    def interrupted(row: Row, *others: Any) -> program.Result:
        if row == ROWS[1]:
            raise KeyboardInterrupt
        return run_row(row, *others)

    monkeypatch.setattr(program, "run_row", interrupted)
    assert main(["--no-compile"]) == 130
    shown = capsys.readouterr().out
    assert f"\n{ROWS[0].name} " in shown
    assert ROWS[1].name not in shown


def test_rows_are_chosen_by_name(suite: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    suite(*ROWS)
    assert main(["--no-compile", "--rows", "^gru_before.*training$"]) == 0
    assert "[1/1] gru_before 5x3x4x6 training" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--peers", "torch,tensorflow"], f"unknown peer 'tensorflow'; there are {', '.join(PEERS)}"),
        (["--rows", "("], "'(' is not a regular expression"),
        (["--rows", "transformer"], "--rows 'transformer' matches no row of suite 'quick'"),
        (["--threads", "0"], "expected a whole number above zero, got '0'"),
        (["--suite", "slow"], "invalid choice: 'slow'"),
        (["--resume"], "--resume is for runs with --json, whose rows are kept"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert words in capsys.readouterr().err


@pytest.mark.slow
def test_a_picture_and_a_file_of_the_day(suite: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    suite(*ROWS)
    monkeypatch.setattr(program, "__file__", str(tmp_path / "benchmarks" / "__main__.py"))
    monkeypatch.setattr(program.machine, "_cpu_model", lambda: "A CPU (tm) 9000")
    assert main(["--no-compile", "--plot", str(tmp_path / "picture.png"), "--json"]) == 0
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    (file,) = (tmp_path / "benchmarks" / "results").iterdir()
    assert re.fullmatch(r"20\d\d-\d\d-\d\d-a-cpu-tm-9000-[a-z0-9-]+\.json", file.name)
    assert len(json.loads(file.read_text())["rows"]) == len(ROWS)


def test_a_picture_of_another_kind_is_refused(suite: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    suite(ROWS[0])
    with pytest.raises(SystemExit):
        main(["--plot", "picture.doc"])
    assert "expected a name that ends in .png, .svg or .pdf, got 'picture.doc'" in capsys.readouterr().err


def test_memory_of_calls(suite: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    suite(Row("lstm", 5, 3, 4, 6, "training"))
    monkeypatch.setattr(program, "measure_memory", lambda row, system, settings: {"anyrnn": 3 << 20, "torch": 2 << 20}[system])
    assert main(["--no-compile", "--memory"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"\nlstm 5x3x4x6 training +3.0 +2.0\n", shown)
    assert "a step takes 3.0 MiB at the most, should be no more than torch's 2.0 MiB" in shown


@pytest.mark.slow
@pytest.mark.parametrize("again", [True, False])
def test_rows_are_measured_again_when_asked(
    again: bool, suite: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite(ROWS[0])
    monkeypatch.setattr(program, "measure_again", lambda run, measure, near: [(0, measure(run.results[0].row))])
    assert main(["--no-compile", "--peers", "torch", *(["--again"] if again else [])]) == 0
    assert (f"again: {ROWS[0].name}\n" in capsys.readouterr().err) is again


def test_what_was_measured_again_is_kept_when_a_run_is_stopped(
    suite: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row is in the file as soon as all its runs are done, and runs that were done are not done again."""
    suite(*ROWS[:2])
    runs: list[Row] = []
    most = 4

    def quick(row: Row, *given: Any) -> Result:
        if len(runs) == most:
            raise KeyboardInterrupt
        runs.append(row)
        ratio = {1: 0.5, 3: 0.4}.get(len(runs), 0.6)
        return Result(row, "ok", "", {"anyrnn": Timing(((1.0,),)), "torch": Timing(((ratio,),))}, 6)

    monkeypatch.setattr(program, "run_row", quick)
    monkeypatch.setattr("benchmarks.again.figures", lambda run: [(TARGETS[0], r, r.ratios["torch"]) for r in run.results])
    file = tmp_path / "one.json"
    arguments = ["--no-compile", "--threads", "1", "--peers", "torch", "--again", "--json", str(file)]
    assert main(arguments) == program.INTERRUPTED
    assert runs == [*ROWS[:2], ROWS[0], ROWS[0]]
    first, second = json.loads(file.read_text())["rows"]
    assert first["notes"] == ["the middle one of 3 runs, ratio to the best 0.50, 0.40, 0.60"]
    assert second["notes"] == []
    most = 6
    assert main([*arguments, "--resume"]) == 0
    assert runs[4:] == [ROWS[1], ROWS[1]]
    rows = json.loads(file.read_text())["rows"]
    assert (rows[0]["systems"], rows[0]["notes"]) == (first["systems"], first["notes"])
    assert rows[1]["notes"] == ["the middle one of 3 runs, ratio to the best 0.60, 0.60, 0.60"]


@pytest.mark.slow
def test_what_was_measured_is_kept_before_it_is_measured_again(
    suite: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    suite(*ROWS)

    def stopped(run: Any, measure: Any, near: float) -> Any:
        raise RuntimeError("the machine went away")

    monkeypatch.setattr(program, "measure_again", stopped)
    with pytest.raises(RuntimeError, match="went away"):
        main(["--no-compile", "--peers", "torch", "--again", "--json", str(tmp_path / "kept.json")])
    rows = json.loads((tmp_path / "kept.json").read_text())["rows"]
    assert len(rows) == len(ROWS)


@pytest.mark.parametrize("cut", ['{"a": {"b": 1}', '{"a": "b', "{"])
def test_a_line_that_is_cut_off_loses_no_other(cut: str, tmp_path: Path) -> None:
    """However it ends."""
    journal = Journal(tmp_path / "r.json", Settings(), {"cpu": "one"}, {"commit": "c"})
    journal.begin({})
    journal.add(Result(Row("lstm", 5, 3, 4, 6), "declined", "no"))
    with journal.path.open("a") as file:
        file.write(cut)
    assert [row.name for row in journal.read()] == [Row("lstm", 5, 3, 4, 6).name]
    journal.path.write_text("")  # as a run leaves it that is ended while it begins
    assert journal.read() == {}


def test_what_is_measured_is_a_part_of_the_versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever git says of it."""
    before = machine.versions()["sources"]
    assert re.fullmatch("[0-9a-f]{12}", before)
    (tmp_path / "anyrnn").mkdir()
    (tmp_path / "anyrnn" / "__init__.py").write_text("")
    monkeypatch.setattr(machine.anyrnn, "__file__", str(tmp_path / "anyrnn" / "__init__.py"))
    assert machine.versions()["sources"] != before
