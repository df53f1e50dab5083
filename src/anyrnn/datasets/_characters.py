"""A text as characters, from its file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FILES = ("tiny_shakespeare.txt", "input.txt")


@dataclass(frozen=True)
class Text:
    """Symbols int64 [count], each the place of a character in `alphabet`: a part to train on, one to choose by, one held out."""

    alphabet: str
    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]


def characters(folder: str | os.PathLike[str]) -> Text:
    """Tiny Shakespeare: about 1.1 million characters of 65 kinds, the first nine tenths to train on, then a twentieth to choose
    by, and the last twentieth held out.

    `folder` holds `tiny_shakespeare.txt` or, as char-rnn has it, `input.txt`. Other texts in UTF-8 can be read too. The alphabet
    is that of the whole text, in the order of code points.

    Raises: FileNotFoundError for a missing folder or file; ValueError for a file that is no UTF-8 text, or an empty one.

    Source: A. Karpathy 2015, The Unreasonable Effectiveness of Recurrent Neural Networks.
    """
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise FileNotFoundError(f"there is no folder {str(place)!r} to read a text from")
    found = [place / name for name in FILES if (place / name).is_file()]
    if not found:
        raise FileNotFoundError(f"{' or '.join(FILES)} is not in the folder {str(place)!r}")
    try:
        text = found[0].read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{found[0]}: {error}") from None
    if not text:
        raise ValueError(f"{found[0]}: there is no text in it")
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    kinds, symbols = np.unique(points, return_inverse=True)
    first, second = len(symbols) * 9 // 10, len(symbols) * 19 // 20
    train, validation, test = np.split(symbols.astype(np.int64), [first, second])
    return Text("".join(map(chr, kinds)), train, validation, test)
