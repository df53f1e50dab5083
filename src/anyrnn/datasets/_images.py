"""What a data set is: images as sequences of rows, and their labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Images:
    """Images as sequences: `images` float32 [N, T, D] in [0, 1], row t of the image at step t; `labels` int64 [N]."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Dataset:
    """Images to train on and images held out; `held_out` says which ones these are, `classes` counts the labels."""

    name: str
    classes: int
    train: Images
    test: Images
    held_out: str

    @property
    def steps(self) -> int:
        """T: rows of an image."""
        return int(self.train.images.shape[1])

    @property
    def features(self) -> int:
        """D: pixels of a row."""
        return int(self.train.images.shape[2])
