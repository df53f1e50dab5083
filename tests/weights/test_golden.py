"""Networks that frameworks have made and run themselves, in files: see golden/make.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anyrnn
from anyrnn import weights

FILES = sorted((Path(__file__).parent / "golden").glob("*.npz"))
HIDDEN, PROJ = 4, 2


def sizes_of(cell: str) -> dict[str, int]:
    return {"proj": PROJ} if cell == "lstm_projected" else {}


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_the_network_computes_what_the_framework_has_computed(file: Path) -> None:
    system, cell, layers, ways, *_ = file.stem.split(".")
    network: dict[str, Any] = {"layers": int(layers), "bidirectional": ways == "both"}
    with np.load(file) as content:
        x, y = content["x"], content["y"]
        arrays = {name.removeprefix("weights/"): content[name] for name in content if name.startswith("weights/")}
        shifts = {"forget_bias": float(content["forget_bias"])} if "forget_bias" in content else {}
    sizes = {"sizes": {"input": x.shape[-1], "hidden": HIDDEN}} if system == "mxnet_fused" else {}
    parameters = weights.read(system, arrays, cell, **network, **shifts, **sizes)
    bias = any(name.startswith("bias") for name in parameters)
    layer = anyrnn.Recurrent(
        cell, x.shape[-1], HIDDEN, int(layers), bias=bias, bidirectional=ways == "both", backend="reference", **sizes_of(cell)
    )
    layer.parameters = parameters
    np.testing.assert_allclose(layer(x)[0], y, rtol=0, atol=1e-6)
    again = weights.write(system, parameters, cell, **network, **shifts)
    assert again.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name].view(np.uint32), array.view(np.uint32), name)
