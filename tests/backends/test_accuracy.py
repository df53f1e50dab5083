"""Every built-in cell, forward and every gradient: the reference against autograd, llvm against the reference."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch

from anyrnn import cells
from anyrnn.backends.llvm import run as llvm
from tests.budget import assert_agree, assert_relative, assert_within_budget
from tests.networks import Problem, Results, fitting, on_llvm, on_module, on_reference, on_torch
from tests.zoo import EVERY as CELLS
from tests.zoo import FEW

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

SIZES = [(5, 3, 4, 7), (1, 1, 1, 1), (7, 3, 5, 37), (3, 17, 33, 16), (12, 40, 40, 24), (2, 1, 70, 65), (40, 2, 3, 5)]
"""T, N, D, H"""
STACKS = [(1, False), (2, True)]
"""Layers, and whether there are two directions."""


def of(cell: str, sizes: tuple[int, ...], stack: tuple[int, bool] = (1, False), **options: Any) -> Problem:
    return fitting(cell, *sizes, *stack, **options)


def normalises(cell: str) -> bool:
    """Then rounding is magnified; and one feature, normalised, is zero or one: nothing but rounding is left of its gradient."""
    return {"sum", "sqrt"} <= {node.op for node in cells.load(cell).trace().nodes}


def role(name: str, value: Any) -> str:
    """Which errors are judged together."""
    if not name.startswith("d "):
        return "outputs and states"
    if name == "d x" or name.startswith("d first"):
        return "gradients of inputs and states"
    return "gradients of matrices" if value.ndim == 2 else "gradients of vectors"


def peer_of(p: Problem) -> Results:
    """Float32 by torch.nn where it has the cell, else by the interpreter on torch."""
    graph, sizes = p.network.graph, dict(p.network.sizes)
    hidden = sizes["hidden"]
    for name, make in TORCH.items():
        if graph == cells.load(name).trace():
            options = {"proj_size": sizes["proj"]} if "proj" in sizes else {}
            if options.get("proj_size") == hidden:
                break  # torch.nn wants a projection to be smaller
            module = make(sizes["input"], hidden, p.network.layers, bidirectional=p.network.bidirectional, **options)
            return on_module(p, module)
    return on_torch(p, torch.float32)


TORCH: dict[str, Any] = {
    "rnn_tanh": torch.nn.RNN,
    "rnn_relu": lambda *a, **k: torch.nn.RNN(*a, nonlinearity="relu", **k),
    "lstm": torch.nn.LSTM,
    "gru": torch.nn.GRU,
    "lstm_projected": torch.nn.LSTM,
}


def conditioning(p: Problem, reference: Results) -> float:
    """How large a problem makes rounding errors: how far the reference moves when all numbers are rounded. (The peer's own errors
    would say that too, but then those problems would be chosen where the peer has luck.)
    """
    moved = on_reference(p.rounded(np.random.default_rng(0)))
    return max(float(np.linalg.norm(moved[name] - a) / (np.linalg.norm(a) or 1.0)) for name, a in reference.items())


@pytest.mark.parametrize("stack", [(1, False), (1, True), (2, False), (2, True)], ids=str)
@pytest.mark.parametrize("cell", CELLS)
def test_reference_equals_autograd(cell: str, stack: tuple[int, bool]) -> None:
    for sizes in [(5, 3, 4, 7), (1, 1, 1, 1), (3, 2, 6, 5)]:
        if sizes[-1] == 1 and normalises(cell):
            continue
        p = of(cell, sizes, stack)
        expected = on_torch(p)
        for name, value in on_reference(p).items():
            kind = "reference backend against torch autograd, float64"
            assert_relative(value, expected[name], kind, f"{sizes} {name}", least=1e-3)


@pytest.mark.parametrize("sizes", [*SIZES, (35, 150, 3, 5)], ids=str)
@pytest.mark.parametrize("cell", CELLS)
def test_float64_equals_the_reference(cell: str, sizes: tuple[int, ...]) -> None:
    if sizes[-1] == 1 and normalises(cell):
        return
    stacks = [*STACKS, (1, True), (2, False)] if sizes == SIZES[0] else STACKS
    for stack in stacks:
        p = of(cell, sizes, stack)
        expected = on_reference(p)
        near = (lambda random, p=p: on_reference(p.rounded(random))) if normalises(cell) else None
        for padding in (0, 3):
            found, who = on_llvm(p, np.float64, padding=padding), f"{stack}, padding {padding}"
            assert_agree(found, expected, "llvm float64 against the reference backend", who, 1e-3, near)


@pytest.mark.parametrize("stack", STACKS, ids=str)
@pytest.mark.parametrize("cell", CELLS)
def test_without_bias(cell: str, stack: tuple[int, bool]) -> None:
    p = of(cell, (5, 3, 4, 7), stack, bias=False)
    expected = on_reference(p)
    for name, value in on_llvm(p, np.float64).items():
        assert_relative(value, expected[name], "llvm float64 against the reference backend", name)


def in_float32(
    cell: str, sizes: tuple[int, ...], stack: tuple[int, bool], most: int = 32
) -> dict[str, tuple[list[Any], list[Any], list[Any]]]:
    """By role: what llvm gives for many problems at once, what the peer gives, and the reference."""
    count = max(3, min(most, 2048 // (sizes[0] * sizes[1] * sizes[-1])))
    # Of twice as many problems the worse conditioned half is left out: there one rounding decides how large all errors are.
    drawn = [of(cell, sizes, stack, seed=seed) for seed in range(2 * count)]
    known = sorted(((p, on_reference(p)) for p in drawn), key=lambda of: conditioning(*of))[:count]
    solved = [(p, right, peer_of(p)) for p, right in known]
    results = [on_llvm(p, np.float32) for p, _, _ in solved], [peer for _, _, peer in solved], [right for _, right, _ in solved]
    found: dict[str, tuple[list[Any], list[Any], list[Any]]] = defaultdict(lambda: ([], [], []))
    for name, value in solved[0][1].items():
        for together, some in zip(found[role(name, value)], results, strict=True):
            together.append(np.stack([one[name] for one in some]))
    return found


SIZES_IN_FLOAT32 = [*SIZES[:-1], (16, 2, 3, 5), (3, 4, 256, 200)]
IN_FLOAT32 = [
    pytest.param(cell, sizes, marks=() if (number + position) % 8 == 1 else pytest.mark.slow, id=f"{cell}-{sizes}")
    for number, cell in enumerate(FEW)
    for position, sizes in enumerate(SIZES_IN_FLOAT32)
]
"""Every eighth one in `make test`."""


@pytest.mark.parametrize(("cell", "sizes"), IN_FLOAT32)
def test_float32_is_within_budget(cell: str, sizes: tuple[int, ...]) -> None:
    if sizes[-1] == 1 and normalises(cell):
        return
    for stack in STACKS:
        for kind, results in in_float32(cell, sizes, stack).items():
            assert_within_budget(*results, what=f"{cell} {sizes} {stack}: {kind}")


@pytest.mark.slow
@pytest.mark.parametrize("stack", STACKS, ids=str)
@pytest.mark.parametrize("cell", [name for name in cells.names() if name not in FEW])
def test_float32_of_other_cells_is_within_budget(cell: str, stack: tuple[int, bool]) -> None:
    """All sizes together: of so many cells, one or another is beyond its budget by chance where its numbers are few."""
    together: dict[str, tuple[list[Any], list[Any], list[Any]]] = defaultdict(lambda: ([], [], []))
    for sizes in SIZES_IN_FLOAT32:
        if sizes[-1] > 1 or not normalises(cell):
            for kind, results in in_float32(cell, sizes, stack, most=8).items():
                for some, more in zip(together[kind], results, strict=True):
                    some.extend(more)
    for kind, results in together.items():
        assert_within_budget(*results, what=f"{cell} {stack}: {kind}")


MANY_FEATURES, MANY_ROWS, MANY_STEPS = [(2, 40, 512, 512), (2, 1, 1024, 1024)], [(3, 3000, 2, 9)], [(800, 3, 2, 9)]


@pytest.mark.parametrize(
    ("cell", "sizes"),
    [
        *itertools.product(["rnn_tanh", "lstm"], MANY_FEATURES),
        *itertools.product(["gru", "indrnn"], MANY_ROWS + MANY_STEPS),
        *(
            pytest.param(*of, marks=pytest.mark.slow)
            for of in (
                *itertools.product(["rnn_relu", "gru"], MANY_FEATURES),
                *itertools.product(["lstm_peephole", "lstm_layernorm"], MANY_ROWS + MANY_STEPS),
            )
        ),
    ],
    ids=str,
)
def test_float32_of_long_sums_is_within_budget(cell: str, sizes: tuple[int, ...]) -> None:
    p = of(cell, sizes)
    fast, peer, reference = on_llvm(p, np.float32), peer_of(p), on_torch(p)
    for name, value in reference.items():
        assert_within_budget(fast[name], peer[name], value, f"{cell} {sizes}: {name}")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cell", CELLS)
def test_inference_gives_the_bits_of_training(cell: str, dtype: Any) -> None:
    for sizes in SIZES[:-1]:
        for stack in STACKS:
            p = of(cell, sizes, stack)
            training = on_llvm(p, dtype)
            for padding in (0, 2):
                for name, value in on_llvm(p, dtype, training=False, padding=padding).items():
                    assert np.array_equal(value, training[name]), f"{sizes} {stack} {name}"


@pytest.mark.parametrize("cell", ["rnn_tanh", "gru_before", "lstm", "lstm_layernorm"])
def test_a_sequence_of_several_chunks(cell: str) -> None:
    p = of(cell, (1100, 2, 3, 5))
    assert llvm.Extent(1100, 2).chunk < 1100 / 2
    expected = on_reference(p)
    for name, value in on_llvm(p, np.float64).items():
        assert_relative(value, expected[name], "llvm float64 against the reference backend", name)
