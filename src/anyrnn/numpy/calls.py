"""Forward and backward calls on what the kernels take, natively or by the interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from anyrnn import backends
from anyrnn._memory import ALIGNMENT, addresses, aligned, empty
from anyrnn.errors import UnsupportedError
from anyrnn.ir.philox import Randomness
from anyrnn.numpy import interpreted
from anyrnn.numpy.arguments import Arguments, Array, strides, strides_of_units
from anyrnn.numpy.packed_weights import Kept, Packs
from anyrnn.numpy.parameters import gradients_by_name, new_gradients, of_unit
from anyrnn.numpy.uneven import Batch
from anyrnn.sequence.network import Network


@dataclass(kw_only=True)
class Reserve:
    """What a training forward call keeps for the backward calls: its memory, and references to the inputs and parameters,
    which must not change until then. A backward call does not use it up.
    """

    network: Network
    native_dtype: str
    """What native calls say for the dtype."""
    inputs: list[Array]
    first: list[Array] | None
    sources: list[Array]
    parameters: Mapping[str, Array]
    """Of all layers: the arrays that the layer had then."""
    batched: bool
    randomness: Randomness | None
    batch: Batch | None
    memory: Array = field(default_factory=partial(np.empty, 0, np.uint8))
    learned: bool = False
    """Whether first states were not given, and parameters stood in their place."""
    parts: list[Reserve] = field(default_factory=list)
    """Where a network is several calls, those of each; its own `memory` then holds theirs."""
    output: Array | None = None
    """Of a part."""
    outputs: str = "all"
    """Of which steps there are outputs: `all`, or for `last` and `none` the last one that each direction takes."""

    budget: int | None = None
    """Of bytes that a training call may keep."""
    packs: Packs | None = None
    """Of an inference call."""
    kept: Kept | None = None
    """Of one of a layer whose parameters nobody changes."""

    @property
    def ends(self) -> bool:
        """Whether kernels give the outputs of ends alone; of packed rows they give all."""
        return self.outputs != "all" and self.batch is None

    @property
    def counts(self) -> tuple[int, ...] | None:
        """The rows of each step, where they differ."""
        return None if self.batch is None else self.batch.packing.counts

    @property
    def rows(self) -> int:
        """The samples that have steps."""
        return self.inputs[0].shape[1] if self.batch is None else self.batch.packing.rows

    @property
    def steps(self) -> int:
        return len(self.inputs[0] if self.counts is None else self.counts)

    @property
    def total(self) -> int:
        """Rows of all steps."""
        return self.steps * self.rows if self.batch is None else self.batch.packing.total

    @property
    def bytes_kept(self) -> int:
        """That a native training call keeps."""
        return bytes_kept(self.network, self.inputs[0].dtype.name, self.total, self.rows, self.budget)

    @property
    def samples(self) -> int:
        """The caller's, with those that have no steps."""
        return self.rows if self.batch is None else self.batch.samples

    @property
    def several(self) -> bool:
        """Whether states have a dimension for the samples."""
        return self.batched or (self.batch is not None and self.batch.joined)


@dataclass
class Workspace:
    """What `backward_data` leaves for `backward_weights`."""

    reserve: Reserve
    arrays: list[Array] = field(default_factory=list)
    in_two: Any = None
    gradients: dict[str, Array] = field(default_factory=dict)
    d_own: list[Array] = field(default_factory=list)
    """Of learned first values, [units, size] for each state."""
    parts: list[Workspace] = field(default_factory=list)
    """Where a network is several calls."""

    def addresses(self, d_sources: Sequence[Array]) -> list[int]:
        """Of a backward call's arrays, with these for the sources' gradients."""
        return addresses((*self.arrays, *d_sources, self.reserve.memory))


def bytes_kept(network: Network, dtype: str, total: int, rows: int, budget: int | None) -> int:
    """Of memory, by a native training call of so many rows in all steps and samples: of all its parts."""
    bytes: int = backends.native().kept_by_parts(network, dtype, total, rows, budget)
    return bytes


def forward(reserve: Reserve, output: Array, last: list[Array], native: bool, keep: bool, memory: Array | None) -> None:
    """Fill `output` and `last` (the last states, then what else steps give), and of a native call to `keep` the reserve's memory:
    the caller's or new.
    """
    if native:
        if keep:
            reserve.memory = checked(memory, reserve.bytes_kept)
        _forward_natively(reserve, output, last, keep)
    else:
        checked(memory, 0)  # nothing is kept there
        given = (reserve.network, reserve.inputs, reserve.sources, reserve.first)
        interpreted.forward(*given, output, last, reserve.randomness, reserve.counts, reserve.ends)


def checked(memory: Array | None, needed: int) -> Array:
    if memory is None:
        return aligned(needed)
    if not isinstance(memory, np.ndarray) or not (memory.flags.c_contiguous and memory.flags.writeable):
        raise ValueError("memory should be a contiguous and writable NumPy array")
    if memory.nbytes < needed or (needed and addresses([memory])[0] % ALIGNMENT):
        message = f"at least {needed} bytes at a multiple of {ALIGNMENT}"
        raise ValueError(f"memory should be {message}, got {memory.nbytes} bytes")
    return memory


def shape_of(reserve: Reserve, output: Array, last: Sequence[Array], keep: bool) -> Any:
    """What native code has to know of a forward call."""
    native, first, states = backends.native(), reserve.first, len(reserve.network.state_sizes)
    extent, dtype = native.Extent(reserve.steps, reserve.rows, reserve.counts), output.dtype.name
    return native.CallShape(
        which="training" if keep else "inference",
        dtype=reserve.native_dtype,
        extent=extent,
        inputs=strides(reserve.inputs),
        output=strides([output])[0],
        first=strides(first) if first else (None,) * states,
        last=strides(last[:states]),
        more=strides_of_units(last[states:]),
        ends=reserve.ends,
        windows=native.windows(reserve.network, dtype, extent, reserve.budget) if keep else None,
        packed=reserve.kept is not None,
    )


def in_order(
    inputs: Sequence[Array], output: Array, first: Sequence[Array], last: Sequence[Array], sources: Sequence[Array]
) -> list[Array]:
    """The arrays of a forward call as native code takes them."""
    return [*inputs, output, *first, *last, *sources]


def _forward_natively(reserve: Reserve, output: Array, last: list[Array], keep: bool) -> None:
    native, shape = backends.native(), shape_of(reserve, output, last, keep)
    arrays = in_order(reserve.inputs, output, reserve.first or (), last, reserve.sources)
    arrays += [reserve.memory] if keep else []
    given = reserve.network, shape, addresses(arrays), reserve.randomness
    if shape.windows:
        native.forward_in_windows(*given)
    elif reserve.kept is not None:
        native.call(*given, reserve.kept.memory(reserve.network), trusting=True)
    else:
        native.call(*given, packs=reserve.packs and reserve.packs.of(reserve.network, reserve.native_dtype))


def backward(
    work: Workspace,
    d_y: Array | None,
    span: tuple[int, int],
    d_last: list[Array] | None,
    d_more: list[Array],
    weights: bool,
    native: bool,
    arguments: Arguments,
) -> tuple[list[Array], list[Array]]:
    """Gradients of the inputs and of the first states. Those of the parameters, if wanted or made anyway, go to the workspace.
    The output has a cotangent in the steps of `span`; `d_more` are those of what steps give beside it.
    """
    reserve, network = work.reserve, work.reserve.network
    if not reserve.steps:  # no sample has any
        work.gradients = {name: np.zeros(array.shape, arguments.dtype) for name, array in reserve.parameters.items()}
        return [np.zeros_like(a) for a in reserve.inputs], arguments.new_states(0)
    if native:
        return _backward_natively(work, d_y, span, d_last, d_more, weights, arguments)
    by_unit = [of_unit(network, reserve.parameters, *unit, arguments.dtype) for unit in network.units]
    given = (reserve.first, d_y, span, d_last, d_more, reserve.randomness, reserve.rows, reserve.counts, reserve.ends)
    d_inputs, d_first, work.gradients = interpreted.backward(network, reserve.inputs, by_unit, *given)
    return d_inputs, d_first


def _backward_natively(
    work: Workspace,
    d_y: Array | None,
    span: tuple[int, int],
    d_last: list[Array] | None,
    d_more: list[Array],
    weights: bool,
    arguments: Arguments,
) -> tuple[list[Array], list[Array]]:
    native, reserve = backends.native(), work.reserve
    network, steps, rows = reserve.network, reserve.steps, reserve.rows
    if reserve.batch is None:
        d_inputs = [arguments.new_sequence(steps, rows, a.shape[-1]) for a in reserve.inputs]
    else:
        d_inputs = [empty(a.shape, a.dtype) for a in reserve.inputs]
    d_first = arguments.new_states(rows)
    windows = native.windows(network, arguments.dtype.name, native.Extent(steps, rows, reserve.counts), reserve.budget)
    if windows and not weights:
        raise UnsupportedError("backward_data has to have all that a training call keeps; with this memory_budget, call backward")
    shape = native.CallShape(
        which="backward",
        dtype=arguments.dtype.name,
        extent=native.Extent(steps, rows, reserve.counts, whole=not weights),
        inputs=strides(reserve.inputs),
        output=strides([d_y])[0] if d_y is not None else None,
        first=strides(d_last) if d_last else (None,) * len(d_first),
        last=strides(d_first),
        output_steps=span,
        d_inputs=strides(d_inputs),
        gradients=True,
        more=strides_of_units(d_more),
        ends=reserve.ends,
        windows=windows,
        no_first=reserve.first is None,
    )
    cotangents = [*([] if d_y is None else [d_y]), *(d_last or ())]
    work.arrays = [*reserve.inputs, *cotangents, *d_first, *d_more, *d_inputs, *reserve.sources]
    if weights:
        d_sources = new_gradients(network, reserve.sources)
        if windows:
            first = reserve.first or []
            given = addresses((*reserve.inputs, *first, *reserve.sources, reserve.memory))
            begin = strides(first) if first else (None,) * len(d_first)
            native.backward_in_windows(network, shape, work.addresses(d_sources), begin, given, reserve.randomness)
        else:
            native.call(network, shape, work.addresses(d_sources), reserve.randomness)
        work.gradients = gradients_by_name(network, reserve.parameters, d_sources, arguments.dtype, reserve.randomness)
    else:
        work.in_two = native.backward_data(network, shape, work.addresses(reserve.sources), reserve.randomness)
    return d_inputs, d_first


def backward_weights(work: Workspace) -> dict[str, Array]:
    """Gradients of the parameters, new arrays, after a backward call without."""
    if work.in_two is None:
        return {name: array.copy() for name, array in work.gradients.items()}
    reserve = work.reserve
    d_sources = new_gradients(reserve.network, reserve.sources)
    backends.native().backward_weights(work.in_two, work.addresses(d_sources))
    of_reserve = reserve.inputs[0].dtype, reserve.randomness
    return gradients_by_name(reserve.network, reserve.parameters, d_sources, *of_reserve)
