"""Pairs of a layer of torch.nn and ours of the same parameters, and what both make of the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

import anyrnn.torch

Layer = torch.nn.Module
Make = Callable[..., Layer]

KINDS: dict[str, tuple[Make, Make]] = {
    "tanh": (anyrnn.torch.RNN, torch.nn.RNN),
    "relu": (
        lambda *a, **k: anyrnn.torch.RNN(*a, nonlinearity="relu", **k),
        lambda *a, **k: torch.nn.RNN(*a, nonlinearity="relu", **k),
    ),
    "lstm": (anyrnn.torch.LSTM, torch.nn.LSTM),
    "lstm_projected": (
        lambda *a, **k: anyrnn.torch.LSTM(*a, proj_size=3, **k),
        lambda *a, **k: torch.nn.LSTM(*a, proj_size=3, **k),
    ),
    "gru": (anyrnn.torch.GRU, torch.nn.GRU),
}
"""Ours and torch's."""


@contextmanager
def products_of_bfloat16() -> Iterator[None]:
    """Products of float32 may be of numbers rounded to bfloat16 meanwhile."""
    before = torch.backends.mkldnn.matmul.fp32_precision
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before


def pair(kind: str, *arguments: Any, seed: int = 0, **options: Any) -> tuple[Any, Any]:
    """Ours and torch's of one kind, drawn from one seed."""
    made = []
    for make in KINDS[kind]:
        torch.manual_seed(seed)
        made.append(make(*arguments, **options))
    return made[0], made[1]


def state_for(layer: Any, rows: int | None, dtype: torch.dtype, generator: torch.Generator) -> Any:
    """Random first states for a layer of torch.nn; rows None: for an input without a batch."""
    units = layer.num_layers * (2 if layer.bidirectional else 1)
    batch = () if rows is None else (rows,)
    h = torch.randn(units, *batch, layer.proj_size or layer.hidden_size, dtype=torch.float64, generator=generator)
    if layer.mode != "LSTM":
        return h.to(dtype)
    return h.to(dtype), torch.randn(units, *batch, layer.hidden_size, dtype=torch.float64, generator=generator).to(dtype)


def tensors_of(state: Any) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else [] if state is None else list(state)


def solve(layer: Layer, x: Tensor, state: Any = None, seed: int = 5) -> dict[str, Tensor]:
    """Forward and every gradient for random cotangents, by name."""
    x = x.detach().clone().requires_grad_()
    first = [s.detach().clone().requires_grad_() for s in tensors_of(state)]
    given = None if state is None else first[0] if isinstance(state, Tensor) else tuple(first)
    layer.zero_grad()
    output, last = layer(x, given)
    results = {"output": output, **{f"last {k}": s for k, s in enumerate(tensors_of(last))}}
    generator = torch.Generator().manual_seed(seed)
    cotangents = [torch.randn(r.shape, dtype=torch.float64, generator=generator).to(r.dtype) for r in results.values()]
    torch.autograd.backward(list(results.values()), cotangents)
    gradients = {"d x": x.grad, **{f"d first {k}": s.grad for k, s in enumerate(first)}}
    gradients |= {f"d {name}": p.grad for name, p in layer.named_parameters()}
    found = {**results, **gradients}
    assert all(value is not None for value in found.values())
    return {name: value.detach() for name, value in found.items() if value is not None}
