"""What is asked of every built-in cell: a short file, a paper, kernels that equal the reference, and a reference that equals
torch's autograd.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest
import torch

import anyrnn
from anyrnn import backends, cells
from tests.budget import assert_relative, assert_within_budget
from tests.networks import fitting, on_llvm, on_reference, on_torch
from tests.zoo import EVERY, input_size, sizes_of

MOST_LINES = 40
"""Of code in the file of a cell."""
LEAST_CELLS = 90

FILES = sorted({Path(inspect.getfile(cells.load(name).function)) for name in cells.names()})


def test_there_are_many() -> None:
    assert len(cells.names()) >= LEAST_CELLS


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_files_are_short(file: Path) -> None:
    """Docstrings, comments and blank lines do not count."""
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text)
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            expression = node.body[0]
            docstrings |= set(range(expression.lineno, (expression.end_lineno or expression.lineno) + 1))
    lines = [line for k, line in enumerate(text.splitlines(), 1) if k not in docstrings]
    code = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    assert len(code) <= MOST_LINES
    assert ast.get_docstring(tree)


@pytest.mark.parametrize("name", cells.names())
def test_every_cell_has_a_paper(name: str) -> None:
    assert any(digit.isdigit() for digit in cells.load(name).paper)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", cells.names())
def test_every_cell_has_native_kernels(name: str, dtype: str) -> None:
    layer = anyrnn.Recurrent(name, input_size(name, 3, 8), 4, 2, bidirectional=True, dtype=dtype, **sizes_of(name))  # type: ignore[arg-type]
    for network in (layer.network, layer.training_network):
        assert backends.why_not_native(network, dtype) is None


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("name", cells.names())
def test_kernels_and_autograd_equal_the_reference(name: str) -> None:
    p = fitting(name, 5, 3, 4, 8)
    expected = on_reference(p)
    for who, found in {"llvm": on_llvm(p, np.float64), "torch": on_torch(p)}.items():
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_relative(found[key], value, "llvm float64 against the reference backend", f"{who}: {key}", least=1e-3)


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("sizes", [(7, 3, 6, 36), (3, 17, 33, 16), (12, 40, 40, 24), (2, 1, 70, 66)], ids=str)
@pytest.mark.parametrize("name", EVERY)
def test_other_sizes_and_stacks(name: str, sizes: tuple[int, int, int, int]) -> None:
    for layers, bidirectional in ((1, False), (2, True)):
        p = fitting(name, *sizes, layers, bidirectional)
        expected = on_reference(p)
        for key, value in on_llvm(p, np.float64, padding=3).items():
            assert_relative(value, expected[key], "random cells, float64", f"{layers} layers: {key}", least=1e-3)


@pytest.mark.parametrize("sizes", [(7, 3, 6, 36), (12, 40, 40, 24)], ids=str)
@pytest.mark.parametrize("name", EVERY)
def test_float32_is_within_budget(name: str, sizes: tuple[int, int, int, int]) -> None:
    p = fitting(name, *sizes)
    fast, peer, reference = on_llvm(p, np.float32), on_torch(p, torch.float32), on_reference(p)
    keys = [key for key, value in reference.items() if np.abs(value).max(initial=0.0) > 0]
    assert_within_budget(*([results[key] for key in keys] for results in (fast, peer, reference)), name)


@pytest.mark.parametrize("name", EVERY)
def test_first_values_stay_finite_and_do_not_grow(name: str) -> None:
    """A thousand steps of unit noise."""
    graph = cells.load(name).trace()
    sizes = {size: 8 for size in graph.size_names if size not in ("input", "hidden")}
    layer = anyrnn.Recurrent(name, 12, 16, seed=0, **sizes)  # type: ignore[arg-type]
    random = np.random.default_rng(0)
    further = {key: random.random((1000, 4, n)).astype("f") for key, n in layer.network.further_inputs}
    y, _ = layer(random.normal(size=(1000, 4, 12)).astype("f"), **further)
    assert np.isfinite(y).all()
    assert np.abs(y).max() < 1e3
    assert y[-1].std() > 0


def test_gaps_may_be_nan() -> None:
    layer, random = anyrnn.Recurrent("gru_decay", 3, 4), np.random.default_rng(0)
    x, seen = random.normal(size=(5, 2, 3)).astype(np.float32), random.uniform(size=(5, 2, 3)) < 0.5
    further = {"m": seen.astype(np.float32), "delta": np.ones((5, 2, 3), np.float32)}
    with_gaps = layer(np.where(seen, x, np.float32(np.nan)), **further)[0]
    assert np.array_equal(with_gaps, layer(x, **further)[0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [0.0, 100.0, 1000.0])
@pytest.mark.parametrize("name", EVERY)
def test_gradients_of_finite_outputs_are_finite(name: str, scale: float, dtype: str) -> None:
    """Whatever saturates; with an input of zeros outputs are."""
    layer = anyrnn.Recurrent(name, input_size(name, 3, 8), 8, seed=0, backend="reference", dtype=dtype, **sizes_of(name))  # type: ignore[arg-type]
    random = np.random.default_rng(0)
    further = {key: random.random((6, 2, n)).astype(dtype) for key, n in layer.network.further_inputs}
    x = (scale * random.normal(size=(6, 2, layer.network.input_size))).astype(dtype)
    with np.errstate(all="ignore"):
        y, _, reserve = layer.forward_training(x, **further)
        if not np.isfinite(y).all():
            assert scale
            return
        d_x, _, gradients = layer.backward(reserve, np.ones_like(y))
    d_inputs = d_x if isinstance(d_x, tuple) else (d_x,)
    assert all(np.isfinite(value).all() for value in (*gradients.values(), *d_inputs))


def test_a_gate_that_is_shut_has_the_gradient_of_float64() -> None:
    found = {}
    for dtype in (torch.float32, torch.float64):
        layer = anyrnn.torch.Recurrent("rg_lru", 2, 2, dtype=dtype)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape))
            layer.bias_uh_l0[:2] = -16.0
        layer(torch.ones(3, 1, 2, dtype=dtype))[0].sum().backward()
        found[dtype] = layer.Lambda_l0.grad.double()
    torch.testing.assert_close(found[torch.float32], found[torch.float64], rtol=1e-4, atol=0)
