from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from anyrnn.datasets import characters


def test_shakespeare(shared: Callable[[str], Path]) -> None:
    folder = shared("data/text")
    text = characters(folder)
    whole = "".join(text.alphabet[symbol] for part in (text.train, text.validation, text.test) for symbol in part)
    assert whole == (folder / "tiny_shakespeare.txt").read_bytes().decode()
    assert len(text.alphabet) == 65
    assert (len(text.train), len(text.validation), len(text.test)) == (1_003_853, 55_770, 55_770)


def test_any_text(tmp_path: Path) -> None:
    (tmp_path / "input.txt").write_text("año 𝄞 " * 20, encoding="utf-8")
    text = characters(tmp_path)
    assert text.alphabet == "".join(sorted("año 𝄞"))
    assert text.train.dtype == np.int64
    assert "".join(text.alphabet[symbol] for symbol in text.train[:6]) == "año 𝄞 "


def test_what_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder '.*nowhere' to read a text from"):
        characters(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"tiny_shakespeare\.txt or input\.txt is not in the folder"):
        characters(tmp_path)
    (tmp_path / "input.txt").write_bytes(b"")
    with pytest.raises(ValueError, match=r"input\.txt: there is no text in it"):
        characters(tmp_path)
    (tmp_path / "input.txt").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(ValueError, match=r"input\.txt: 'utf-8' codec can't decode byte 0xff"):
        characters(tmp_path)
