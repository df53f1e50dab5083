"""Every cell with every option of layers, alone and all together: the kernels against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anyrnn
from anyrnn import cells
from tests.options import COMBINATIONS, options_of, shape_of, title
from tests.zoo import FEW

CASES = [
    pytest.param(cell, names, marks=() if cell in FEW else pytest.mark.slow, id=title(cell) + "-" + title(names))
    for cell in cells.names()
    for names in COMBINATIONS
    if options_of(cell, names)
]


def training_results(layer: anyrnn.Recurrent, x: Any, **call: Any) -> dict[str, Any]:
    """Everything that a training call gives, by name."""
    y, last, reserve = layer.forward_training(x, seed=2**40 + 3, **call)
    last = last if isinstance(last, tuple) else (last,)
    d_state = tuple(np.sin(s + 1) for s in last)
    d_x, d_first, gradients = layer.backward(reserve, np.cos(y), d_state if len(last) > 1 else d_state[0])
    d_first = d_first if isinstance(d_first, tuple) else (d_first,)
    states = {f"last {k}": s for k, s in enumerate(last)} | {f"d first {k}": s for k, s in enumerate(d_first)}
    return {"output": y, "d x": d_x, **states, **gradients}


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("uneven", [pytest.param(False, marks=pytest.mark.slow, id="dense"), pytest.param(True, id="uneven")])
@pytest.mark.parametrize(("cell", "names"), CASES)
def test_the_kernels_equal_the_reference(cell: str, names: list[str], uneven: bool) -> None:
    options = options_of(cell, names)
    shape = {**shape_of(cell, options, 19, 5), "dropout": 0.2, "dtype": "float64", "seed": 1}
    layers = [anyrnn.Recurrent(cell, backend=b, **shape, **options) for b in ("llvm", "reference")]
    random = np.random.default_rng(0)
    x, call = random.normal(size=(6, 3, shape["input_size"])), {}
    if uneven:
        call = {"lengths": [4, 0, 6], "reset": random.random((6, 3)) < 0.2}
    results = [{**training_results(layer, x, **call), "evaluated": layer(x, **call)[0]} for layer in layers]
    for name, found in results[0].items():
        # a normalisation of clipped, hence nearly equal, features magnifies what rounding leaves of their differences
        bound = 1e-6 if cell == "lstm_layernorm" and "clip" in "".join(names) else 1e-10
        np.testing.assert_allclose(found, results[1][name], rtol=bound, atol=bound, err_msg=name)
