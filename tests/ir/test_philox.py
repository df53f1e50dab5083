"""The random number generator against its published vectors, and the kernels against it."""

import numpy as np
import pytest

from anyrnn.ir.philox import Randomness, philox, threshold

# Random123's known answers for philox4x32-10: (counter, key, result).
VECTORS = [
    ([0, 0, 0, 0], (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, (0xFFFFFFFF, 0xFFFFFFFF), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        (0xA4093822, 0x299F31D0),
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "result"), VECTORS)
def test_published_vectors(counter, key, result):
    assert philox(counter, key) == result
    arrays = philox([np.array([c], np.int64) for c in counter], key)
    assert [int(a[0]) for a in arrays] == result


def test_the_threshold_covers_every_probability():
    assert threshold(0.0) == 0
    assert threshold(0.5) == 2**31
    assert threshold(1.0) == 2**32


def test_a_mask_depends_on_its_own_coordinates_only():
    """A sample's mask is the same in any batch, a feature's in any width."""
    random = Randomness(7, (0.0, 0.3))

    def mask(rows, features, step=4):
        return random.kept(np, np.arange, 1, "between_layers", step, rows, features)

    assert (mask(9, 13)[:5, :6] == mask(5, 6)).all()
    assert (mask(9, 13) != mask(9, 13, step=5)).any()
    assert abs(mask(400, 400).mean() - 0.7) < 0.01
