"""torch's own checks of the registered operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import anyrnn.torch
from anyrnn.sequence.packing import segments
from anyrnn.torch import operators

T, N, D, H = 4, 3, 2, 5
EVERYTHING = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")

LAYERS: dict[str, dict[str, Any]] = {
    "lstm": {},
    "gru": {"num_layers": 2, "bidirectional": True},
    "lstm_layernorm": {"zoneout": 0.2},
    "indrnn": {"batch_first": True},
}


def arguments(name: str, keep: bool, ragged: bool) -> list[Any]:
    """What a layer gives the forward operator."""
    torch.manual_seed(0)
    layer = anyrnn.torch.Recurrent(name, D, H, **LAYERS[name])
    mode = layer._modes[True]
    seed = torch.tensor(7) if mode.draws else None
    x = torch.randn(T, N, D)
    packing = segments(np.arange(T)[:, None] < np.array([4, 2, 1])).packing if ragged else None
    given = x if packing is None else torch.randn(len(packing.sample), D)
    sources = [s.detach() for s in layer._sources(mode, seed, x)[0]]
    return [[given], [], sources, seed, *operators.as_arguments(packing), mode.number, keep]


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_torch_checks_the_forward_operator(name: str, ragged: bool) -> None:
    given = arguments(name, False, ragged)
    torch.library.opcheck(torch.ops.anyrnn.forward.default, given, test_utils=EVERYTHING)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_torch_checks_the_backward_operator(name: str, ragged: bool) -> None:
    """And the forward operator where it keeps a reserve, but for the comparison of its bytes, of which some mean nothing."""
    given = arguments(name, True, ragged)
    torch.library.opcheck(torch.ops.anyrnn.forward.default, given, test_utils=EVERYTHING[:3])
    output, last, reserve = torch.ops.anyrnn.forward(*given)
    *common, number, _ = given
    d_last = [None, *map(torch.ones_like, last[1:])]
    for wanted in ([True, True, True], [False, True, False]):
        backward = [*common, reserve, torch.randn_like(output), d_last, number, wanted]
        torch.library.opcheck(torch.ops.anyrnn.backward.default, backward, test_utils=EVERYTHING)


@pytest.mark.parametrize("name", ["lstm", "indrnn"])
def test_gradients_stand_where_compilers_are_told_on_devices_too(name: str) -> None:
    """By kernels of devices, of an input with samples first."""
    layer = anyrnn.torch.Recurrent(name, D, H, backend="triton", batch_first=True)
    mode, x = layer._modes[True], torch.randn(N, T, D).transpose(0, 1)
    given = [[x], [], [s.detach() for s in layer._sources(mode, None, x)[0]], None, None, None, mode.number]
    output, last, reserve = torch.ops.anyrnn.forward(*given, True)
    backward = [*given[:-1], reserve, torch.randn_like(output), [None] * len(last), given[-1], [True] * 3]
    torch.library.opcheck(torch.ops.anyrnn.backward.default, backward, test_utils=("test_faketensor",))
    assert torch.ops.anyrnn.backward(*backward)[0][0].stride() == output.new_empty(N, T, D).transpose(0, 1).stride()


def test_gradients_stand_in_rows_wherever_weights_do() -> None:
    """As compilers are told, which else read them with the weights' strides."""
    given = arguments("lstm", True, False)
    given[2] = [s.t().contiguous().t() if s.dim() == 2 else s for s in given[2]]
    output, last, reserve = torch.ops.anyrnn.forward(*given)
    backward = [*given[:-2], reserve, torch.randn_like(output), [None] * len(last), given[-2], [True] * 3]
    torch.library.opcheck(torch.ops.anyrnn.backward.default, backward, test_utils=("test_faketensor",))
    d_sources = torch.ops.anyrnn.backward(*backward)[2]
    assert all(map(torch.Tensor.is_contiguous, d_sources))


def test_a_trace_of_both_calls_says_why_it_needs_no_grad() -> None:
    layer, x = anyrnn.torch.GRU(D, H), torch.randn(T, N, D)
    weights = list(layer.parameters())
    traced = make_fx(lambda x: torch.autograd.grad(layer(x)[0].sum(), weights))(x)
    with torch.no_grad():
        found = traced(x)
    for a, b in zip(found, torch.autograd.grad(layer(x)[0].sum(), weights), strict=True):
        torch.testing.assert_close(a, b)
    with pytest.raises(RuntimeError, match=r"kept nothing for it, as gradients are enabled .* runs under `torch.no_grad\(\)`"):
        traced(x)
