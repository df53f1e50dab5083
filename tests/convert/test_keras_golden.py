"""Files of Keras 2 and Keras 3, read where no Keras is: golden files that both wrote, with what they gave."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from anyrnn.convert.keras import load

GOLDEN = Path(__file__).parent / "golden"
NAMES = ("keras2.h5", "keras2.keras", "keras2_sequential.h5", "keras3.keras")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("quick_compile")
def test_a_file_gives_what_keras_gave(name: str) -> None:
    network = load(gzip.decompress((GOLDEN / f"{name}.gz").read_bytes()))
    kept = np.load(GOLDEN / f"{name}.npz")
    given = {one.name: kept[one.name if one.name in kept else "more"] for one in network.inputs}
    output, _ = network.run(given)
    np.testing.assert_allclose(output, kept["expected"], rtol=1e-5, atol=1e-6)
