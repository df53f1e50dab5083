"""The examples of the README and the files in examples/ run as they stand."""

import re
import runpy
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_readme_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the second writes a file
    results = []
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL):
        Path("readme.py").write_text(block, encoding="utf-8")
        results.append(runpy.run_path("readme.py"))
    cell, deployed = results
    assert cell["output"].shape == (40, 8, 64)
    assert all(p.grad is not None for p in cell["layer"].parameters())
    assert deployed["shares"].shape == (8, 5)


def test_a_cell_of_ones_own_trains(tmp_path):
    script = shutil.copy(ROOT / "examples" / "my_cell.py", tmp_path)
    assert runpy.run_path(str(script))["main"]() < 0.02


def test_a_cell_of_ones_own_trains_in_jax(tmp_path):
    pytest.importorskip("jax")
    script = shutil.copy(ROOT / "examples" / "in_jax.py", tmp_path)
    assert runpy.run_path(str(script))["main"]() < 0.02


def test_the_compiler_from_scratch_checks_itself(tmp_path, capsys):
    script = shutil.copy(ROOT / "examples" / "from_scratch.py", tmp_path)
    made = runpy.run_path(str(script))
    text = capsys.readouterr().out
    assert made["python_text"](made["CELLS"]["gru"]) in text
    assert len(re.findall(r"speed of the gru, .*: interpreter 1\.0, .*LLVM \d+\.\d\n", text)) == 2
    assert text.endswith("anyrnn gives the same numbers\n")
