"""What `make gpu` writes and how it ends; without a device, of which the parts here know nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu

pytest.importorskip("triton")


def raises() -> Any:
    raise RuntimeError("no such kernel\nand more")


def parts(**items: Any) -> dict[str, Callable[[], Iterator[tuple[str, Any]]]]:
    return {what: lambda made=made: iter(made.items()) for what, made in ({"checks": {"a": lambda: "ok 0"}} | items).items()}


def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: dict[str, Any], *more: str) -> tuple[int, Any]:
    monkeypatch.setattr(gpu, "PARTS", found)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some Device")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(sys, "argv", ["gpu", "--json", str(tmp_path / "found.json"), *more])
    return gpu.main(), json.loads((tmp_path / "found.json").read_text())


def test_all_is_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status, found = run(monkeypatch, tmp_path, parts(rows={"lstm": lambda: {"triton": 1.5, "cudnn": 2.5}}))
    assert status == 0
    assert (found["device"], found["capability"], found["wrong"], found["failed"]) == ("Some Device", [9, 0], [], [])
    assert found["rows"] == {"lstm": {"triton": 1.5, "cudnn": 2.5}}
    assert {"torch", "triton", "anyrnn", "python", "cudnn", "cuda"} <= found["versions"].keys()


def broken() -> Iterator[Any]:
    yield "first", lambda: 1.0
    raise ValueError("no device to ask")


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"checks": {"a": lambda: "WRONG 3e-1"}}, ("wrong", ["a"])),
        ({"ceilings": {"copy": raises, "product": lambda: 2.0}}, ("failed", ["ceilings: copy"])),
        ({"rows": {"gru": lambda: {"triton": 1.0, "cudnn": gpu.failed(ValueError("no"))}}}, ("failed", ["rows: gru"])),
    ],
)
def test_what_is_wrong_makes_the_status_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changed: Any, what: Any) -> None:
    status, found = run(monkeypatch, tmp_path, parts(**changed))
    assert (status, found[what[0]]) == (1, what[1])


def test_a_part_that_breaks_leaves_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status, found = run(monkeypatch, tmp_path, parts() | {"kernels": broken} | parts(rows={"lstm": lambda: {"triton": 1.0}}))
    assert (status, found["failed"], found["rows"]) == (1, ["kernels: all of it"], {"lstm": {"triton": 1.0}})
    assert found["kernels"] == {"all of it": "FAILED ValueError: no device to ask"}


def test_what_comes_too_late_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status, found = run(monkeypatch, tmp_path, parts(rows={"lstm": raises}), "--minutes", "0")
    assert (status, found["checks"], found["not_measured"]) == (1, {}, ["checks: a", "rows: lstm"])


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        (["llvmlite"], "there is no CUDA device that torch"),
        (["triton"], "It needs torch for CUDA and Triton in the Python that runs it"),
        (["torch"], "It needs torch for CUDA and Triton in the Python that runs it"),
    ],
)
def test_without_a_device(missing: list[str], told: str) -> None:
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({missing})); import torch.cuda; torch.cuda.is_available = lambda: False"
        "; import runpy; runpy.run_module('benchmarks.gpu', run_name='__main__')"
    )
    if "torch" in missing:
        program = program.replace("import torch.cuda; torch.cuda.is_available = lambda: False; ", "")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr
