"""Packed weights are kept from one inference call to the next, and are never those of other weights."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyrnn.torch
from anyrnn.torch import packed_weights


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    packed_weights.KNOWN.clear()


def run(layer: torch.nn.Module, x: torch.Tensor) -> Any:
    with torch.no_grad():
        return layer(x)[0]


def known() -> packed_weights.Weights:
    (weights,) = packed_weights.KNOWN.values()
    return weights


def test_the_second_call_reads_what_the_first_has_packed() -> None:
    layer, x = anyrnn.torch.LSTM(3, 40), torch.randn(5, 2, 3)
    output = run(layer, x)
    (kept,) = known().lent.rest
    kept.memory[:640] = 0  # the first weights; behind them all stands what tells of which weights they are
    assert not torch.equal(run(layer, x), output), "the weights were packed again"
    assert known().lent.rest == [kept]


def test_calls_at_once_have_memory_of_their_own() -> None:
    """One may pack other numbers, when somebody writes to the weights."""
    layer, x = anyrnn.torch.LSTM(3, 40), torch.randn(5, 2, 3)
    run(layer, x)
    lent = known().lent
    held = lent.lent(1)
    before = held.memory.copy()
    layer.weight_hh_l0.data.neg_()
    run(layer, x)
    assert (held.memory == before).all()
    assert held not in lent.rest
    assert len(lent.rest) == 1


@pytest.mark.parametrize("rows", [slice(0, 40), slice(120, 160), slice(0, 160)])
@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"])
def test_what_torch_does_not_count_is_seen(name: str, rows: slice) -> None:
    layer, x = anyrnn.torch.LSTM(30, 40), torch.randn(5, 2, 30)
    run(layer, x)
    getattr(layer, name).data[rows] += 1.0  # leaves the version as it is
    fresh = anyrnn.torch.LSTM(30, 40)
    fresh.load_state_dict(layer.state_dict())
    assert torch.equal(run(layer, x), run(fresh, x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"])
def test_a_single_number_is_seen(name: str, dtype: torch.dtype) -> None:
    layer, x = anyrnn.torch.LSTM(31, 40, dtype=dtype), torch.randn(5, 2, 31, dtype=dtype)
    parameter = getattr(layer, name)
    for place in (0, 77, parameter.numel() // 2, parameter.numel() - 1):
        before = run(layer, x)
        parameter.data.view(-1)[place] += 1.0
        assert not torch.equal(run(layer, x), before), place


def test_the_lowest_bit_of_the_last_number_is_seen() -> None:
    """It is looked at last, and half of all hashes are even."""
    layer, x = anyrnn.torch.RNN(31, 40), torch.zeros(2, 2, 31)
    x[..., -2:] = 1.0
    for parameter in layer.parameters():
        parameter.data.zero_()
    weight = layer.weight_ih_l0.data
    weight[-1, -2] = -1.0
    for number in torch.rand(20).tolist():
        weight[-1, 0], weight[-1, -1] = number, 1.0
        assert run(layer, x)[0, 0, -1] == 0
        weight[-1, -1] = 1.0 + 2.0**-23
        assert run(layer, x)[0, 0, -1] != 0


@pytest.mark.parametrize(("kind", "hidden"), [("LSTM", 384), ("LSTM", 192), ("RNN", 384)])
@pytest.mark.parametrize(
    "change",
    [torch.Tensor.neg_, lambda w: w.mul_(0.5), lambda w: w.mul_(4.0), lambda w: w[:, 5].neg_(), lambda w: w[7].neg_()],
    ids=["negative", "half", "times four", "a column", "a row"],
)
def test_changes_of_the_highest_bits_alone_are_seen(kind: str, hidden: int, change: Callable[[torch.Tensor], Any]) -> None:
    """Matrices of these sizes are hashed in whole vectors, and all differences are in the same bits."""
    layer, x = getattr(anyrnn.torch, kind)(16, hidden), torch.randn(5, 2, 16)
    before = run(layer, x)
    change(layer.weight_hh_l0.data)
    assert not torch.equal(run(layer, x), before)


def exchange(weight: torch.Tensor) -> None:
    """Two numbers, whole vectors apart if they are many."""
    flat, (first, second) = weight.view(-1), torch.randint(weight.numel(), (2,)).tolist()
    second = first % 16 + second // 16 * 16
    flat[first], flat[second] = flat[second].clone(), flat[first].clone()


@pytest.mark.parametrize("change", [torch.Tensor.neg_, exchange], ids=["negative", "exchanged"])
@pytest.mark.parametrize("features", [1, 2, 12, 16, 64])
def test_no_group_is_left_as_it_was(features: int, change: Callable[[torch.Tensor], Any]) -> None:
    """Each group of a matrix is looked at by itself, some of a single vector: what of a hash is linear would let changes cancel
    each other in one of a hundred.
    """
    layer, x = anyrnn.torch.LSTM(features, 64), torch.randn(2, 9, features)
    for _ in range(200):
        torch.nn.init.uniform_(layer.weight_ih_l0, -1.0, 1.0)
        run(layer, x)
        change(layer.weight_ih_l0.data)
        found = run(layer, x)
        packed_weights.KNOWN.clear()
        assert torch.equal(found, run(layer, x))


@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.Adam])
def test_fused_optimisers_are_seen(optimiser: type[torch.optim.Optimizer]) -> None:
    """They change weights without counting: here one column of one matrix."""
    layer, x = anyrnn.torch.LSTM(16, 32), torch.randn(5, 2, 16)
    steps = optimiser([layer.weight_ih_l0], lr=0.1, fused=True)
    before = run(layer, x)
    layer.weight_ih_l0.grad = torch.zeros(128, 16)
    layer.weight_ih_l0.grad[:, 3] = 1.0
    steps.step()
    assert not torch.equal(run(layer, x), before)


def test_many_new_places_of_one_parameter_are_one_entry() -> None:
    layer, x = anyrnn.torch.GRU(3, 4), torch.randn(5, 2, 3)
    for k in range(20):
        for parameter in layer.parameters():
            parameter.data = parameter.data + k
        run(layer, x)
    assert len(packed_weights.KNOWN) == 1


def test_a_module_of_inference_mode_in_the_place_of_another() -> None:
    layer, x = anyrnn.torch.LSTM(3, 40), torch.randn(5, 2, 3)
    run(layer, x)
    layer.double()
    with torch.inference_mode():
        for _ in range(20):
            anyrnn.torch.LSTM(3, 40)(x)
    run(layer, x.double())


@pytest.mark.parametrize(("features", "projected"), [(64, 0), (70, 0), (64, 20)])
def test_single_rows_leave_what_others_have_packed(features: int, projected: int) -> None:
    """Of 70 or 20 features weights are packed for single rows too, beside others that are not."""
    layer = anyrnn.torch.LSTM(features, 64, proj_size=projected).eval()
    inputs = {steps: torch.randn(steps, 1, features) for steps in (5, 1)}
    expected = {steps: run(layer, x) for steps, x in inputs.items()}
    for turn in range(3):
        with torch.no_grad():
            for p in layer.parameters():
                p.data *= -1.0
        if turn == 2:
            layer.freeze()
        for steps in (1, 5, 1, 5):
            output = run(layer, inputs[steps])
            assert output.equal(expected[steps]) is (turn == 1)
        if turn != 1:
            other = anyrnn.torch.LSTM(features, 64, proj_size=projected)
            other.load_state_dict(layer.state_dict())
            assert all(run(layer, x).equal(run(other, x)) for x in inputs.values())


def test_weights_packed_for_one_module_are_gone_with_it() -> None:
    layer, x = anyrnn.torch.GRU(3, 40), torch.randn(5, 2, 3)
    run(layer, x)
    assert len(packed_weights.KNOWN) == 1
    del layer
    gc.collect()
    assert not packed_weights.KNOWN


def test_modules_of_one_kind_keep_their_own() -> None:
    one, other, x = anyrnn.torch.GRU(3, 40), anyrnn.torch.GRU(3, 40), torch.randn(5, 2, 3)
    first, second = run(one, x), run(other, x)
    assert len(packed_weights.KNOWN) == 2
    assert torch.equal(run(one, x), first)
    assert torch.equal(run(other, x), second)


def test_what_is_kept_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    layers, x = [anyrnn.torch.GRU(3, 40) for _ in range(5)], torch.randn(5, 2, 3)
    run(layers[0], x)
    monkeypatch.setattr(packed_weights, "MOST_BYTES", 2 * known().bytes)
    for layer in layers:
        run(layer, x)
    assert len(packed_weights.KNOWN) == 2


@pytest.mark.parametrize("training", [True, False])
def test_only_parameters_without_gradients_are_kept(training: bool) -> None:
    layer, x = anyrnn.torch.LSTM(3, 40), torch.randn(5, 2, 3)
    if training:
        layer(x)
    else:
        plain = {name: p.detach() * 1.0 for name, p in layer.named_parameters()}
        with torch.no_grad():
            torch.func.functional_call(layer, plain, (x,))
    assert not packed_weights.KNOWN


def test_parameters_made_in_inference_mode_have_no_versions() -> None:
    with torch.inference_mode():
        layer, x = anyrnn.torch.LSTM(3, 40), torch.randn(5, 2, 3)
        before = layer(x)[0]
        layer.weight_hh_l0[3, 4] += 1.0
        assert not torch.equal(layer(x)[0], before)
    assert not packed_weights.KNOWN
