"""Calls of the Triton kernels on tensors, with the arguments and results of those in `kernels`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from anyrnn.backends.triton import run as triton
from anyrnn.backends.triton.memory import Extent, kept
from anyrnn.backends.triton.split import device_of
from anyrnn.backends.triton.unit import blocks_of
from anyrnn.explanation import PASSES, Launches, Seen
from anyrnn.sequence.network import Network
from anyrnn.sequence.packing import Packing
from anyrnn.torch.calls import CALLS, Call, Tensors
from anyrnn.torch.memory import new_sequence, new_sequences, readable


def kept_bytes(call: Call, dtype: torch.dtype, steps: int, total: int, rows: int) -> int:
    """What a training call keeps for its backward call."""
    return kept(call.network, dtype, steps, total, rows)[1]


def extent_of(x: Tensor, packing: Packing | None) -> Extent:
    if packing is None:
        return Extent(x.size(0), x.size(1))
    return Extent(len(packing.counts), packing.rows, packing.counts)


def launched(seen: Seen, network: Network, x: Tensor) -> Seen:
    """The same with how kernels run on the device of `x`; of several layers the first whose blocks are the most."""
    device, launches = device_of(x.device), []
    for program in seen.programs:
        of_layers = [
            blocks_of(part, program, layer, seen.rows, x.dtype, x.device)
            for part in network.parts
            for layer in range(part.layers)
        ]
        blocks, made = max(of_layers, key=lambda b: b.columns), getattr(network.plan, program)
        barriers = len(made.body) if made.waits and blocks.columns > 1 else 0
        count = -(-seen.rows // blocks.rows)
        launches.append(Launches(PASSES[program], count, blocks.rows, blocks.columns, barriers, device.multiprocessors))
    bytes = sum(kept(part, x.dtype, seen.steps, seen.total, seen.rows)[1] for part in network.parts)
    return replace(seen, launches=tuple(launches), kept_bytes=bytes if "training" in seen.programs else 0)


def run_forward(
    inputs: Tensors, first: Tensors, sources: Tensors, seed: Tensor | None, packing: Packing | None, number: int, keep: bool
) -> tuple[Tensor, list[Tensor], Tensor | None]:
    call = CALLS[number]
    x, extent = inputs[0], extent_of(inputs[0], packing)
    output = x.new_empty(extent.rows, call.width) if call.ends else new_sequence(call.width, x, call.batch_first)
    more = [new_sequences(call.units, size, x, call.batch_first) for size in call.more_sizes]
    reserve = None
    if keep:
        bytes = kept_bytes(call, x.dtype, extent.steps, extent.total, extent.rows)
        reserve = torch.empty(bytes, dtype=torch.uint8, device=x.device)
    last = triton.forward(
        call.network,
        list(map(readable, inputs)),
        first,
        [s.contiguous() for s in sources],
        extent,
        call.randomness(seed, packing),
        output,
        more,
        reserve,
        call.ends,
    )
    return output, [*last, *more], reserve


def run_backward(
    inputs: Tensors,
    first: Tensors,
    sources: Tensors,
    seed: Tensor | None,
    packing: Packing | None,
    reserve: Tensor,
    d_output: Tensor | None,
    d_last: Sequence[Tensor | None],
    number: int,
    wanted: Sequence[bool],
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    call = CALLS[number]
    x, states = inputs[0], len(call.state_sizes)
    d_more = [
        x.new_zeros(()).expand(call.units, *x.shape[:-1], size) if d is None else d
        for d, size in zip(d_last[states:], call.more_sizes, strict=True)
    ]
    return triton.backward(
        call.network,
        list(map(readable, inputs)),
        [s.contiguous() for s in sources],
        extent_of(x, packing),
        call.randomness(seed, packing),
        reserve,
        None if d_output is None else readable(d_output),
        d_last[:states],
        list(map(readable, d_more)),
        wanted,
        call.ends,
    )
