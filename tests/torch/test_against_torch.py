"""RNN, LSTM and GRU against torch.nn: outputs, states and every gradient; names, initial values and attributes."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import pytest
import torch

import anyrnn.torch
from tests.budget import assert_relative, assert_within_budget
from tests.torch.layers import KINDS, pair, solve, state_for

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

T, N, D, H = 5, 3, 4, 7
STACKS = [(1, False), (1, True), (2, False), (2, True), (3, True)]
"""Layers, and whether there are two directions."""
kinds = pytest.mark.parametrize("kind", KINDS)
few_stacks = pytest.mark.parametrize("stack", [(1, False), (2, True)], ids=str)
all_stacks = pytest.mark.parametrize("stack", STACKS, ids=str)
biases = pytest.mark.parametrize("bias", [True, False])


def check_float64(kind: str, stack: tuple[int, bool], bias: bool, batch_first: bool, rows: int | None, with_state: bool) -> None:
    """`rows` None is an input without a batch."""
    options = {"bias": bias, "batch_first": batch_first, "bidirectional": stack[1], "dtype": torch.float64}
    ours, theirs = pair(kind, D, H, stack[0], **options)
    random = torch.Generator().manual_seed(1)
    shape = (T, D) if rows is None else (rows, T, D) if batch_first else (T, rows, D)
    x = torch.randn(shape, dtype=torch.float64, generator=random)
    state = state_for(theirs, rows, torch.float64, random) if with_state else None
    expected, found = solve(theirs, x, state), solve(ours, x, state)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        what = f"batch_first {batch_first}, rows {rows}, state {with_state}: {name}"
        assert_relative(found[name], value, "float64 against torch.nn", what)


@kinds
@few_stacks
def test_float64_equals_torch(kind: str, stack: tuple[int, bool]) -> None:
    check_float64(kind, stack, bias=True, batch_first=False, rows=N, with_state=True)
    check_float64(kind, stack, bias=True, batch_first=True, rows=N, with_state=False)
    check_float64(kind, stack, bias=True, batch_first=True, rows=None, with_state=True)
    check_float64(kind, stack, bias=False, batch_first=True, rows=N, with_state=True)
    check_float64(kind, stack, bias=False, batch_first=False, rows=None, with_state=False)


@pytest.mark.slow
@kinds
@all_stacks
@biases
def test_float64_equals_torch_everywhere(kind: str, stack: tuple[int, bool], bias: bool) -> None:
    for batch_first, rows, with_state in itertools.product([False, True], [N, 1, None], [False, True]):
        check_float64(kind, stack, bias, batch_first, rows, with_state)


@kinds
@pytest.mark.parametrize("stack", [(1, False), (2, True), pytest.param((3, True), marks=pytest.mark.slow)], ids=str)
def test_float32_is_within_budget(kind: str, stack: tuple[int, bool]) -> None:
    layers, bidirectional = stack
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
@all_stacks
@biases
def test_one_seed_gives_the_initial_values_of_torch(kind: str, stack: tuple[int, bool], bias: bool) -> None:
    for seed in (0, 7):
        ours, theirs = pair(kind, D, H, stack[0], bias=bias, bidirectional=stack[1], seed=seed)
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
@all_stacks
@biases
def test_state_dicts_load_both_ways(kind: str, stack: tuple[int, bool], bias: bool) -> None:
    ours, theirs = pair(kind, D, H, stack[0], bias=bias, bidirectional=stack[1])
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


ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((D, H), {}),
    ((D, H, 3), {"dropout": 0.25}),
    ((D, H), {"bias": False, "batch_first": True}),
    ((D, H, 2), {"bidirectional": True, "batch_first": True}),
    ((), {"input_size": D, "hidden_size": H, "num_layers": 2, "dtype": torch.float64}),
]


@kinds
@pytest.mark.parametrize(("arguments", "options"), ARGUMENTS, ids=str)
def test_attributes_and_repr_are_those_of_torch(kind: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    ours, theirs = pair(kind, *arguments, **options)
    assert repr(ours) == repr(theirs)
    for name in [*theirs.__constants__, *(["nonlinearity"] if isinstance(theirs, torch.nn.RNN) else [])]:
        assert getattr(ours, name) == getattr(theirs, name), name
        assert type(getattr(ours, name)) is type(getattr(theirs, name)), name
    assert [[p.shape for p in unit] for unit in ours.all_weights] == [[p.shape for p in unit] for unit in theirs.all_weights]
    assert ours._all_weights == theirs._all_weights
    assert ours._flat_weights_names == theirs._flat_weights_names
    assert all(a is getattr(ours, name) for a, name in zip(ours._flat_weights, ours._flat_weights_names, strict=True))
    ours._flat_weights = [getattr(ours, name) for name in ours._flat_weights_names]
    with pytest.raises(AttributeError, match=r"_flat_weights are the attributes \(weight_ih_l0, .*\): set those"):
        ours._flat_weights = [weight.clone() for weight in ours._flat_weights]
    assert ours.training == theirs.training
    assert ours.flatten_parameters() is None


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("RNN", (D, H, 2, "relu", True, True, 0.1, True)),
        ("LSTM", (D, H, 2, True, True, 0.1, True, 3)),
        ("GRU", (D, H, 2, False, True, 0.1, True)),
    ],
)
def test_positional_arguments_are_those_of_torch(name: str, arguments: tuple[Any, ...]) -> None:
    assert repr(getattr(anyrnn.torch, name)(*arguments)) == repr(getattr(torch.nn, name)(*arguments))
