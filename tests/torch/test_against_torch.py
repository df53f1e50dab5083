"""RNN, LSTM and GRU against torch.nn: outputs, states, gradients, initial values, loss curves."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch

from tests.budget import assert_relative, assert_within_budget
from tests.torch.layers import KINDS, pair, solve, state_for

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

T, N, D, H = 5, 3, 4, 7
stacks = pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (1, True), (2, False), (2, True), (3, True)])
kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
@stacks
@pytest.mark.parametrize("bias", [True, False])
def test_float64_equals_torch(kind: str, layers: int, bidirectional: bool, bias: bool) -> None:
    for batch_first, with_state, rows in itertools.product([False, True], [False, True], [N, 1, None]):
        options = {"bias": bias, "batch_first": batch_first, "bidirectional": bidirectional, "dtype": torch.float64}
        ours, theirs = pair(kind, D, H, layers, **options)
        random = torch.Generator().manual_seed(1)
        shape = (T, D) if rows is None else (rows, T, D) if batch_first else (T, rows, D)
        x = torch.randn(shape, dtype=torch.float64, generator=random)
        state = state_for(theirs, rows, torch.float64, random) if with_state else None
        expected, found = solve(theirs, x, state), solve(ours, x, state)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            what = f"batch_first {batch_first}, state {with_state}, rows {rows}: {name}"
            assert_relative(found[name], value, "float64 against torch.nn", what)


@kinds
@stacks
def test_float32_is_within_budget(kind: str, layers: int, bidirectional: bool) -> None:
    groups: Any = defaultdict(lambda: ([], [], []))
    for seed in range(6):
        random = torch.Generator().manual_seed(seed)
        ours, theirs = pair(kind, D, H, layers, bidirectional=bidirectional, seed=seed)
        exact = KINDS[kind][1](D, H, layers, bidirectional=bidirectional, dtype=torch.float64)
        exact.load_state_dict(theirs.state_dict())
        x = torch.randn(T, N, D, generator=random)
        state = state_for(theirs, N, torch.float32, random)
        wide = state.double() if isinstance(state, torch.Tensor) else tuple(s.double() for s in state)
        for k, (layer, inputs, first) in enumerate([(ours, x, state), (theirs, x, state), (exact, x.double(), wide)]):
            for name, value in solve(layer, inputs, first).items():
                kind_of = "parameters" if name.startswith(("d weight", "d bias")) else "inputs" if name[0] == "d" else "outputs"
                groups[kind_of][k].append(value)
    for name, (fast, peer, reference) in groups.items():
        assert_within_budget(fast, peer, reference, f"{kind} {layers} {bidirectional}: {name}")


@kinds
@stacks
@pytest.mark.parametrize("bias", [True, False])
def test_one_seed_gives_the_initial_values_of_torch(kind: str, layers: int, bidirectional: bool, bias: bool) -> None:
    for seed in (0, 7):
        ours, theirs = pair(kind, D, H, layers, bias=bias, bidirectional=bidirectional, seed=seed)
        own, other = dict(ours.named_parameters()), dict(theirs.named_parameters())
        assert list(own) == list(other)
        for name, value in other.items():
            assert own[name].dtype == value.dtype
            assert torch.equal(own[name], value), name
        torch.manual_seed(seed + 1)
        ours.reset_parameters()
        torch.manual_seed(seed + 1)
        theirs.reset_parameters()
        assert all(torch.equal(own[name], value) for name, value in other.items())


@kinds
@stacks
@pytest.mark.parametrize("bias", [True, False])
def test_state_dicts_load_both_ways(kind: str, layers: int, bidirectional: bool, bias: bool) -> None:
    ours, theirs = pair(kind, D, H, layers, bias=bias, bidirectional=bidirectional)
    before = ours.state_dict()
    for source, target in ((theirs, ours), (ours, theirs)):
        with torch.no_grad():
            for parameter in source.parameters():
                parameter.uniform_(-1, 1)
        result = target.load_state_dict(source.state_dict(), strict=True)
        assert not result.missing_keys
        assert not result.unexpected_keys
        assert list(source.state_dict()) == list(target.state_dict())
        assert all(torch.equal(a, b) for a, b in zip(source.parameters(), target.parameters(), strict=True))
    assert all(before[name].data_ptr() == value.data_ptr() for name, value in ours.state_dict().items())


# training


def train(make: Any, dtype: torch.dtype, steps: int) -> list[float]:
    """The losses of a small network that learns to add up what it sees."""
    torch.manual_seed(3)
    layer = make(3, 8, 2, dtype=dtype)
    head = torch.nn.Linear(layer.proj_size or 8, 1, dtype=dtype)
    random = torch.Generator().manual_seed(4)
    x = torch.randn(10, 16, 3, dtype=torch.float64, generator=random).to(dtype)
    target = x.sum(-1, keepdim=True).cumsum(0).sin()
    adam = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=0.01)
    losses = []
    for _ in range(steps):
        adam.zero_grad()
        loss = torch.nn.functional.mse_loss(head(layer(x)[0]), target)
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return losses


@kinds
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_loss_curves_are_those_of_torch(kind: str, dtype: torch.dtype) -> None:
    ours, theirs = (np.array(train(make, dtype, 200)) for make in KINDS[kind])
    assert theirs[-1] < 0.8 * theirs[0], "it learns"
    row = "loss curve in float64 against torch.nn" if dtype == torch.float64 else "loss curve in float32 against torch.nn"
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert_relative(a, b, row, f"step {step}")
