"""How `make gpu` goes through what there is to do, what it writes and how it ends: without a device."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from anyrnn.backends.triton import tape
from anyrnn.backends.triton.device import Device
from benchmarks.gpu import __main__ as gpu
from benchmarks.suite import Row

pytest.importorskip("triton")
from benchmarks.gpu import checks, items, speeds, steps, worker

PROCESS = """
import json, os, sys, time
items = {items}
print(json.dumps([item[:2] for item in items]), flush=True)
for line in sys.stdin:
    part, name, timed = json.loads(line)
    found = next(found for p, n, found in items if (p, n) == (part, name))
    if found == "hangs":
        time.sleep(60)
    if found == "dies":
        os._exit(7)
    if part != "checks":
        open({log!r}, "a").write(f"{{name}} {{timed}}\\n")
    print(json.dumps([found, found != "FAILED CUDA error"]), flush=True)
    if found == "FAILED CUDA error":
        sys.exit(1)
"""


def run(
    monkeypatch: pytest.MonkeyPatch, folder: Path, there: list[tuple[str, str, Any]], *more: str, versions: str = "here"
) -> tuple[int, Any, list[str]]:
    monkeypatch.setattr(gpu, "device", lambda: {"device": "Some Device", "versions": versions, "date": "first"})
    monkeypatch.setattr(gpu, "SECONDS", 3)
    monkeypatch.setattr(sys, "argv", ["gpu", "--json", str(folder / "found.json"), *more])
    log = folder / "log"
    log.touch()
    status = gpu.main([sys.executable, "-c", PROCESS.format(items=there, log=str(log))])
    return status, json.loads((folder / "found.json").read_text()), log.read_text().splitlines()


GOOD = [
    ("checks", "a", "ok 0"),
    ("choice", "b", "ok 1"),
    ("ceilings", "copy", 2.5),
    ("rows", "lstm", {"triton": 1.5, "cudnn": 2.5}),
]


def test_all_is_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status, found, log = run(monkeypatch, tmp_path, [*GOOD, ("checks", "two devices", "NOT HERE: there is one")])
    assert status == 0
    assert (found["wrong"], found["failed"], found["not_measured"]) == ([], [], [])
    assert found["not_here"] == {"checks: two devices": "there is one"}
    assert (found["checks"], found["choice"]) == ({"a": "ok 0"}, {"b": "ok 1"})
    assert (found["ceilings"], found["rows"]) == ({"copy": 2.5}, {"lstm": {"triton": 1.5, "cudnn": 2.5}})
    assert sorted(log[:2]) == ["copy False", "lstm False"]
    assert log[2:] == ["b True", "copy True", "lstm True"]


@pytest.mark.parametrize(
    ("one", "what"),
    [
        (("checks", "c", "WRONG 3e-1"), {"wrong": ["c"]}),
        (("choice", "c", "FAILED RuntimeError: no"), {"wrong": ["c"]}),
        (("rows", "gru", {"triton": 1.0, "cudnn": "FAILED ValueError: no"}), {"failed": ["rows: gru"]}),
        (("rows", "gru", "hangs"), {"failed": ["rows: gru"]}),
        (("kernels", "all of it", "FAILED ValueError: no device to ask"), {"failed": ["kernels: all of it"]}),
        (("checks", "c", "dies"), {"wrong": ["c"]}),
        (("checks", "c", "FAILED CUDA error"), {"wrong": ["c"]}),
    ],
)
def test_what_breaks_makes_the_status_1_and_leaves_the_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, one: tuple[str, str, Any], what: dict[str, list[str]]
) -> None:
    status, found, _ = run(monkeypatch, tmp_path, [one, *GOOD])
    assert status == 1
    assert {"wrong": found["wrong"], "failed": found["failed"]} == {"wrong": [], "failed": []} | what
    assert found["not_measured"] == []
    assert (found["checks"]["a"], found["choice"]["b"], found["ceilings"]["copy"]) == ("ok 0", "ok 1", 2.5)


def test_why_an_item_did_not_come_to_an_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, found, _ = run(monkeypatch, tmp_path, [("checks", "c", "dies"), ("rows", "r", "hangs"), *GOOD])
    assert found["checks"]["c"] == "FAILED: its process ended with status 7"
    assert found["rows"]["r"] == "FAILED: not done after 3 s"


def test_what_comes_too_late_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status, found, log = run(monkeypatch, tmp_path, GOOD, "--minutes", "0")
    assert (status, found["checks"], log) == (1, {}, [])
    assert found["not_measured"] == ["checks: a", "choice: b", "ceilings: copy", "rows: lstm"]


def test_some_items_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of which the file says which they are."""
    status, found, log = run(monkeypatch, tmp_path, GOOD, "--only", "^checks|: cop.$")
    assert (status, found["only"]) == (0, "^checks|: cop.$")
    assert (found["checks"], found["choice"], found["rows"], found["not_measured"]) == ({"a": "ok 0"}, {}, {}, [])
    assert log == ["copy False", "copy True"]
    assert run(monkeypatch, tmp_path, GOOD, "--only", "^ceilings")[0] == 0


def test_what_is_left_of_a_run_is_added_to_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = [("checks", "c", "WRONG 3e-1"), ("rows", "gru", {"triton": 1.0, "cudnn": "FAILED ValueError: no"})]
    run(monkeypatch, tmp_path, [*GOOD[:3], *broken])
    file = tmp_path / "found.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"not_measured": ["rows: lstm"]}))
    mended = [
        *GOOD[:2],
        ("ceilings", "copy", 3.5),
        GOOD[3],
        ("checks", "c", "ok 1"),
        ("rows", "gru", {"triton": 1.0, "cudnn": 2.0}),
    ]
    status, found, _ = run(monkeypatch, tmp_path, mended, "--rest", "--only", "^rows: gru")
    assert (status, found["wrong"], found["failed"], found["not_measured"]) == (1, ["c"], [], ["rows: lstm", "checks: c"])
    status, found, log = run(monkeypatch, tmp_path, mended, "--rest")
    assert (status, found["wrong"], found["failed"], found["not_measured"]) == (0, [], [], [])
    assert found["checks"] == {"a": "ok 0", "c": "ok 1"}
    assert found["ceilings"] == {"copy": 2.5}
    assert found["rows"] == {"lstm": {"triton": 1.5, "cudnn": 2.5}, "gru": {"triton": 1.0, "cudnn": 2.0}}
    assert found["began"] == ["first", "first"]
    assert log[-2:] == ["lstm False", "lstm True"]
    file.write_text(
        json.dumps({k: v for k, v in found.items() if k not in ("wrong", "failed")} | {"not_measured": ["rows: lstm"]})
    )
    assert run(monkeypatch, tmp_path, mended, "--rest")[0] == 0  # of a run that was stopped
    for other, why in (
        ({}, "there is nothing left"),
        ({"versions": "of others"}, "that file has other versions: here, and here are of"),
    ):
        with pytest.raises(SystemExit):
            run(monkeypatch, tmp_path, mended, "--rest", **other)
        assert why in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[]", "{}", '{"device": "Some Device", "versions": "here"}', "no JSON"])
def test_only_a_report_has_a_rest(
    text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "found.json").write_text(text)
    with pytest.raises(SystemExit):
        run(monkeypatch, tmp_path, GOOD, "--rest")
    assert "--rest: " in capsys.readouterr().err


def test_programs_that_read_weights_are_not_those_of_other_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape, "TAPES", OrderedDict({"held": None}))
    monkeypatch.setattr(checks, "device_of", lambda device: Device(132))

    def check(*how: Any) -> str:
        assert not tape.TAPES
        tape.TAPES["read"] = None
        return "ok"

    monkeypatch.setattr(checks, "check", check)
    assert checks.check_reading() == "ok"
    assert not tape.TAPES


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--only", "copy"], "--only needs --json"),
        (["--rest", "--json", "nothing.json"], "--rest: [Errno 2] No such file"),
        (["--only", "nothing", "--json", "found.json"], "--only: no item has 'nothing'"),
    ],
)
def test_what_leaves_no_items_or_no_file_of_its_own_is_refused(
    arguments: list[str], why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu, "device", lambda: {"device": "Some Device"})
    monkeypatch.setattr(sys, "argv", ["gpu", *arguments])
    with pytest.raises(SystemExit):
        gpu.main([sys.executable, "-c", PROCESS.format(items=GOOD, log=str(tmp_path / "log"))])
    assert why in capsys.readouterr().err
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize(("left", "status"), [("checks: lstm (5, 3)", 1), ("rows: lstm", 0)])
def test_a_check_that_was_not_made_is_no_success(tmp_path: Path, left: str, status: int) -> None:
    report = gpu.Report(tmp_path / "found.json", 0.0, 0.0)
    report.plan([("checks", "a"), tuple(left.split(": "))])
    report.note(("checks", "a"), "ok")
    assert report.finish() == status


def test_nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(gpu, "device", lambda: {"device": "Some Device"})
    monkeypatch.setattr(sys, "argv", ["gpu", "--json", str(tmp_path / "found.json")])
    assert gpu.main([sys.executable, "-c", "raise SystemExit(3)"]) == 1
    assert "what there is to do is not known: its process ended with status 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("CUDA error: device-side assert triggered", True),
        ("Triton Error [CUDA]: an illegal memory access was encountered", True),
        ("Triton Error [CUDA]: unspecified launch failure", True),
        ("Triton Error [CUDA]: too many blocks in cooperative launch", False),
        ("out of resource: shared memory, Required: 300000", False),
    ],
)
def test_what_breaks_the_device_and_not_one_launch_alone(text: str, whole: bool) -> None:
    assert items.is_the_devices(RuntimeError(text)) is whole


def test_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(error: Exception) -> Any:
        raise error

    def breaks() -> Any:
        yield "first", lambda: 1.0
        raise ValueError("no device to ask")

    made = {
        "checks": lambda: iter([("a", lambda: "ok"), ("b", partial(raises, ValueError("one\ntwo")))]),
        "rows": lambda: iter(
            [("c", partial(raises, items.NotHereError("none"))), ("d", partial(raises, RuntimeError("CUDA error: x")))]
        ),
        "kernels": breaks,
    }
    monkeypatch.setattr(worker, "parts", lambda: made)
    asked = [("checks", "a"), ("checks", "b"), ("kernels", "all of it"), ("rows", "c"), ("rows", "d"), ("rows", "c")]
    told, said = io.StringIO("".join(json.dumps([*item, True]) + "\n" for item in asked)), io.StringIO()
    assert worker.main(["checks", "rows", "kernels"], told, said) == 1
    planned, *answers = map(json.loads, said.getvalue().splitlines())
    assert [name for _, name in planned] == ["a", "b", "c", "d", "all of it"]
    assert answers == [
        ["ok", True],
        ["FAILED ValueError: two", True],
        ["FAILED ValueError: no device to ask", True],
        ["NOT HERE: none", True],
        ["FAILED RuntimeError: CUDA error: x", False],
    ]


@pytest.mark.parametrize("lengths", [None, (3, 5)])
def test_a_call_is_made_as_often_as_one_likes(lengths: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speeds, "DEVICE", torch.device("cpu"))
    row = Row("lstm", 5, 3, 4, 6, mode="training", lengths=lengths)
    given, x = speeds.given_of(row, torch.float32)
    module = torch.nn.LSTM(4, 6)
    call, found = speeds.call_of(row, module, given, x), []
    for _ in range(2):
        call()
        found.append([x.grad, *(p.grad for p in module.parameters())])
    assert all(torch.equal(a, b) and a.any() for a, b in zip(*found, strict=True))


def test_kernels_have_the_blocks_that_their_names_say(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[object, ...]]()
    monkeypatch.setattr(steps, "device_of", lambda device: Device(132))
    monkeypatch.setattr(steps, "step_of", lambda *of, **how: [asked.append((*of, how)), "1.0"][1])
    monkeypatch.setattr(steps, "gradient_step_of", lambda *of: [asked.append((*of, {})), "2.0"][1])
    items = dict(steps.kernels())
    assert {make() for make in items.values()} == {"1.0", "2.0"}
    found = dict(zip(items, asked, strict=True))
    read, held, scattered = (
        found[f"LSTM {name}, us"][0]
        for name in (
            "step, H 1024, float32, weights read",
            "step, H 1024, float32, as chosen",
            "training step, H 1024, float32, as chosen",
        )
    )
    assert (read.holds, bool(held.holds), held.scatters, scattered.scatters) == (0, True, False, True)
    *others, last = (
        found[f"LSTM training step, H 512, 128 samples, float32, {how}, us"] for how in ("as chosen", "way 1", "way 2")
    )
    assert [(one[0].features, one[0].holds, one[3]) for one in (*others, last)] == [(32, 0, 128), (32, 0, 128), (16, 4, 128)]


def test_times_are_of_one_call_without_what_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = clock[0]

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, end: Event) -> float:
            return end.at - self.at

    def pass_by(milliseconds: float) -> None:
        clock[0] += milliseconds

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "_sleep", pass_by)
    assert speeds.milliseconds(partial(pass_by, 3.0)) == 3.0
    assert speeds.by_the_device_alone(partial(pass_by, 3.0), 4.0) == 3.0


def test_a_call_that_computes_nothing_has_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speeds, "DEVICE", torch.device("cpu"))
    given: list[torch.Tensor] = []
    apply = speeds.Nothing.apply
    monkeypatch.setattr(speeds.Nothing, "apply", lambda *tensors: [given.extend(tensors), apply(*tensors)][1])
    speeds.nothing()()
    assert [t.shape for t in given] == [(28, 16, 28), (1024, 28), (1024, 256), (1024,), (1024,)]
    assert all(t.grad is not None and t.grad.shape == t.shape for t in given)


def test_every_row_of_the_suite_is_there() -> None:
    names = [name for part in (speeds.targets, speeds.rows) for name, _ in part()]
    assert len(names) == len(set(names))
    assert "lstm 28x200x28x256 training float32, ms" in names
    assert "lstm 28x200x28x256 training last float32, ms" in names
    assert any("lengths" in name for name in names)
    assert any("streaming" in name for name in names)
    assert {name for name, _ in checks.items()} >= {"captured", "DDP", "out of memory", "cudnn lstm"}


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        (["llvmlite"], "there is no CUDA device that torch"),
        (["triton"], "It needs torch for CUDA and Triton in the Python that runs it"),
        (["torch"], "It needs torch for CUDA and Triton in the Python that runs it"),
    ],
)
def test_without_a_device(missing: list[str], told: str) -> None:
    program = f"import sys; sys.modules.update(dict.fromkeys({missing}))\n"
    if "torch" not in missing:
        program += "import torch.cuda; torch.cuda.is_available = lambda: False\n"
    program += "import runpy; runpy.run_module('benchmarks.gpu', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(
    ("cell", "other"), [("lstm", "cudnn"), ("gru_before", "eager"), ("indrnn", "eager"), ("ran", "equations")]
)
def test_what_is_timed_is_compared(cell: str, other: str, mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speeds, "DEVICE", torch.device("cpu"))
    monkeypatch.setattr(speeds, "blocks_of_calls", lambda call: [call(), lambda: 1.0][1])
    monkeypatch.setattr(speeds, "by_the_device_alone", lambda call, usual: 1.0)
    row = Row(cell, 5, 3, 6, 6, mode)
    found = speeds.row_times(row, torch.float32, False)
    assert found[other] == found["triton"] == found["auto"] == 1.0
    for name in ("triton", "auto"):
        assert re.fullmatch(rf"[\d.e+-]+ of the largest of {other}'s", found[f"{name}, apart"])
    assert speeds.apart({"triton": [torch.ones(2)], "auto": [torch.ones(2)]}, 1e-3) == {}
    results = {"triton": [torch.ones(2)], "auto": [torch.ones(2) * 1.1], other: [torch.ones(2)]}
    told = speeds.apart(results, 1e-3)
    assert told["triton, apart"].startswith("0.0e+00")
    assert told["auto, apart"].startswith(f"{items.FAILED} differs by 1.0e-01")


def test_a_run_that_does_nothing_is_no_success(tmp_path: Path) -> None:
    report = gpu.Report(tmp_path / "found.json", 0.0, 0.0)
    report.plan([("rows", "a")], {"checks": {"one": "ok"}})
    assert report.finish() == 1
    report.note(("rows", "a"), 1.0)
    assert report.finish() == 0
