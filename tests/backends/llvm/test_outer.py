"""Gradients of weights for as many features as leave vectors, and groups of vectors, full, partly full and empty."""

from __future__ import annotations

import numpy as np
import pytest

from anyrnn.backends.llvm.outer import group_of
from anyrnn.backends.llvm.target import machine
from tests.budget import assert_relative
from tests.networks import on_llvm, on_reference, problem


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("last", ["one", "all but one", "all"])
@pytest.mark.parametrize("vectors", range(1, group_of(machine()) + 3))
def test_gradients_of_any_number_of_features(vectors: int, last: str) -> None:
    lanes = machine().lanes(np.dtype(np.float64).itemsize)
    features = (vectors - 1) * lanes + {"one": 1, "all but one": lanes - 1, "all": lanes}[last]
    p = problem("rnn_tanh", 5, 40, features, 5)
    expected = on_reference(p)
    for name, value in on_llvm(p).items():
        assert_relative(value, expected[name], "llvm float64 against the reference backend", name)
