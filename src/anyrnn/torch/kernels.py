"""Calls of the native kernels on tensors: forward and backward, each through a frame for calls that are alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from anyrnn._memory import LARGE, aligned
from anyrnn.backends.llvm import run as llvm
from anyrnn.backends.llvm.call_shape import CallShape
from anyrnn.backends.llvm.extent import Extent
from anyrnn.backends.llvm.pools import Pool
from anyrnn.backends.llvm.unit import ROWS_OF_A_STEP
from anyrnn.ir.philox import Randomness
from anyrnn.sequence.packing import Packing
from anyrnn.torch import gpu, packed_weights
from anyrnn.torch.calls import CALLS, DTYPES, Call, Tensors, check_kept, extent_of, is_moved, rows_of
from anyrnn.torch.memory import (
    Form,
    empty,
    form_of,
    in_rows,
    new_sequence,
    new_sequences,
    of_sequence,
    paged,
    readable,
    strides_of,
    strides_of_units,
)

if TYPE_CHECKING:
    from anyrnn.torch.rows import Scatter


def new_output(call: Call, like: Tensor) -> Tensor:
    return like.new_empty(like.size(1), call.width) if call.ends else paged(new_sequence(call.width, like, call.batch_first))


def new_reserve(bytes: int) -> Tensor:
    return empty((bytes,), (1,), torch.uint8) if bytes < LARGE else torch.from_numpy(aligned(bytes))


def first_strides(call: Call, first: Tensors) -> tuple[tuple[int, int] | None, ...]:
    return tuple([strides_of(t) for t in first]) if first else (None,) * len(call.state_sizes)


def forward_key(
    number: int,
    keep: bool,
    frozen: int,
    x: Tensor,
    room: Extent | None,
    scatter: Scatter | None,
    strides: Sequence[tuple[int, ...]],
) -> tuple[object, ...]:
    """Of forward calls that one frame runs; `room`: see `Call.room`, None where all samples have all steps."""
    return (number, keep, frozen > 0, x.dtype, room or x.shape, scatter is None, *strides)


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
    of_step: bool = False,
) -> tuple[Tensor, list[Tensor], Tensor | None]:
    """The output [T, N, S * H], or [N, S * H] of calls for ends; the last states [units, N, size], and behind them what else
    steps give, [units, T, N, size]; the reserve (None unless `keep`). With a `packing`, inputs and output are its rows,
    [rows, features], and with a `scatter` the output is all rows of the caller. `frozen`: the promise that the sources have
    changed in no way that torch does not count. `of_step`: the output is [N, H], of one step, and the last states [N, size].
    """
    call = CALLS[number]
    network, x = call.network, inputs[0]
    if call.on_triton(x):
        output, last, reserve = gpu.run_forward(inputs, first, sources, seed, packing, number, keep)
        return output if scatter is None else scatter.put(output), last, reserve
    rows = rows_of(x, packing)
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
    reserve, extent = None, None if packing is None else extent_of(x, packing)
    room = None if extent is None else call.room(extent)
    if keep:
        total = x.size(0) * rows if room is None else room.total
        reserve = new_reserve(llvm.kept_bytes(network, call.native_dtype(x.dtype), total, rows, call.budget))
        addresses.append(reserve.data_ptr())
    key = forward_key(number, keep, frozen, x, room, scatter, strides)
    pools = llvm.POOLS if packing is None else llvm.UNEVEN
    pool = pools.get(key)
    randomness = call.randomness(seed, packing)
    if pool is None:
        shape = CallShape(
            which="training" if keep else "inference",
            dtype=call.native_dtype(x.dtype),
            extent=room or extent_of(x, packing),
            inputs=tuple([strides_of(t) for t in inputs]),
            output=strides_of(output),
            first=first_strides(call, first),
            last=tuple([strides_of(t) for t in last[: len(call.state_sizes)]]),
            more=tuple([strides_of_units(t) for t in last[len(call.state_sizes) :]]),
            ends=call.ends,
            windows=call.windows(x, packing) if keep else None,
            anywhere=scatter is not None,
            packed=frozen > 0,
        )
        pool = None if shape.windows else pools.add(key, network, shape)
    if pool is None:
        llvm.forward_in_windows(network, shape, addresses, randomness)
    else:
        if keep:
            pool.call(addresses, randomness, extent=extent)
        else:
            run_packed(pool, number, addresses, randomness, sources, at, frozen, extent)
    if scatter is not None:
        output.index_fill_(0, scatter.places.others, scatter.padding)
    if of_step:  # in place, as views could not be changed in place by the caller
        output, last = output.squeeze_(0), [t.squeeze_(0) for t in last]
    return output, last, reserve


def run_packed(
    pool: Pool,
    kind: object,
    addresses: Sequence[int],
    randomness: Randomness | None,
    sources: Tensors,
    at: list[int],
    frozen: int,
    extent: Extent | None = None,
) -> None:
    """A call whose weights stay packed for the next one of its kind; `at` are the addresses of the sources."""
    weights = packed_weights.find(kind, sources, at, frozen) or packed_weights.remember(kind, sources, at)
    if weights is None:
        pool.call(addresses, randomness, extent=extent)
    else:
        if frozen:
            pool.call(addresses, randomness, weights.memory, weights.looked == frozen, extent)
        else:
            pool.call(addresses, randomness, extent=extent, packs=weights.lent)
        weights.looked = frozen


@dataclass(frozen=True)
class Repeat:
    """Forward calls like one that was made, of one input and contiguous sources.

    Args:
        number: of the call.
        pool: of its frames.
        output, states: the forms of the output and of each of the last states.
        reserve_bytes: of the reserve.
    """

    number: int
    pool: Pool
    output: Form
    states: tuple[Form, ...]
    reserve_bytes: int

    def infer(self, x: Tensor, first: Tensors, sources: Tensors, frozen: int) -> tuple[Tensor, list[Tensor]]:
        """The output and the last states, without a gradient."""
        output, last = self._results(x)
        at = list(map(Tensor.data_ptr, sources))
        addresses = [*map(Tensor.data_ptr, (x, output, *first, *last)), *at]
        run_packed(self.pool, self.number, addresses, None, sources, at, frozen)
        return output, last

    def train(
        self, x: Tensor, first: Tensors, sources: Tensors, parameters: Tensors | None = None
    ) -> tuple[Tensor, list[Tensor], Tensor]:
        """The same, and the reserve. `parameters`: of cells what the sources are, for which weights stay packed for the next
        call, where they are packed at all.
        """
        output, last = self._results(x)
        reserve = new_reserve(self.reserve_bytes)
        at = list(map(Tensor.data_ptr, sources))
        addresses = [*map(Tensor.data_ptr, (x, output, *first, *last)), *at, reserve.data_ptr()]
        if parameters is None or len(x) <= ROWS_OF_A_STEP:
            self.pool.call(addresses)
        else:
            run_packed(self.pool, (self.number, "training"), addresses, None, parameters, at, 0)
        return output, last, reserve

    def _results(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        return paged(empty(*self.output, x.dtype)), [empty(*form, x.dtype) for form in self.states]


def repeat(number: int, keep: bool, frozen: int, x: Tensor, first: Tensors, of_step: bool) -> Repeat | None:
    """What repeats a call on an input that is like `x`, and first states; None where no frame for such a call is there.
    `of_step`: for tensors without the sides of steps and units, of which there is one each.
    """
    call, strides = CALLS[number], [t.stride() for t in (x, *first)]
    pool = llvm.POOLS.get(forward_key(number, keep, frozen, x, None, None, strides))
    if pool is None or call.more_sizes or any(stride[-1] != 1 for stride in strides):
        return None
    steps, rows = x.shape[:2]
    output = in_rows(rows, call.width) if of_step or call.ends else of_sequence(steps, rows, call.width, call.batch_first)
    ahead = () if of_step else (call.units,)
    states = tuple([in_rows(*ahead, rows, size) for size in call.state_sizes])
    bytes = llvm.kept_bytes(call.network, call.native_dtype(x.dtype), steps * rows, rows, call.budget) if keep else 0
    return Repeat(number, pool, output, states, bytes)


def new_gradients(summed: Sequence[int], forms: Sequence[Form], dtype: torch.dtype) -> list[Tensor]:
    """Memory for the gradients of all sources; zeros for those that are `summed`, to which kernels add."""
    gradients = [paged(empty(*form, dtype)) for form in forms]
    for k in summed:
        gradients[k].zero_()
    return gradients


def backward_key(
    number: int,
    x: Tensor,
    room: Extent | None,
    scatter: Scatter | None,
    no_first: bool,
    wanted: Sequence[bool],
    absent: Sequence[bool],
    strides: Sequence[tuple[int, ...]],
) -> tuple[object, ...]:
    """Of backward calls that one frame runs."""
    return (number, x.dtype, room or x.shape, scatter is None, no_first, *wanted, *absent, *strides)


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
    they are empty. First states are those that the forward call was given, and are read where it has kept little. With a
    `scatter` the output's cotangent is all rows of the caller.
    """
    call = CALLS[number]
    network, x = call.network, inputs[0]
    if call.on_triton(x):
        if scatter is not None and d_output is not None:
            d_output = scatter.taken(d_output)
        return gpu.run_backward(inputs, first, sources, seed, packing, reserve, d_output, d_last, number, wanted)
    rows = rows_of(x, packing)
    extent, dtype = extent_of(x, packing), call.native_dtype(x.dtype) if x.dtype in DTYPES else None
    room = None if packing is None else call.room(extent)
    total = x.size(0) * rows if room is None else room.total
    bytes = -1 if dtype is None else llvm.kept_bytes(network, dtype, total, rows, call.budget)
    check_kept(call, inputs, sources, reserve, bytes)
    states = len(call.state_sizes)
    d_more = call.more_cotangents(x, d_last[states:]) if call.more_sizes else []
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
    if is_moved(reserve):
        reserve = torch.from_numpy(aligned(reserve.nbytes)).copy_(reserve)
    d_inputs = [paged(new_sequence(t.size(-1), t, call.batch_first)) for t in inputs] if wanted[0] else []
    d_first = [x.new_empty((call.units, rows, size)) for size in call.state_sizes] if wanted[1] else []
    d_sources = new_gradients(call.summed, list(map(form_of, sources)), x.dtype) if wanted[2] else []
    absent = [d is None for d in cotangents]
    key = backward_key(number, x, room, scatter, not first, wanted, absent, strides)
    pools = llvm.POOLS if packing is None else llvm.UNEVEN
    pool = pools.get(key)
    further = () if scatter is None else (scatter.places.further,)
    tensors = (*inputs, *given, *d_first, *d_more, *d_inputs, *further, *sources, *d_sources, reserve)
    addresses, randomness = list(map(Tensor.data_ptr, tensors)), call.randomness(seed, packing)
    if pool is None:
        of_given = iter(given)
        of_output, *of_ends = [None if none else strides_of(next(of_given)) for none in absent]
        shape = CallShape(
            which="backward",
            dtype=call.native_dtype(x.dtype),
            extent=room or extent,
            inputs=tuple([strides_of(t) for t in inputs]),
            output=of_output,
            first=tuple(of_ends),
            last=tuple([strides_of(d) for d in d_first]) or (None,) * len(network.state_sizes),
            output_steps=(0, (room or extent).steps),
            d_inputs=tuple([strides_of(t) for t in d_inputs]) or (None,) * len(inputs),
            gradients=bool(d_sources),
            more=tuple([strides_of_units(d) for d in d_more]),
            ends=call.ends,
            windows=call.windows(x, packing),
            anywhere=scatter is not None,
            no_first=not first,
        )
        if shape.windows:
            first = [readable(t) for t in first]
            again = first_strides(call, first), [t.data_ptr() for t in (*inputs, *first, *sources, reserve)]
            llvm.backward_in_windows(network, shape, addresses, *again, randomness)
            return d_inputs, d_first, d_sources
        pool = pools.add(key, network, shape)
    pool.call(addresses, randomness, extent=extent)
    return d_inputs, d_first, d_sources


@dataclass(frozen=True)
class RepeatBackward:
    """Backward calls like one that was made, of one input and contiguous sources.

    Args:
        pool: of its frames.
        d_input: the form of the input's gradient; None where it is not wanted.
        d_first: those of the first states' gradients; none where they are not wanted.
        d_sources: those of the sources' gradients; none where they are not wanted.
        summed: of which sources they are added to.
    """

    pool: Pool
    d_input: Form | None
    d_first: tuple[Form, ...]
    d_sources: tuple[Form, ...]
    summed: tuple[int, ...]

    def run(
        self,
        x: Tensor,
        first: Tensors,
        sources: Tensors,
        reserve: Tensor,
        cotangents: Tensors,
        call: Callable[[list[int]], None] | None = None,
        of_sources: bool = True,
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Gradients of the input, the first states (which are not read) and the sources, as `run_backward` gives them;
        `cotangents` are those that are there. `call` makes the call, by default the pool; `of_sources`: with their gradients.
        """
        d_inputs = [] if self.d_input is None else [paged(empty(*self.d_input, x.dtype))]
        d_first = [empty(*form, x.dtype) for form in self.d_first]
        d_sources = new_gradients(self.summed, self.d_sources, x.dtype) if self.d_sources and of_sources else []
        tensors = (x, *cotangents, *d_first, *d_inputs, *sources, *d_sources, reserve)
        (call or self.pool.call)(list(map(Tensor.data_ptr, tensors)))
        return d_inputs, d_first, d_sources


def repeat_backward(
    number: int,
    x: Tensor,
    sources: Tensors,
    no_first: bool,
    cotangents: Sequence[Tensor | None],
    wanted: Sequence[bool],
    of_step: bool,
) -> RepeatBackward | None:
    """What repeats a backward call; None where no frame for such a call is there. Arguments are those of `run_backward`;
    `no_first`: first states were not given; `of_step`: gradients have no sides of steps and units.
    """
    call, given = CALLS[number], [d for d in cotangents if d is not None]
    strides, absent = [t.stride() for t in (x, *given)], [d is None for d in cotangents]
    pool = llvm.POOLS.get(backward_key(number, x, None, None, no_first, wanted, absent, strides))
    if pool is None or any(stride[-1] != 1 for stride in strides):
        return None
    steps, rows, features = x.shape
    d_input = in_rows(rows, features) if of_step else of_sequence(steps, rows, features, call.batch_first)
    ahead = () if of_step else (call.units,)
    d_first = tuple([in_rows(*ahead, rows, size) for size in call.state_sizes]) if wanted[1] else ()
    d_sources = tuple(map(form_of, sources)) if wanted[2] else ()
    return RepeatBackward(pool, d_input if wanted[0] else None, d_first, d_sources, call.summed)
