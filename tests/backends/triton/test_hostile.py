"""Calls whose parameters or kept values were changed meanwhile, and numbers of 16 bits where sequences end at different steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyrnn.torch
from anyrnn.torch import operators


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cell", ["lstm", "lru"])
def test_states_of_16_bits_where_lengths_differ(cell: str, dtype: torch.dtype) -> None:
    """Given, and with gradients of their own: as those of each sample alone."""
    torch.manual_seed(0)
    layer = anyrnn.torch.Recurrent(cell, 3, 6, backend="triton", dtype=dtype)
    x, lengths = torch.randn(4, 2, 3, dtype=dtype), [4, 2]
    first = tuple(torch.randn(1, 2, size, dtype=dtype).requires_grad_() for size in layer.network.state_sizes)

    def of(rows: slice, steps: int, **call: Any) -> tuple[list[Tensor], list[Tensor]]:
        state = tuple(s[:, rows] for s in first)
        last = layer(x[:steps, rows], state if len(state) > 1 else state[0], **call)[1]
        found = list(last) if isinstance(last, tuple) else [last]
        return found, list(torch.autograd.grad([t.float().square().sum() for t in found], first))

    together, d_together = of(slice(0, 2), 4, lengths=lengths)
    alone = [of(slice(n, n + 1), length) for n, length in enumerate(lengths)]
    for k, last in enumerate(together):
        torch.testing.assert_close(last, torch.cat([found[k] for found, _ in alone], 1), rtol=2e-2, atol=2e-2)
    for k, d in enumerate(d_together):
        torch.testing.assert_close(d, sum(ds[k] for _, ds in alone), rtol=5e-2, atol=5e-2)


def smaller(layer: Any) -> None:
    layer.weight_hh_l0.data = torch.ones(1, 5)


def one_double(layer: Any) -> None:
    layer.weight_hh_l0.data = layer.weight_hh_l0.data.double()


@pytest.mark.parametrize("change", [smaller, one_double, torch.nn.Module.double, torch.nn.Module.half])
def test_parameters_that_were_changed_meanwhile(change: Callable[[Any], None]) -> None:
    layer = anyrnn.torch.LSTM(3, 5, backend="triton")
    output = layer(torch.randn(4, 2, 3))[0]
    change(layer)
    with pytest.raises(RuntimeError, match="cannot run: an input or a parameter has another shape, dtype or device"):
        output.sum().backward()


def test_what_was_kept_has_been_moved() -> None:
    """By a hook of autograd's, to an address that kernels cannot read from."""

    def pack(t: Tensor) -> tuple[Tensor, torch.Size]:
        room = torch.empty(t.numel() + 1, dtype=t.dtype)
        room[1:] = t.reshape(-1)
        return room, t.shape

    layer, x = anyrnn.torch.LSTM(3, 5, backend="triton"), torch.randn(4, 2, 3)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept[0][1:].view(kept[1])):
        layer(x)[0].sum().backward()
    moved = [p.grad for p in layer.parameters()]
    layer.zero_grad()
    layer(x)[0].sum().backward()
    for found, p in zip(moved, layer.parameters(), strict=True):
        assert torch.equal(found, p.grad)


def test_devices_without_numbers() -> None:
    layer = anyrnn.torch.LSTM(3, 5, backend="triton").to("meta")
    with pytest.raises(anyrnn.UnsupportedError, match="device meta has no Triton kernels"):
        layer(torch.ones(4, 2, 3, device="meta"))


def test_a_budget_is_never_overrun() -> None:
    """Where what is kept of several windows is more than a multiple of one, as each part begins at a multiple of some bytes."""
    from anyrnn.backends.triton.memory import Extent, layout_of, windows_of

    network = anyrnn.torch.LSTM(1, 1).network
    extent = Extent(8, 9049)
    for budget in (1448454, *range(1_300_000, 1_500_000, 9_973)):
        windows = windows_of(network, torch.float32, extent, budget)
        assert layout_of(network, torch.float32, 8, extent.total, 9049, windows).bytes <= budget


def test_gradients_are_changed_one_by_one() -> None:
    """Those of vectors stand in one memory: as tensors they are apart, in calls that are known and in others."""
    layer, x = anyrnn.torch.LSTM(3, 5, backend="triton"), torch.randn(4, 2, 3)
    rate = torch.tensor(0.1, requires_grad=True)
    for graph in (False, False, False, True):
        d_ih, d_hh = torch.autograd.grad(layer(x)[0].square().sum(), [layer.bias_ih_l0, layer.bias_hh_l0], create_graph=graph)
        assert torch.equal(d_ih, d_hh)
        fast = layer.bias_ih_l0 - rate * d_ih.square()
        d_hh.mul_(rate)  # in place, and by what has a gradient
        assert torch.equal(d_hh, 0.1 * d_ih)
        (fast.sum() + d_hh.sum()).backward()


@pytest.mark.parametrize("cell", ["lstm", "lstm_layernorm"])
def test_torch_checks_the_backward_operator(cell: str) -> None:
    """Whose results may not be in one memory."""
    layer = anyrnn.torch.Recurrent(cell, 2, 3, backend="triton")
    mode, x = layer._modes[True], torch.randn(2, 2, 2)
    given = [[x], [], [s.detach() for s in layer._sources(mode, None, x)[0]], None, *operators.as_arguments(None)]
    number = mode.number
    output, last, reserve = torch.ops.anyrnn.forward(*given, number, True)
    backward = [*given, reserve, torch.randn_like(output), [None] * len(last), number, [True, True, True]]
    torch.library.opcheck(torch.ops.anyrnn.backward.default, backward, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's, while it exports
def test_an_exported_program_runs_where_gradients_are_enabled() -> None:
    """Its operators have no autograd, and torch's, which they call, are not told."""
    layer, x = anyrnn.torch.LSTM(3, 5, backend="triton"), torch.randn(4, 2, 3)
    program = torch.export.export(layer, (x,)).module()
    for _ in range(3):
        assert torch.equal(program(x)[0], layer(x)[0])
