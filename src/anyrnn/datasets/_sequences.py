"""What a data set is: labelled sequences, images as sequences of rows among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

HELD_OUT_EVERY = 5


@dataclass(frozen=True)
class Sequences:
    """`inputs` float32 [N, T, D] (of an image in [0, 1], row t at step t), `labels` int64 [N]; `lengths` int64 [N], the steps of
    each, where they differ.
    """

    inputs: NDArray[np.float32]
    labels: NDArray[np.int64]
    lengths: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Dataset:
    """Sequences to train on and sequences held out; `held_out` says which ones these are, `classes` counts the labels. `of` and
    `label` are what a sequence and its label are called.
    """

    name: str
    classes: int
    train: Sequences
    test: Sequences
    held_out: str
    of: str = "images"
    label: str = "digit"

    @property
    def steps(self) -> int:
        """T: of the longest sequence; rows of an image."""
        return int(self.train.inputs.shape[1])

    @property
    def features(self) -> int:
        """D: pixels of a row."""
        return int(self.train.inputs.shape[2])


def every_fifth(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which sequences are held out, [N]: of each label the fifth, the tenth and so on."""
    held_out = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        (places,) = np.nonzero(labels == label)
        held_out[places[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]] = True
    return held_out
