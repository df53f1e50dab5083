"""The interpreter on torch, for what no kernel computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from anyrnn.backends.reference import run as reference
from anyrnn.errors import UnsupportedError
from anyrnn.sequence.network import Network, check_counters
from anyrnn.sequence.packing import Packing
from anyrnn.torch.arguments import is_autocast
from anyrnn.torch.calls import CALLS, Tensors, rows_of
from anyrnn.torch.namespace import NAMESPACE


def interpreted(
    number: int, inputs: Tensors, first: Tensors, sources: Tensors, seed: Tensor | None, packing: Packing | None
) -> tuple[Tensor, ...]:
    """The same as the forward operator by torch's own operators: the output, then the last states, then what else steps give.

    Raises: UnsupportedError for products of int8.
    """
    call = CALLS[number]
    if call.products == "int8":
        raise UnsupportedError("freeze(int8=True) is for native kernels, and none run vmap, forward mode and such calls")
    network, x = call.network, inputs[0]
    check_counters(network, str(x.dtype))
    per_unit, units = len(network.sources), len(network.units)
    rows = rows_of(x, packing)
    first = first or initial_states(network, x, rows)
    begin = [[t[u] for t in first] for u in range(units)]
    values = [
        reference.source_values(network, layer, sources[u * per_unit : (u + 1) * per_unit])
        for u, (layer, _) in enumerate(network.units)
    ]
    counts = None if packing is None else packing.counts
    randomness = call.randomness(seed, packing)
    with without_autocast(x):
        output, last, more = reference.forward(network, NAMESPACE, number_like(x), inputs, values, begin, randomness, counts)
        output = ends(network, output) if call.ends else output
        return output, *[torch.stack(of_state) for of_state in (*zip(*last, strict=True), *zip(*more, strict=True))]


def without_autocast(like: Tensor) -> AbstractContextManager[object]:
    """What is done inside is done in the dtype that it comes in."""
    return torch.autocast(like.device.type, enabled=False) if is_autocast(like) else nullcontext()


def ends(network: Network, sequence: Tensor) -> Tensor:
    """Of a sequence [T, N, width], the last step that each direction takes, [N, width]."""
    return torch.cat([features[step] for step, features in network.by_way(sequence)], -1)


def number_like(x: Tensor) -> Callable[[float], Tensor]:
    """What makes tensors of Python numbers, in the dtype and on the device of `x`, without waiting for it."""
    dtype, device = x.dtype, x.device
    return lambda value: torch.full((), _within(value, dtype), dtype=dtype, device=device)


def initial_states(network: Network, like: Tensor, rows: int) -> list[Tensor]:
    """A cell's own initial states, [units, N, size]."""
    units, states = len(network.units), zip(network.graph.states, network.state_sizes, strict=True)
    return [like.new_full((units, rows, size), _within(state.init, like.dtype)) for state, size in states]


def _within(value: float, dtype: torch.dtype) -> float:
    """The number; an infinity for what is beyond a dtype."""
    return math.copysign(math.inf, value) if abs(value) > torch.finfo(dtype).max else value
