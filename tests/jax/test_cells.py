"""Every cell: kernels give JAX the bits that they give NumPy's layers, and the scan is the reference."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from anyrnn import cells  # noqa: E402
from tests.jax.layers import Given, assert_close, assert_same, on_jax, on_numpy, pair  # noqa: E402
from tests.zoo import EVERY, FEW, input_size, sizes_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("quick_compile")


@pytest.mark.parametrize("cell", EVERY)
def test_kernels(cell: str) -> None:
    layer, layer_of_numpy = pair(cell, input_size(cell, 5, 6), 6, **sizes_of(cell, 3, 6))
    assert layer_of_numpy.backend_name == "llvm"
    given = Given(layer_of_numpy, 4, 3, {})
    assert_same(on_jax(layer, given), on_numpy(given))


@pytest.mark.parametrize("cell", [pytest.param(c, marks=() if c in FEW[-4:] else pytest.mark.slow) for c in cells.names()])
def test_the_scan(cell: str) -> None:
    with jax.enable_x64(True):
        options = sizes_of(cell, 3, 6)
        layer, layer_of_numpy = pair(cell, input_size(cell, 5, 6), 6, backend="reference", dtype=np.float64, **options)
        given = Given(layer_of_numpy, 4, 3, {})
        assert_close(on_jax(layer, given), on_numpy(given), 1e-12)
