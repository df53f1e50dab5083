"""The README's example and the files in examples/ run as they stand."""

import re
import runpy
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_readme_example_runs(tmp_path):
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    script = tmp_path / "readme.py"
    script.write_text(block, encoding="utf-8")
    names = runpy.run_path(str(script))
    assert names["output"].shape == (40, 8, 64)
    assert all(p.grad is not None for p in names["layer"].parameters())


def test_a_cell_of_ones_own_trains(tmp_path):
    script = shutil.copy(ROOT / "examples" / "my_cell.py", tmp_path)
    assert runpy.run_path(str(script))["main"]() < 0.02
