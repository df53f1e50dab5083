"""The torch operators behind the modules: `anyrnn::forward` and `anyrnn::backward`, functional. The first has a derivative, see
`autograd`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from anyrnn.backends.llvm import run as llvm
from anyrnn.backends.llvm.extent import Extent
from anyrnn.sequence.packing import Packing
from anyrnn.torch import gpu
from anyrnn.torch.calls import CALLS, Tensors
from anyrnn.torch.kernels import run_backward, run_forward
from anyrnn.torch.memory import new_sequence, new_sequences

LIBRARY = torch.library.Library("anyrnn", "DEF")
OF_OPERATORS = (torch.Tag.cudagraph_unsafe,)
"""The CUDA graphs that torch.compile makes leave our operators out: what these keep for later calls (counters, tables) would be
memory of the graph. Those that a user captures have them in.
"""
LIBRARY.define(
    "forward(Tensor[] inputs, Tensor[] first, Tensor[] sources, Tensor? seed, int[]? counts, Tensor? places, int number,"
    " bool keep)"
    " -> (Tensor, Tensor[], Tensor)",
    tags=OF_OPERATORS,
)
LIBRARY.define(
    "backward(Tensor[] inputs, Tensor[] first, Tensor[] sources, Tensor? seed, int[]? counts, Tensor? places, Tensor reserve,"
    " Tensor? d_output, Tensor?[] d_last, int number, bool[] wanted)"
    " -> (Tensor[], Tensor[], Tensor[])",
    tags=OF_OPERATORS,
)


Counts = Sequence[int] | None
"""Of a Packing; None where all sequences have all steps."""


def as_arguments(packing: Packing | None) -> tuple[Counts, Tensor | None]:
    """A Packing as operators take it: its counts, and its samples and steps as a tensor [2, rows]."""
    if packing is None:
        return None, None
    return packing.counts, torch.from_numpy(np.stack(packing.places))


def as_packing(counts: Counts, places: Tensor | None) -> Packing | None:
    return None if counts is None or places is None else Packing(tuple(counts), lambda: tuple(places.numpy()))


@torch.no_grad()  # which nothing around an operator without an autograd of its own sees to
def run_operator(
    inputs: Tensors,
    first: Tensors,
    sources: Tensors,
    seed: Tensor | None,
    counts: Counts,
    places: Tensor | None,
    number: int,
    keep: bool,
) -> tuple[Tensor, list[Tensor], Tensor]:
    packing = as_packing(counts, places)
    if CALLS[number].on_triton(inputs[0]):
        output, last, reserve = gpu.run_forward(inputs, first, sources, seed, packing, number, keep, sizes_are_told=True)
    else:
        output, last, reserve = run_forward(inputs, first, sources, seed, packing, number, keep)
    return output, last, output.new_empty(0, dtype=torch.uint8) if reserve is None else reserve


@torch.no_grad()
def _backward_kernel(
    inputs: Tensors,
    first: Tensors,
    sources: Tensors,
    seed: Tensor | None,
    counts: Counts,
    places: Tensor | None,
    reserve: Tensor,
    d_output: Tensor | None,
    d_last: Sequence[Tensor | None],
    number: int,
    wanted: Sequence[bool],
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    packing = as_packing(counts, places)
    d_last = [d if d is None else d.resolve_neg() for d in d_last]  # as torch does for all arguments but lists with gaps
    rest = packing, reserve, d_output, d_last, number, wanted
    d_inputs, d_first, d_sources = run_backward(inputs, first, sources, seed, *rest)
    if CALLS[number].on_triton(inputs[0]):  # some stand in one memory, which an operator's results may not
        d_sources = [d if d.nbytes == d.untyped_storage().nbytes() else d.clone() for d in d_sources]
    return d_inputs, d_first, d_sources


for device in ("CPU", "CUDA"):
    LIBRARY.impl("forward", run_operator, device)
    LIBRARY.impl("backward", _backward_kernel, device)


@torch.library.register_fake("anyrnn::forward", lib=LIBRARY)
def _fake_forward(
    inputs: Tensors,
    first: Tensors,
    sources: Tensors,
    seed: Tensor | None,
    counts: Counts,
    places: Tensor | None,
    number: int,
    keep: bool,
) -> tuple[Tensor, list[Tensor], Tensor]:
    call = CALLS[number]
    network, x = call.network, inputs[0]
    rows = x.shape[1] if counts is None else counts[0]
    output = x.new_empty(rows, call.width) if call.ends else new_sequence(call.width, x, call.batch_first)
    total = x.shape[0] * rows if counts is None else x.shape[0]
    bytes = 0
    if keep and call.on_triton(x):
        bytes = gpu.kept_bytes(call, x.dtype, x.shape[0] if counts is None else len(counts), total, rows)
    elif keep:
        if counts is not None:
            total = call.room(Extent(len(counts), rows, tuple(counts))).total
        bytes = llvm.kept_bytes(network, call.native_dtype(x.dtype), total, rows, call.budget)
    last = [x.new_empty((call.units, rows, size)) for size in network.state_sizes]
    last += [new_sequences(call.units, size, x, call.batch_first) for size in call.more_sizes]
    return output, last, x.new_empty(bytes, dtype=torch.uint8)


@torch.library.register_fake("anyrnn::backward", lib=LIBRARY)
def _fake_backward(
    inputs: Tensors,
    first: Tensors,
    sources: Tensors,
    seed: Tensor | None,
    counts: Counts,
    places: Tensor | None,
    reserve: Tensor,
    d_output: Tensor | None,
    d_last: Sequence[Tensor | None],
    number: int,
    wanted: Sequence[bool],
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    call = CALLS[number]
    network, x = call.network, inputs[0]
    rows = x.shape[1] if counts is None else counts[0]
    d_inputs = [new_sequence(t.shape[-1], t, call.batch_first) for t in inputs] if wanted[0] else []
    d_first = [x.new_empty((call.units, rows, size)) for size in network.state_sizes] if wanted[1] else []
    return d_inputs, d_first, [torch.empty_like(t, memory_format=torch.contiguous_format) for t in sources] if wanted[2] else []
