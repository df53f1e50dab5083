"""The page on JAX runs as it stands."""

import re
from pathlib import Path

import pytest

jax = pytest.importorskip("jax")

PAGE = Path(__file__).parents[2] / "docs" / "jax.md"


def test_the_page_on_jax_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    text = PAGE.read_text(encoding="utf-8")
    for block in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
        Path("page.py").write_text("\n" * text.count("\n", 0, block.start(1)) + block[1], encoding="utf-8")
        exec(compile(Path("page.py").read_text(encoding="utf-8"), "page.py", "exec"), names)
    assert names["alone"].shape == (8, 20, 16)  # type: ignore[attr-defined]
    assert Path("network.safetensors").is_file()
