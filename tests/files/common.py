"""What the tests of files share."""

import re
import tracemalloc

import numpy as np
import pytest

from anyrnn.files.content import DTYPES


def every_dtype(names=DTYPES):
    """Arrays of every dtype, with axes, without, and without numbers."""
    found = {}
    for name in names:
        found[f"{name} matrix"] = np.array([[0, 1, 1], [1, 0, 1]], name)
        found[f"{name} scalar"] = np.ones((), name)
        found[f"{name} empty"] = np.zeros((2, 0, 7), name)
    return found


def same(found, expected):
    """The same names in any order, dtypes and numbers; and arrays that one can work with."""
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype.newbyteorder("="), name
        assert found[name].flags.c_contiguous, name
        assert found[name].flags.aligned, name
        assert found[name].flags.writeable, name
        np.testing.assert_array_equal(found[name], array, name)


def refused(read, raw, message, path=None):
    """The reader refuses the bytes, and the file if a path is given, with its name and the message."""
    with pytest.raises(ValueError, match=f"^the bytes: .*{re.escape(message)}"):
        read(raw)
    if path is not None:
        path.write_bytes(raw)
        with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: .*{re.escape(message)}"):
            read(path)


def peak(action):
    """The most bytes allocated at the same time."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
