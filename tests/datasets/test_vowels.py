from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from anyrnn.datasets import vowels

HEADER = "# a comment\n@problemName JapaneseVowels\n@data\n"


def line(length: int, label: int, first: float = 0.0) -> str:
    columns = [",".join(str(first + column + step / 100) for step in range(length)) for column in range(12)]
    return ":".join([*columns, str(label)])


def write(folder: Path, *train: str, test: str | None = None) -> Path:
    (folder / "JapaneseVowels_TRAIN.ts").write_text(HEADER + "\n".join(train) + "\n")
    (folder / "JapaneseVowels_TEST.ts").write_text(HEADER + (line(7, 9) if test is None else test) + "\n")
    return folder


def test_the_longest_of_both_files_sets_the_steps(tmp_path: Path) -> None:
    data = vowels(write(tmp_path, line(3, 1), line(5, 9, 100.0)))
    assert (data.steps, data.features, data.classes) == (7, 12, 9)
    assert data.train.lengths is not None
    assert data.train.lengths.tolist() == [3, 5]
    assert data.train.labels.tolist() == [0, 8]
    assert data.train.inputs.dtype == np.float32
    np.testing.assert_array_equal(data.train.inputs[1, :5, 3], np.float32(103 + np.arange(5) / 100))
    assert not data.train.inputs[1, 5:].any()


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("1,2:3,4:1", "line 4: 2 series before the label, expected 12"),
        (line(3, 1).replace("0.01", "much", 1), "line 4: could not convert string to float: 'much'"),
        (line(3, 1).replace("0.01", "nan", 1), "line 4: a number that is not finite"),
        (line(3, 1).replace("0.0,", "", 1), "line 4: series of 2 and of 3 numbers, expected as many in each"),
        (line(3, 10), "line 4: label 10, expected 1 to 9"),
        (line(3, 1)[:-1] + "one", "line 4: invalid literal for int"),
        ("", "nothing follows @data"),
    ],
)
def test_what_is_damaged_is_named(tmp_path: Path, train: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"JapaneseVowels_TRAIN\.ts") as raised:
        vowels(write(tmp_path, train))
    assert message in str(raised.value)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        vowels(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"JapaneseVowels_TRAIN\.ts is not in the folder"):
        vowels(tmp_path)
    write(tmp_path, line(3, 1))
    (tmp_path / "JapaneseVowels_TEST.ts").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"JapaneseVowels_TEST\.ts: 'utf-8' codec can't decode"):
        vowels(tmp_path)
    (tmp_path / "JapaneseVowels_TEST.ts").write_text("nothing")
    with pytest.raises(ValueError, match=r"JapaneseVowels_TEST\.ts: there is no line @data"):
        vowels(tmp_path)


def test_the_real_files(shared: Callable[[str], Path]) -> None:
    data = vowels(shared("data/japanese-vowels"))
    assert (len(data.train), len(data.test), data.steps) == (270, 370, 29)
    assert data.train.lengths is not None
    assert data.test.lengths is not None
    assert data.train.lengths.min() == data.test.lengths.min() == 7
    assert np.bincount(data.train.labels).tolist() == [30] * 9
    assert data.train.inputs[0, 0, 0] == np.float32(1.860936)
