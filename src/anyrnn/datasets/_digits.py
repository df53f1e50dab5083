"""The scanned handwritten digits that scikit-learn carries."""

from __future__ import annotations

import numpy as np

from anyrnn.datasets._sequences import Dataset, Sequences, every_fifth
from anyrnn.errors import MissingExtraError

CLASSES = 10


def digits() -> Dataset:
    """1797 scanned digits of 8x8 pixels: 1442 to train on, 355 held out. T = 8, D = 8, pixels scaled to [0, 1].

    Held out are, of each digit, the fifth image, the tenth and so on, in the order of the data: a fixed stratified fifth. That
    order follows the 13 writers, whose names the data does not give, so every writer is in both parts: an accuracy on the
    held-out images is one for known hands. Unknown hands are harder: held out as one block, the last fifth of the data is
    read 4 to 5 points worse.

    Raises: MissingExtraError without scikit-learn.

    Source: E. Alpaydin and C. Kaynak 1998, Optical Recognition of Handwritten Digits, UCI; its test part.

    Example:
        >>> data = digits()
        >>> data.train.inputs.shape, data.test.inputs.shape
        ((1442, 8, 8), (355, 8, 8))
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtraError('the digits are in scikit-learn, which is not installed: pip install "anyrnn[all]"') from error
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels.reshape(-1, 8, 8) / 16).astype(np.float32)  # [N, T, D]
    labels = labels.astype(np.int64)  # [N]
    held_out = every_fifth(labels)
    return Dataset(
        name="digits",
        classes=CLASSES,
        train=Sequences(images[~held_out], labels[~held_out]),
        test=Sequences(images[held_out], labels[held_out]),
        held_out="every fifth image of each digit; the same writers are in both parts",
    )
