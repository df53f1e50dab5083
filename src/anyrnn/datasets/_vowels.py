"""Japanese Vowels, from its two files."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anyrnn.datasets._sequences import Dataset, Sequences

FEATURES, SPEAKERS = 12, 9


def vowels(folder: str | os.PathLike[str]) -> Dataset:
    """Two Japanese vowels said by 9 men: 270 utterances to train on, 370 held out, of 7 to 29 steps. D = 12, coefficients of
    linear prediction; the label is the speaker.

    `folder` holds `JapaneseVowels_TRAIN.ts` and `JapaneseVowels_TEST.ts`, in the format of the UEA archive. Numbers stay as they
    are. Inputs have the steps of the longest utterance of both files; those beyond an utterance's length are zero.

    Raises: FileNotFoundError for a missing folder or file; ValueError for a damaged one, naming it, the line, and what is wrong.

    Source: M. Kudo, J. Toyama and M. Shimbo 1999, Multidimensional Curve Classification Using Passing-Through Regions.
    """
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise FileNotFoundError(f"there is no folder {str(place)!r} to read Japanese Vowels from")
    parts = [_utterances(place / f"JapaneseVowels_{part}.ts") for part in ("TRAIN", "TEST")]
    steps = max(len(rows) for part in parts for rows, _ in part)
    train, test = (_padded(part, steps) for part in parts)
    return Dataset(
        "vowels", SPEAKERS, train, test, held_out="its own test set; the same speakers", of="utterances", label="speaker"
    )


def _utterances(file: Path) -> list[tuple[NDArray[np.float32], int]]:
    """The steps [T, D] of each, and its label from 0 on."""
    if not file.is_file():
        raise FileNotFoundError(f"{file.name} is not in the folder {str(file.parent)!r}")
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: {error}") from None
    starts = [number for number, line in enumerate(lines) if line.strip().lower() == "@data"]
    if not starts:
        raise ValueError(f"{file}: there is no line @data")
    numbered = list(enumerate(lines, 1))[starts[0] + 1 :]
    found = [_utterance(line, f"{file}, line {number}") for number, line in numbered if line.strip()]
    if not found:
        raise ValueError(f"{file}: nothing follows @data")
    return found


def _utterance(line: str, where: str) -> tuple[NDArray[np.float32], int]:
    *columns, label = line.strip().split(":")
    if len(columns) != FEATURES:
        raise ValueError(f"{where}: {len(columns)} series before the label, expected {FEATURES}")
    try:
        values = [[float(number) for number in column.split(",")] for column in columns]
        speaker = int(label)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    lengths = {len(column) for column in values}
    if len(lengths) > 1:
        raise ValueError(f"{where}: series of {min(lengths)} and of {max(lengths)} numbers, expected as many in each")
    if not all(math.isfinite(number) for column in values for number in column):
        raise ValueError(f"{where}: a number that is not finite")
    if not 1 <= speaker <= SPEAKERS:
        raise ValueError(f"{where}: label {speaker}, expected 1 to {SPEAKERS}")
    return np.array(values, np.float32).T, speaker - 1


def _padded(utterances: list[tuple[NDArray[np.float32], int]], steps: int) -> Sequences:
    inputs = np.zeros((len(utterances), steps, FEATURES), np.float32)
    for place, (rows, _) in zip(inputs, utterances, strict=True):
        place[: len(rows)] = rows
    lengths = np.array([len(rows) for rows, _ in utterances])
    return Sequences(inputs, np.array([label for _, label in utterances]), lengths)
