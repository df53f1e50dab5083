"""MNIST, from its four files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from anyrnn.datasets._idx import read_idx
from anyrnn.datasets._sequences import Dataset, Sequences

CLASSES = 10
SIDE = 28


def mnist(folder: str | os.PathLike[str]) -> Dataset:
    """MNIST's scanned digits of 28x28 pixels, 60,000 to train on and the 10,000 of its own test set. T = 28, D = 28.

    `folder` holds `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
    `t10k-labels-idx1-ubyte`, each as it is or with `.gz`. Pixels are scaled to [0, 1]. The writers of the two parts
    are different people. Other data in the same format (Fashion-MNIST, KMNIST) can be read too.

    Raises: FileNotFoundError for a missing folder or file; ValueError for a damaged one, naming it and what is wrong.

    Source: Y. LeCun, C. Cortes and C. Burges, The MNIST database of handwritten digits.
    """
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise FileNotFoundError(f"there is no folder {str(place)!r} to read MNIST from")
    return Dataset(
        name="mnist",
        classes=CLASSES,
        train=_part(place, "train"),
        test=_part(place, "t10k"),
        held_out="its own test set",
    )


def _part(folder: Path, part: str) -> Sequences:
    images_file = _find(folder, f"{part}-images-idx3-ubyte")
    labels_file = _find(folder, f"{part}-labels-idx1-ubyte")
    labels = read_idx(labels_file, dimensions=1)  # [N]
    pixels = read_idx(images_file, dimensions=3)  # [N, T, D]
    if pixels.shape[1:] != (SIDE, SIDE):
        rows, columns = pixels.shape[1:]
        raise ValueError(f"{images_file}: images of {rows} x {columns} pixels, expected {SIDE} x {SIDE}")
    if len(pixels) == 0:
        raise ValueError(f"{images_file}: there are no images in it")
    if len(pixels) != len(labels):
        raise ValueError(f"{labels_file}: {len(labels)} labels for the {len(pixels)} images of {images_file.name}")
    if labels.max() >= CLASSES:
        place = int(np.argmax(labels >= CLASSES))
        raise ValueError(f"{labels_file}: label {place} is {labels[place]}, expected 0 to {CLASSES - 1}")
    return Sequences(pixels.astype(np.float32) / np.float32(255), labels.astype(np.int64))


def _find(folder: Path, name: str) -> Path:
    """The plain file, or the compressed one; some archives spell `images-idx3` as `images.idx3`."""
    for spelling in (name, name.replace("-idx", ".idx")):
        for candidate in (folder / spelling, folder / f"{spelling}.gz"):
            if candidate.is_file():
                return candidate
    raise FileNotFoundError(f"{name} (or {name}.gz) is not in the folder {str(folder)!r}")
