"""The torch operators behind the modules: `anyrnn::forward` and `anyrnn::backward`, functional and without autograd of their own;
and the interpreter on torch, for what no kernel computes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from anyrnn._memory import ALIGNMENT, LARGE, aligned, in_large_pages
from anyrnn.backends.llvm import run as llvm
from anyrnn.backends.llvm.extent import Extent
from anyrnn.backends.llvm.frame import Shape as CallShape
from anyrnn.backends.llvm.memory import Windows
from anyrnn.backends.llvm.pools import Pool
from anyrnn.backends.reference import run as reference
from anyrnn.ir.philox import Randomness
from anyrnn.sequence.network import Network
from anyrnn.sequence.packing import Packing
from anyrnn.torch import packed
from anyrnn.torch.namespace import NAMESPACE

if TYPE_CHECKING:
    from anyrnn.torch.rows import Scatter

Tensors = Sequence[Tensor]
DTYPES = {torch.float32: "float32", torch.float64: "float64"}


@dataclass(frozen=True)
class Call:
    """What a call needs to know beside its tensors."""

    network: Network
    batch_first: bool
    ends: bool = False
    """The output has only the last step that each direction takes, [N, width]; not of packed rows."""
    budget: int | None = None
    """Bytes that a training call may keep."""

    @cached_property
    def width(self) -> int:
        return self.network.width

    @cached_property
    def units(self) -> int:
        return len(self.network.units)

    @cached_property
    def state_sizes(self) -> tuple[int, ...]:
        return self.network.state_sizes

    @property
    def outputs(self) -> int:
        """How many tensors a call gives."""
        return 1 + len(self.state_sizes) + len(self.more_sizes)

    @cached_property
    def more_sizes(self) -> tuple[int, ...]:
        """Features of what steps give beside the output."""
        nodes = self.network.graph.nodes
        return tuple(self.network.state_size(nodes[i].shape) for _, i in self.network.graph.more_outputs)

    @cached_property
    def summed(self) -> tuple[int, ...]:
        """Which of the sources of all units have gradients that kernels add to."""
        names = self.network.sources * self.units
        return tuple(k for k, name in enumerate(names) if name in self.network.plan.summed)

    @cached_property
    def scatters(self) -> bool:
        """Whether kernels can put the rows of the output anywhere."""
        return llvm.scatters(self.network)

    def windows(self, x: Tensor, packing: Packing | None) -> Windows | None:
        """What a training call keeps, if not everything."""
        return None if self.budget is None else llvm.windows(self.network, DTYPES[x.dtype], extent_of(x, packing), self.budget)

    def randomness(self, seed: Tensor | None, packing: Packing | None) -> Randomness | None:
        """`seed` is a tensor of one int64, where numbers are drawn."""
        if not self.network.probabilities:
            return None
        places = None if packing is None else (packing.sample, packing.step)
        return self.network.randomness(0 if seed is None else int(seed) & 0xFFFFFFFFFFFFFFFF, places)


class Calls(dict[int, Call]):
    """Calls by number."""

    def __missing__(self, number: int) -> Call:
        message = "this program was compiled or exported with a layer that this process has not made; make the same layer first"
        raise RuntimeError(f"anyrnn: {message} (operator number {number})")


CALLS = Calls()
HANDLES: dict[Call, int] = {}


def handle(call: Call) -> int:
    """The number under which operators know a call (operators take numbers and tensors only).

    It is a digest of all that a call is, the same in every process: compiled and exported programs carry it.
    """
    if call not in HANDLES:
        network = call.network
        of_network = (network.sizes, network.layers, network.ways, network.probabilities, network.first_layer)
        text = f"{network.graph.identity} {of_network} {call.batch_first} {call.ends} {call.budget}"
        number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
        CALLS[number] = call
        HANDLES[call] = number
    return HANDLES[call]


# memory of the caller


def paged(new: Tensor) -> Tensor:
    """The same new tensor; if it is large, its memory will come in large pages."""
    if new.nbytes >= LARGE:
        in_large_pages(new.data_ptr(), new.nbytes)
    return new


def new_rows(rows: int, features: int, like: Tensor) -> Tensor:
    """A new tensor [rows, features]; if it is large, in recycled memory."""
    bytes = rows * features * like.element_size()
    if bytes < LARGE or not like.is_cpu:
        return like.new_empty(rows, features)
    return torch.from_numpy(aligned(bytes)).view(like.dtype).view(rows, features)


def readable(tensor: Tensor) -> Tensor:
    """The tensor itself when its features lie next to each other, else a copy."""
    return tensor if tensor.stride(-1) == 1 or tensor.size(-1) <= 1 else tensor.contiguous()


def strides_of(tensor: Tensor) -> tuple[int, int]:
    """Bytes from step to step and row to row, or from unit to unit and row to row. Of packed rows the latter twice."""
    size, stride = tensor.element_size(), tensor.stride()
    return stride[0] * size, stride[len(stride) - 2] * size


def new_sequence(features: int, like: Tensor, batch_first: bool) -> Tensor:
    """A new tensor for as many features in every step of every sample as `like` has samples and steps; with `batch_first` it is
    the transpose of a contiguous [N, T, features] one.
    """
    sides = like.shape
    if len(sides) == 2:
        return new_rows(sides[0], features, like)
    if batch_first:
        return like.new_empty(sides[1], sides[0], features).transpose(0, 1)
    return like.new_empty(sides[0], sides[1], features)  # quicker than with a tuple


def new_sequences(units: int, features: int, like: Tensor, batch_first: bool) -> Tensor:
    """The same for each of so many units, [units, T, N, features]."""
    if like.dim() == 2:
        return like.new_empty(units, like.size(0), features)
    if batch_first:
        return like.new_empty(units, like.size(1), like.size(0), features).transpose(1, 2)
    return like.new_empty(units, like.size(0), like.size(1), features)


def strides_of_units(tensor: Tensor) -> tuple[int, int, int]:
    """Bytes from unit to unit, from step to step and from row to row; of packed rows the latter twice."""
    size, stride = tensor.element_size(), tensor.stride()
    return stride[0] * size, stride[1] * size, stride[len(stride) - 2] * size


def new_output(call: Call, like: Tensor) -> Tensor:
    return like.new_empty(like.size(1), call.width) if call.ends else paged(new_sequence(call.width, like, call.batch_first))


def first_strides(call: Call, first: Tensors) -> tuple[tuple[int, int] | None, ...]:
    return tuple([strides_of(t) for t in first]) if first else (None,) * len(call.state_sizes)


def extent_of(x: Tensor, packing: Packing | None) -> Extent:
    if packing is None:
        return Extent(x.size(0), x.size(1))
    return Extent(len(packing.counts), packing.rows, counts=packing.counts)


# the operators


def forward_key(
    number: int, keep: bool, x: Tensor, packing: Packing | None, scatter: Scatter | None, strides: Sequence[tuple[int, ...]]
) -> tuple[object, ...]:
    """Of forward calls that one frame runs."""
    return (number, keep, x.dtype, x.shape, packing and packing.counts, scatter is None, *strides)


def run_forward(
    inputs: Tensors,
    first: Tensors,
    sources: Tensors,
    seed: Tensor | None,
    packing: Packing | None,
    number: int,
    keep: bool,
    contiguous_sources: bool = False,
    frozen: int = 0,
    scatter: Scatter | None = None,
) -> tuple[Tensor, list[Tensor], Tensor | None]:
    """The output [T, N, S * H], or [N, S * H] of calls for ends; the last states [units, N, size], and behind them what else
    steps give, [units, T, N, size]; the reserve (None unless `keep`). With a `packing`, inputs and output are its rows,
    [rows, features], and with a `scatter` the output is all rows of the caller. `frozen`: the promise that the sources have
    changed in no way that torch does not count.
    """
    call = CALLS[number]
    network, x = call.network, inputs[0]
    rows = x.size(1) if packing is None else packing.rows
    strides = list(map(Tensor.stride, (*inputs, *first)))
    for stride in strides:
        if stride[-1] != 1:
            inputs, first = list(map(readable, inputs)), list(map(readable, first))
            strides = list(map(Tensor.stride, (*inputs, *first)))
            break
    if not contiguous_sources and not all(map(Tensor.is_contiguous, sources)):
        sources = [t.contiguous() for t in sources]
    at = list(map(Tensor.data_ptr, sources))
    units = call.units
    output = new_output(call, x) if scatter is None else paged(x.new_empty(scatter.places.rows, call.width))
    last = [x.new_empty(units, rows, size) for size in call.state_sizes]
    last += [new_sequences(units, size, x, call.batch_first) for size in call.more_sizes]
    further = () if scatter is None else (scatter.places.further,)
    addresses = [*map(Tensor.data_ptr, (*inputs, output, *first, *last, *further)), *at]
    reserve = None
    if keep:
        total = x.size(0) * rows if packing is None else x.size(0)
        bytes = llvm.kept_bytes(network, DTYPES[x.dtype], total, rows, call.budget)
        reserve = x.new_empty(bytes, dtype=torch.uint8) if bytes < LARGE else torch.from_numpy(aligned(bytes))
        addresses.append(reserve.data_ptr())
    key = forward_key(number, keep, x, packing, scatter, strides)
    pools = llvm.POOLS if packing is None else llvm.UNEVEN
    pool = pools.get(key)
    randomness = call.randomness(seed, packing)
    if pool is None:
        shape = CallShape(
            "training" if keep else "inference",
            DTYPES[x.dtype],
            extent_of(x, packing),
            tuple([strides_of(t) for t in inputs]),
            strides_of(output),
            first_strides(call, first),
            tuple([strides_of(t) for t in last[: len(call.state_sizes)]]),
            more=tuple([strides_of_units(t) for t in last[len(call.state_sizes) :]]),
            ends=call.ends,
            windows=call.windows(x, packing) if keep else None,
            anywhere=scatter is not None,
        )
        pool = None if shape.windows else pools.add(key, network, shape)
    if pool is None:
        llvm.forward_in_windows(network, shape, addresses, randomness)
    else:
        if keep:
            pool.call(addresses, randomness)
        else:
            run_packed(pool, number, addresses, randomness, sources, at, frozen)
    if scatter is not None:
        output.index_fill_(0, scatter.places.others, scatter.padding)
    return output, last, reserve


def run_packed(
    pool: Pool,
    number: int,
    addresses: Sequence[int],
    randomness: Randomness | None,
    sources: Tensors,
    at: list[int],
    frozen: int,
) -> None:
    """An inference call, whose weights stay packed for the next one; `at` are the addresses of the sources."""
    weights = packed.find(number, sources, at, frozen) or packed.remember(number, sources, at)
    if weights is None:
        pool.call(addresses, randomness)
    else:
        pool.call(addresses, randomness, weights.memory, frozen > 0 and weights.looked == frozen)
        weights.looked = frozen


def inferred_again(
    number: int, x: Tensor, first: Tensors
) -> Callable[[Tensor, Tensors, Tensors, int], tuple[Tensor, list[Tensor]]] | None:
    """What runs calls without a gradient like the last one, of one input that is like `x` and contiguous sources; None where no
    frame for such a call is there.
    """
    call, strides = CALLS[number], [t.stride() for t in (x, *first)]
    pool = llvm.POOLS.get(forward_key(number, False, x, None, None, strides))
    if pool is None or call.more_sizes or any(stride[-1] != 1 for stride in strides):
        return None
    units, rows, sizes = call.units, x.size(1), call.state_sizes

    def run(x: Tensor, first: Tensors, sources: Tensors, frozen: int) -> tuple[Tensor, list[Tensor]]:
        output, last = new_output(call, x), [x.new_empty(units, rows, size) for size in sizes]
        at = list(map(Tensor.data_ptr, sources))
        run_packed(pool, number, [*map(Tensor.data_ptr, (x, output, *first, *last)), *at], None, sources, at, frozen)
        return output, last

    return run


def new_gradients(call: Call, sources: Tensors) -> list[Tensor]:
    """Memory for the gradients of all sources; zero where kernels add to it."""
    gradients = [paged(torch.empty_like(t)) for t in sources]
    for k in call.summed:
        gradients[k].zero_()
    return gradients


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
    scatter: Scatter | None = None,
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Gradients of the inputs, the first states and the sources; `wanted` says for each of the three kinds whether they are, else
    they are empty. First states are read where the forward call has kept little. With a `scatter` the output's cotangent is all
    rows of the caller.
    """
    call = CALLS[number]
    network, x = call.network, inputs[0]
    rows = x.size(1) if packing is None else packing.rows
    states = len(call.state_sizes)
    d_more = [
        x.new_zeros(()).expand(call.units, *x.shape[:-1], size) if d is None else d
        for d, size in zip(d_last[states:], call.more_sizes, strict=True)
    ]
    cotangents = [d_output, *d_last[:states]]
    given = [d for d in cotangents if d is not None]
    strides = list(map(Tensor.stride, (*inputs, *given, *d_more)))
    for stride in strides:
        if stride[-1] != 1:
            inputs, given, d_more = list(map(readable, inputs)), list(map(readable, given)), list(map(readable, d_more))
            strides = list(map(Tensor.stride, (*inputs, *given, *d_more)))
            break
    if not all(map(Tensor.is_contiguous, sources)):
        sources = [t.contiguous() for t in sources]
    if reserve.data_ptr() % ALIGNMENT:  # a hook of autograd's has kept it somewhere else meanwhile
        reserve = torch.from_numpy(aligned(reserve.nbytes)).copy_(reserve)
    d_inputs = [paged(new_sequence(t.size(-1), t, call.batch_first)) for t in inputs] if wanted[0] else []
    d_first = [x.new_empty((call.units, rows, size)) for size in call.state_sizes] if wanted[1] else []
    d_sources = new_gradients(call, sources) if wanted[2] else []
    absent = [d is None for d in cotangents]
    key = (number, x.dtype, x.shape, packing and packing.counts, scatter is None, *wanted, *absent, *strides)
    pools = llvm.POOLS if packing is None else llvm.UNEVEN
    pool = pools.get(key)
    further = () if scatter is None else (scatter.places.further,)
    tensors = (*inputs, *given, *d_first, *d_more, *d_inputs, *further, *sources, *d_sources, reserve)
    addresses, randomness = list(map(Tensor.data_ptr, tensors)), call.randomness(seed, packing)
    if pool is None:
        extent = extent_of(x, packing)
        of_given = iter(given)
        of_output, *of_ends = [None if none else strides_of(next(of_given)) for none in absent]
        shape = CallShape(
            "backward",
            DTYPES[x.dtype],
            extent,
            tuple([strides_of(t) for t in inputs]),
            of_output,
            tuple(of_ends),
            tuple([strides_of(d) for d in d_first]) or (None,) * len(network.state_sizes),
            (0, extent.steps),
            tuple([strides_of(t) for t in d_inputs]) or (None,) * len(inputs),
            bool(d_sources),
            tuple([strides_of_units(d) for d in d_more]),
            call.ends,
            call.windows(x, packing),
            scatter is not None,
        )
        if shape.windows:
            first = [readable(t) for t in first]
            again = first_strides(call, first), [t.data_ptr() for t in (*inputs, *first, *sources, reserve)]
            llvm.backward_in_windows(network, shape, addresses, *again, randomness)
            return d_inputs, d_first, d_sources
        pool = pools.add(key, network, shape)
    pool.call(addresses, randomness)
    return d_inputs, d_first, d_sources


LIBRARY = torch.library.Library("anyrnn", "DEF")
LIBRARY.define(
    "forward(Tensor[] inputs, Tensor[] first, Tensor[] sources, Tensor? seed, int[]? counts, Tensor? places, int number,"
    " bool keep)"
    " -> (Tensor, Tensor[], Tensor)"
)
LIBRARY.define(
    "backward(Tensor[] inputs, Tensor[] first, Tensor[] sources, Tensor? seed, int[]? counts, Tensor? places, Tensor reserve,"
    " Tensor? d_output, Tensor?[] d_last, int number, bool[] wanted)"
    " -> (Tensor[], Tensor[], Tensor[])"
)


Counts = Sequence[int] | None
"""Of a Packing; None where all sequences have all steps."""


def as_arguments(packing: Packing | None) -> tuple[Counts, Tensor | None]:
    """A Packing as operators take it: its counts, and its samples and steps as a tensor [2, rows]."""
    if packing is None:
        return None, None
    return packing.counts, torch.from_numpy(np.stack([packing.sample, packing.step]))


def as_packing(counts: Counts, places: Tensor | None) -> Packing | None:
    return None if counts is None or places is None else Packing(tuple(counts), *places.numpy())


def _forward_kernel(
    inputs: Tensors,
    first: Tensors,
    sources: Tensors,
    seed: Tensor | None,
    counts: Counts,
    places: Tensor | None,
    number: int,
    keep: bool,
) -> tuple[Tensor, list[Tensor], Tensor]:
    output, last, reserve = run_forward(inputs, first, sources, seed, as_packing(counts, places), number, keep)
    return output, last, output.new_empty(0, dtype=torch.uint8) if reserve is None else reserve


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
    return run_backward(inputs, first, sources, seed, as_packing(counts, places), reserve, d_output, d_last, number, wanted)


LIBRARY.impl("forward", _forward_kernel, "CPU")
LIBRARY.impl("backward", _backward_kernel, "CPU")


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
    bytes = llvm.kept_bytes(network, DTYPES[x.dtype], total, rows, call.budget) if keep else 0
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
    return d_inputs, d_first, [torch.empty_like(t) for t in sources] if wanted[2] else []


# the interpreter on torch


def interpreted(
    number: int, inputs: Tensors, first: Tensors, sources: Tensors, seed: Tensor | None, packing: Packing | None
) -> tuple[Tensor, ...]:
    """The same as the forward operator by torch's own operators: the output, then the last states, then what else steps give."""
    call = CALLS[number]
    network, x = call.network, inputs[0]
    per_unit, units = len(network.sources), len(network.units)
    rows = x.shape[1] if packing is None else packing.rows
    first = first or first_values(network, x, rows)
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
    device = like.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def ends(network: Network, sequence: Tensor) -> Tensor:
    """Of a sequence [T, N, width], the last step that each direction takes, [N, width]."""
    return torch.cat([features[step] for step, features in network.by_way(sequence)], -1)


def number_like(x: Tensor) -> Callable[[float], Tensor]:
    """What makes tensors of Python numbers, in the dtype and on the device of `x`."""
    dtype, device = x.dtype, x.device
    return lambda value: torch.tensor(value, dtype=dtype, device=device)


def first_values(network: Network, like: Tensor, rows: int) -> list[Tensor]:
    """A cell's own initial states, [units, N, size]."""
    units, states = len(network.units), zip(network.graph.states, network.state_sizes, strict=True)
    return [like.new_full((units, rows, size), state.init) for state, size in states]
