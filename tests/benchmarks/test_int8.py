import json
from pathlib import Path

import pytest
import torch

from benchmarks import int8
from benchmarks.suite import Row

ROWS = [Row("lstm", 3, 2, 8, 16), Row("gru", 3, 2, 8, 16), Row("lstm", 1, 1, 16, 16, "streaming")]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime.quantization")
    monkeypatch.setattr(int8, "ROWS", ROWS)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)


def test_all_systems_are_timed_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    int8.main(["--rounds", "1", "--json", str(tmp_path / "found.json")])
    results = json.loads((tmp_path / "found.json").read_text())["results"]
    assert [sorted(result["ms"]) for result in results] == [
        ["float32", "int8", "onnxruntime", "torch"],
        ["float32", "int8", "torch"],
        ["float32", "int8", "onnxruntime", "torch"],
    ]
    for result in results:
        errors = result["errors"]
        assert errors["float32"] < 1e-5 < errors["int8"] < int8.FARTHEST
        assert all(1e-5 < errors[name] < 2 * int8.FARTHEST for name in ("torch", "onnxruntime") if name in errors)
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in told[1:4]] == [row.name.split()[:2] for row in ROWS]
    assert told[-1].startswith("onnxruntime: ")


def test_results_that_are_far_from_right_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "FARTHEST", 1e-7)
    with pytest.raises(ValueError, match=r"lstm 3x2x8x16 inference: results are 0\.\d% from those of float64"):
        int8.main(["--rounds", "1"])
