"""Which networks cuDNN computes, and its weights: torch's own networks, which take them in that order, give the same here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import anyrnn.torch
from anyrnn import State, affine, cell, sigmoid, tanh
from anyrnn.backends.cudnn.matching import Match, gradients, match, weights

FUNCTIONS = {"LSTM": torch._VF.lstm, "GRU": torch._VF.gru, "RNN_TANH": torch._VF.rnn_tanh, "RNN_RELU": torch._VF.rnn_relu}


@cell
def own_gru(x, s):  # type: ignore[no-untyped-def]
    """With other names, and the gates in another order."""
    keep = sigmoid(affine("keep", x, s))
    new_of_s, reset = affine("new", s), sigmoid(affine("reset", x, s))
    new = tanh(reset * new_of_s + affine("new", x))
    s = keep * s + (1 - keep) * new
    return s, State(s=s)


@cell
def bare(x, h):  # type: ignore[no-untyped-def]
    h = tanh(affine("h", x, h, bias=False))
    return h, State(h=h)


def sources_of(module: Any) -> list[Tensor]:
    return [module.get_parameter(name) for name in module._mode.source_names]


@pytest.mark.parametrize("own", ["lstm", "gru", "rnn_tanh", "rnn_relu", own_gru, bare], ids=str)
@pytest.mark.parametrize("how", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}], ids=["plain", "deep", "no bias"])
def test_networks_that_cudnn_has(own: Any, how: dict[str, Any]) -> None:
    torch.manual_seed(0)
    module = anyrnn.torch.Recurrent(own, 3, 5, dtype=torch.float64, backend="reference", **how)
    network, x = module.network, torch.randn(7, 2, 3, dtype=torch.float64)
    found = match(network)
    assert isinstance(found, Match)
    sources = sources_of(module)
    flat = weights(found, network, sources)
    first = [torch.randn(len(network.units), 2, 5, dtype=torch.float64) for _ in network.state_sizes]
    leaves = [w.detach().clone().requires_grad_() for w in flat]
    options = (True, network.layers, 0.0, False, network.bidirectional, False)
    output, *last = FUNCTIONS[found.mode](x, first if found.mode == "LSTM" else first[0], leaves, *options)
    expected, states = module(x, tuple(first) if len(first) > 1 else first[0])
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(tuple(last), states if isinstance(states, tuple) else (states,), rtol=0, atol=1e-12)
    cotangent = torch.randn_like(output)
    (expected * cotangent).sum().backward()
    d_weights = torch.autograd.grad((output * cotangent).sum(), leaves)
    found_gradients = gradients(found, network, sources, d_weights)
    for parameter, gradient in zip(sources, found_gradients, strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_no_weight_is_copied(name: str) -> None:
    module = getattr(anyrnn.torch, name)(3, 5, num_layers=2)
    found = match(module.network)
    assert isinstance(found, Match)
    sources = sources_of(module)
    flat = weights(found, module.network, sources)
    theirs = [p for names in module._parameter_names for p in map(module.get_parameter, names)]
    assert [w.data_ptr() for w in flat] == [p.data_ptr() for p in theirs]
    assert [w.shape for w in flat] == [p.shape for p in theirs]


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("gru_before", {}, "the cell is none of cuDNN's four"),
        ("lstm_peephole", {}, "the cell is none of cuDNN's four"),
        ("lstm_coupled", {}, "the cell is none of cuDNN's four"),
        ("lstm_layernorm", {}, "the cell is none of cuDNN's four"),
        ("lstm", {"clip_preactivation": 1.0}, "the cell is none of cuDNN's four"),
        ("lstm", {"activations": {"tanh": "relu"}}, "the cell is none of cuDNN's four"),
        ("lstm", {"reverse": True}, "cuDNN has no single direction that reads from the last step to the first"),
    ],
)
def test_networks_that_it_has_not(name: str, options: dict[str, Any], reason: str) -> None:
    assert match(anyrnn.torch.Recurrent(name, 3, 5, **options).network) == reason


def test_calls_that_it_has_not() -> None:
    layer = anyrnn.torch.Recurrent("lstm", 3, 5, zoneout=0.1)
    assert match(layer._modes[True].network) == "cuDNN's dropout draws other numbers"
    assert match(anyrnn.torch.LSTM(3, 5).network.with_all_states) == "cuDNN does not give the states of all steps"


@cell
def gru_with_a_share(x, h, *, share=1.0):  # type: ignore[no-untyped-def]
    r, z = sigmoid(affine("r", x, h)), sigmoid(affine("z", x, h))
    n = tanh(affine("n", x) + r * affine("n", h))
    h = (share - z) * n + z * h
    return h, State(h=h)


def test_numbers_that_are_told_when_a_layer_is_made_decide_too() -> None:
    made = [anyrnn.torch.Recurrent(gru_with_a_share, 3, 5, share=share) for share in (1.0, 0.5)]
    assert isinstance(match(made[0].network), Match)
    assert match(made[1].network) == "the cell is none of cuDNN's four"
    assert len({layer._modes[False].number for layer in made}) == 2
