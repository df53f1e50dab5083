"""The random number generator against its published vectors, and the kernels against it."""

import numpy as np
import pytest

from anyrnn.backends.llvm import weight_masks
from anyrnn.ir.philox import KINDS, Randomness, kind_of, philox, stream_of, threshold

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


class Narrow(int):
    """An integer that a signed one of 64 bits holds."""

    def _made(name):
        def operator(self, other):
            value = Narrow(getattr(int, name)(self, other))
            assert 0 <= value < 2**63, f"{name} overflows"
            return value

        return operator

    __add__, __mul__, __xor__ = map(_made, ("__add__", "__mul__", "__xor__"))
    __and__, __or__, __lshift__, __rshift__ = map(_made, ("__and__", "__or__", "__lshift__", "__rshift__"))


@pytest.mark.parametrize(("counter", "key", "result"), VECTORS)
def test_no_product_overflows(counter, key, result):
    """Compilers take signed integers never to overflow: masks that torch's made of a few numbers were others."""
    assert philox([Narrow(c) for c in counter], key) == result


def test_the_threshold_covers_every_probability():
    assert threshold(0.0) == 0
    assert threshold(0.5) == 2**31
    assert threshold(1.0) == 2**32


def test_a_mask_depends_on_its_own_coordinates_only():
    """A sample's mask is the same in any batch, a feature's in any width."""
    random = Randomness(7, {"between_layers": (0.0, 0.3), "recurrent.1": (0.3, 0.3), "zoneout.1": (0.3, 0.3)})

    def mask(rows, features, step=4, direction=0, choice="between_layers"):
        return random.at(1, direction, step).kept(np, np.arange, choice, rows, features)

    for choice in random.probabilities:
        assert (mask(9, 13, choice=choice)[:5, :6] == mask(5, 6, choice=choice)).all()
        assert abs(mask(400, 400, choice=choice).mean() - 0.7) < 0.01
    assert (mask(9, 13) != mask(9, 13, step=5)).any()
    assert (mask(9, 13) == mask(9, 13, direction=1)).all()
    assert (mask(9, 13, choice="recurrent.1") == mask(9, 13, step=5, choice="recurrent.1")).all()
    assert (mask(9, 13, choice="zoneout.1") != mask(9, 13, step=5, choice="zoneout.1")).any()
    assert (mask(9, 13, choice="zoneout.1") != mask(9, 13, direction=1, choice="zoneout.1")).any()


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 3), (17, 33), (64, 256)])
@pytest.mark.parametrize("seed", [0, 7, 2**40 + 3, 2**64 - 1])
def test_masks_of_weights_are_drawn_natively(seed, rows, columns):
    chances = {"weights.3": (0.0, 0.3)}
    plain, native = (Randomness(seed, chances, draw=draw).at(1, 1, 5) for draw in (None, weight_masks.draw))
    expected = plain.kept(np, np.arange, "weights.3", rows, columns)
    assert (native.kept(np, np.arange, "weights.3", rows, columns) == expected).all()


def test_every_choice_has_a_stream_of_its_own():
    names = [f"{kind}.{state}" for kind in KINDS for state in range(3)]
    streams = [stream_of(layer, direction, name) for layer in range(3) for direction in range(2) for name in names]
    shared = sum(not kind_of(name).each_direction for name in names) * 3
    assert len(set(streams)) == len(streams) - shared
    assert max(streams) < 2**32
