"""Calls on a device's tensors, by the generated kernels or by cuDNN, with the arguments and results of those in `kernels`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from anyrnn.backends import tf32
from anyrnn.backends.cudnn import run as cudnn
from anyrnn.backends.quick import EMPTY
from anyrnn.backends.triton import run as triton
from anyrnn.backends.triton.choosing import blocks_of, told
from anyrnn.backends.triton.device import device_of
from anyrnn.backends.triton.memory import Extent, reserve_bytes, windows_of
from anyrnn.backends.triton.split import barriers
from anyrnn.backends.triton.tape import Work
from anyrnn.explanation import PASSES, Launches, Seen
from anyrnn.sequence.network import Network
from anyrnn.sequence.packing import Packing
from anyrnn.torch.calls import CALLS, Call, Tensors, check_kept, is_moved, rows_of
from anyrnn.torch.interpreted import initial_states, without_autocast
from anyrnn.torch.memory import new_sequence, new_sequences, readable
from anyrnn.torch.triton_or_cudnn import known, takes_cudnn, why_not_cudnn

UNMEASURED = "cuDNN could run this too: the first call measures which is quicker"
OF_CUDNN = torch.int8
"""The dtype of reserves that cuDNN reads; the generated kernels' are bytes without a sign."""


def kept_bytes(call: Call, dtype: torch.dtype, steps: int, total: int, rows: int) -> int:
    """What a training call keeps for its backward call."""
    return reserve_bytes(call.network, dtype, steps, total, rows, call.budget)


def extent_of(x: Tensor, packing: Packing | None) -> Extent:
    if packing is None:
        return Extent(x.size(0), x.size(1))
    return Extent(len(packing.counts), packing.rows, packing.counts)


def launched(seen: Seen, network: Network, calls: Sequence[Call], x: Tensor, packing: Packing | None) -> Seen:
    """The same with how these calls run on the device of `x`; of several layers the first whose blocks are the most."""
    device, launches, extent = device_of(x.device), [], Extent(seen.steps, seen.rows, seen.counts)
    faster: dict[str, None] = {}
    windows = [windows_of(call.network, x.dtype, extent, call.budget) for call in calls if "training" in seen.programs]
    again = sum(w.share_again(seen.steps) for w in windows if w) / max(1, len(windows))
    for program in seen.programs:
        of_layers = [(part, program, layer, extent, x.dtype, x.device) for part in network.parts for layer in range(part.layers)]
        most = max(of_layers, key=lambda of: blocks_of(*of).columns)
        blocks, made, (where, ways) = blocks_of(*most), getattr(network.plan, program), told(*most)
        faster |= dict.fromkeys(ways)
        waits = barriers(made) if blocks.columns > 1 else 0
        how = (-(-seen.rows // blocks.rows), blocks.rows, blocks.columns, waits, device.multiprocessors, blocks.scans)
        launches.append(Launches(PASSES[program], *how, where, again if program == "backward" else 0.0))
    reasons = [reason for call in calls if (reason := why_not_cudnn(call, x, packing))]
    found = [] if reasons else [known(call, x, packing, "training" in seen.programs) for call in calls]
    choice = f"cuDNN cannot run this: {reasons[0]}" if reasons else "; ".join(str(one or UNMEASURED) for one in found)
    on_cudnn = bool(found) and all(one is not None and one.takes_cudnn for one in found)
    trains = "training" in seen.programs
    bytes = sum(kept_bytes(call, x.dtype, seen.steps, seen.total, seen.rows) for call in calls) if trains else 0
    return replace(seen, launches=tuple(launches), kept_bytes=bytes, choice=choice, on_cudnn=on_cudnn, faster="; ".join(faster))


def run_forward(
    inputs: Tensors,
    first: Tensors,
    sources: Tensors,
    seed: Tensor | None,
    packing: Packing | None,
    number: int,
    keep: bool,
    sizes_are_told: bool = False,
) -> tuple[Tensor, list[Tensor], Tensor | None]:
    """`sizes_are_told`: a compiler knows the reserve of the generated kernels, and expects no other."""
    call = CALLS[number]
    inputs, sources = list(map(readable, inputs)), [s.contiguous() for s in sources]

    def on(name: str) -> Work:
        if name == "cudnn":
            return _forward_on_cudnn(call, inputs[0], first, sources, packing, keep)
        return _forward_on_triton(call, inputs, first, sources, seed, packing, keep)

    def measurable(name: str) -> Callable[[], object]:
        forward = on(name)
        output, _, reserve = forward.made_twice()
        if reserve is None:
            return forward.again()
        rest = reserve, output, [None] * (call.outputs - 1), (True, True, True)
        backward = _backward_on(call, inputs, first, sources, seed, packing, *rest)
        backward.made_twice()
        both = forward.again(), backward.again()
        return lambda: [one() for one in both]

    with without_autocast(inputs[0]), torch.cuda.device_of(inputs[0]):  # launches go to the current device
        by_cudnn = not sizes_are_told and takes_cudnn(call, inputs[0], packing, keep, measurable)
        found: tuple[Tensor, list[Tensor], Tensor | None] = on("cudnn" if by_cudnn else "triton").made()
        return found


def _forward_on_cudnn(call: Call, x: Tensor, first: Tensors, sources: Tensors, packing: Packing | None, keep: bool) -> Work:
    """Gives the output, the last states and the reserve."""
    counts = None if packing is None else packing.counts
    buffer = one_buffer(call, sources)

    def run(given: Sequence[Tensor]) -> tuple[Tensor, list[Tensor], Tensor | None]:
        (x,), first, sources, buffer = parts(given)
        first = first or initial_states(call.network, x, rows_of(x, packing))
        output, last, reserve = cudnn.forward(call.network, x, first, sources, buffer[0] if buffer else None, counts, keep)
        return output, last, reserve.view(OF_CUDNN) if keep else None

    parts, given = _parts([x], first, sources, buffer), [x, *first, *sources, *buffer]
    key = on_cudnn(call, first, buffer, keep) if _may_repeat(x, None, packing) else None
    return Work(run, given, key, partial(tf32.AsInProducts, x.dtype))


def one_buffer(call: Call, sources: Tensors) -> list[Tensor]:
    """The memory that cuDNN has all sources in, if it has."""
    buffer = cudnn.one_buffer(call.network, sources)
    return [] if buffer is None else [buffer]


def _forward_on_triton(
    call: Call,
    inputs: Tensors,
    first: Tensors,
    sources: Tensors,
    seed: Tensor | None,
    packing: Packing | None,
    keep: bool,
) -> Work:
    """Gives the output, the last states and the reserve."""
    x, extent = inputs[0], extent_of(inputs[0], packing)
    windows, reserve = None, list[Tensor]()
    if keep:
        windows = windows_of(call.network, x.dtype, extent, call.budget)
        reserve = [new_reserve(kept_bytes(call, x.dtype, extent.steps, extent.total, extent.rows), x.device)]
    randomness = call.randomness(seed, packing)

    def run(given: Sequence[Tensor]) -> tuple[Tensor, list[Tensor], Tensor | None]:
        inputs, first, sources, reserve = parts(given)
        x, kept = inputs[0], reserve[0] if keep else None
        output = x.new_empty(extent.rows, call.width) if call.ends else new_sequence(call.width, x, call.batch_first)
        more = [new_sequences(call.units, size, x, call.batch_first) for size in call.more_sizes]
        of_call = extent, randomness, output, more, kept, windows, call.ends
        return output, [*triton.forward(call.network, inputs, first, sources, *of_call), *more], kept

    parts, given = _parts(inputs, first, sources, reserve), [*inputs, *first, *sources, *reserve]
    key = on_triton(call, first, reserve) if _may_repeat(x, randomness, packing) else None
    return Work(run, given, key, nullcontext)


def on_triton(call: Call, first: Tensors, reserve: Tensors) -> Hashable:
    """What a call follows from beside the form of its tensors; so do the next three."""
    return id(call), "forward", len(first), len(reserve), tf32.allowed()


def on_cudnn(call: Call, first: Tensors, buffer: Tensors, keep: bool) -> Hashable:
    return id(call), "cudnn", len(first), len(buffer), keep


def backward_on_triton(call: Call, there: Sequence[bool], wanted: Sequence[bool]) -> Hashable:
    """`there`: which of the cotangents of the output and the last states are given."""
    return id(call), "backward", *there, *wanted, tf32.allowed()


def backward_on_cudnn(call: Call, first: Tensors, buffer: Tensors, there: Sequence[bool], wanted: Sequence[bool]) -> Hashable:
    return id(call), "cudnn backward", len(first), len(buffer), *there, *wanted, cudnn.is_kept_for_another()


def _parts(*groups: Sequence[object]) -> Callable[[Sequence[Tensor]], list[Sequence[Tensor]]]:
    """What takes a list apart into groups that are as long as these."""
    ends = list(accumulate(map(len, groups), initial=0))
    return lambda given: [given[begin:end] for begin, end in pairwise(ends)]


def _may_repeat(x: Tensor, randomness: object, packing: Packing | None) -> bool:
    """Whether what a call consists of follows from shapes. Captured ones are repeated by their graph."""
    captured = x.is_cuda and torch.cuda.is_current_stream_capturing()
    return randomness is None and packing is None and not captured


def new_reserve(bytes: int, device: torch.device) -> Tensor:
    """On `device`, which is the current one. Raises: torch.OutOfMemoryError that says what it is for."""
    try:
        return EMPTY[device.type]((bytes,), (1,), torch.uint8)
    except torch.OutOfMemoryError as error:
        what = f"{bytes} bytes of {device} that a training call keeps for its backward pass"
        how = "a layer with a memory_budget keeps less and computes it again; calls without gradients keep nothing"
        raise torch.OutOfMemoryError(f"anyrnn: no room for {what}: {how}. {error}") from None


def untracked() -> AbstractContextManager[Any]:
    """Around backward calls by generated kernels: gradients that stand side by side in one memory are no views to autograd, which
    would count a change of one as a change of all.
    """
    guard: AbstractContextManager[Any] = torch._C._AutoDispatchBelowADInplaceOrView()
    return guard


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
    inputs, sources = list(map(readable, inputs)), [s.contiguous() for s in sources]
    with without_autocast(inputs[0]), torch.cuda.device_of(inputs[0]):
        of_call = inputs, first, sources, seed, packing, reserve, d_output, d_last, wanted
        found: tuple[list[Tensor], list[Tensor], list[Tensor]] = _backward_on(CALLS[number], *of_call).made()
        return found


def _backward_on_cudnn(
    call: Call,
    x: Tensor,
    first: Tensors,
    sources: Tensors,
    packing: Packing | None,
    reserve: Tensor,
    d_output: Tensor | None,
    d_last: Sequence[Tensor | None],
    wanted: Sequence[bool],
) -> Work:
    counts, buffer = None if packing is None else packing.counts, one_buffer(call, sources)
    cotangents, there = [d for d in (d_output, *d_last) if d is not None], [d is not None for d in (d_output, *d_last)]

    def run(given: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        (x, reserve), first, sources, buffer, present = parts(given)
        first = first or initial_states(call.network, x, rows_of(x, packing))
        of_results = iter(present)
        d_output, *d_last = [next(of_results) if one else None for one in there]
        of_call = first, sources, buffer[0] if buffer else None, counts, reserve.view(torch.uint8), d_output, d_last, wanted
        return cudnn.backward(call.network, x, *of_call)

    parts, given = _parts([x, reserve], first, sources, buffer, cotangents), [x, reserve, *first, *sources, *buffer, *cotangents]
    key = backward_on_cudnn(call, first, buffer, there, wanted) if _may_repeat(x, None, packing) else None
    return Work(run, given, key, partial(tf32.AsInProducts, x.dtype))


def _backward_on(
    call: Call,
    inputs: Tensors,
    first: Tensors,
    sources: Tensors,
    seed: Tensor | None,
    packing: Packing | None,
    reserve: Tensor,
    d_output: Tensor | None,
    d_last: Sequence[Tensor | None],
    wanted: Sequence[bool],
) -> Work:
    """By the backend that made the reserve. Gives the gradients of inputs, first states and sources."""
    x, states, extent = inputs[0], len(call.state_sizes), extent_of(inputs[0], packing)
    on_cudnn = reserve.dtype is OF_CUDNN
    bytes = reserve.nbytes if on_cudnn else kept_bytes(call, x.dtype, extent.steps, extent.total, extent.rows)
    check_kept(call, inputs, sources, reserve, bytes)
    if is_moved(reserve):
        reserve = reserve.clone(memory_format=torch.contiguous_format)
    if on_cudnn:
        return _backward_on_cudnn(call, x, first, sources, packing, reserve, d_output, d_last, wanted)
    randomness, given = call.randomness(seed, packing), [] if d_output is None else [readable(d_output)]
    windows = windows_of(call.network, x.dtype, extent, call.budget)
    cotangents, more = ([readable(d) for d in some if d is not None] for some in (d_last[:states], d_last[states:]))
    there = [d is not None for d in d_last]

    def run(tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        inputs, sources, (reserve,), given, *some = parts(tensors)
        x, of_last = inputs[0], iter([*some[0], *some[1]])
        d_last = [next(of_last) if one else None for one in there]
        d_more = list(map(readable, call.more_cotangents(x, d_last[states:])))
        d_output = given[0] if given else None
        d_inputs = [new_sequence(t.size(-1), t, call.batch_first) for t in inputs] if wanted[0] else []
        of_call = extent, randomness, reserve, windows, d_output, d_last[:states], d_more, d_inputs, wanted[1:], call.ends
        with triton.LOCK.now if windows else nullcontext():
            return d_inputs, *triton.backward(call.network, inputs, sources, *of_call)

    parts = _parts(inputs, sources, [reserve], given, cotangents, more)
    tensors = [*inputs, *sources, reserve, *given, *cotangents, *more]
    repeats = not windows and _may_repeat(x, randomness, packing)
    key = backward_on_triton(call, [d_output is not None, *there], wanted) if repeats else None
    return Work(run, tensors, key, untracked)
