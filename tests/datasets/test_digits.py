import sys

import numpy as np
import pytest

from anyrnn.datasets import digits
from anyrnn.errors import MissingExtraError


def test_shapes_types_and_range() -> None:
    data = digits()
    assert (data.name, data.classes, data.steps, data.features) == ("digits", 10, 8, 8)
    assert data.train.inputs.shape == (1442, 8, 8)
    assert data.test.inputs.shape == (355, 8, 8)
    for part in (data.train, data.test):
        assert part.inputs.dtype == np.float32
        assert part.labels.dtype == np.int64
        assert part.labels.shape == (len(part),)
        assert part.inputs.min() == 0
        assert part.inputs.max() == 1


def test_held_out_is_every_fifth_of_each_digit() -> None:
    data = digits()
    both = np.bincount(data.train.labels) + np.bincount(data.test.labels)
    assert both.sum() == 1797
    assert (np.bincount(data.test.labels) == both // 5).all()


def test_no_image_is_in_both_parts() -> None:
    data = digits()
    seen = {image.tobytes() for image in data.train.inputs}
    assert not any(image.tobytes() in seen for image in data.test.inputs)


def test_the_split_is_fixed() -> None:
    one, two = digits(), digits()
    np.testing.assert_array_equal(one.test.inputs, two.test.inputs)
    np.testing.assert_array_equal(one.test.labels, two.test.labels)


def test_rows_are_steps() -> None:
    from sklearn.datasets import load_digits

    expected = load_digits().images[0, 2] / 16  # the third row of the first image, a zero
    np.testing.assert_array_equal(digits().train.inputs[0, 2], expected.astype(np.float32))


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtraError, match=r'scikit-learn, which is not installed: pip install "anyrnn\[all\]"'):
        digits()
