"""The backend's entry points: compiled programs, sizes told in advance, forward and backward calls on addresses."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from threading import Lock
from typing import Any

from anyrnn._cache import remembered
from anyrnn._memory import ALIGNMENT
from anyrnn.backends.llvm import recompute, target, threads, weight_masks
from anyrnn.backends.llvm.call_shape import CallShape, Strides
from anyrnn.backends.llvm.driver import Code, Driver
from anyrnn.backends.llvm.element import Element
from anyrnn.backends.llvm.ends import TRUSTED
from anyrnn.backends.llvm.extent import Extent
from anyrnn.backends.llvm.frame import Frame
from anyrnn.backends.llvm.joint import Joint, may_join
from anyrnn.backends.llvm.memory import Arena, Packed, ReserveLayout, Scratch
from anyrnn.backends.llvm.pools import Packs, Pool, Pools
from anyrnn.backends.llvm.spelling import unsupported
from anyrnn.backends.llvm.target import Machine
from anyrnn.errors import UnsupportedError
from anyrnn.ir.philox import Randomness
from anyrnn.passes.compile import Plan
from anyrnn.passes.plan import Program
from anyrnn.sequence.network import Network
from anyrnn.sequence.windows import Windows

draw = weight_masks.draw
IN_PAIRS = "float32 in pairs"
"""What calls say for their dtype where arrays are float32 and products are of numbers rounded to bfloat16, see `factors`."""
IN_INT8 = "float32 in int8"
"""The same where products are of numbers rounded to eight bits, see `int8`; of inference."""
MOST_ROUNDED = 2**18
"""Features: a rounded row stands on the stack."""
KINDS = {"float32": ("float32", ""), "float64": ("float64", ""), IN_PAIRS: ("float32", "bfloat16"), IN_INT8: ("float32", "int8")}
"""By what calls say, the dtype of their arrays, and what products are made of, see `Element`."""


@dataclass(frozen=True)
class Compiled:
    """A program's code with its entry point, called with and without the interpreter's lock."""

    code: Code
    entry: Callable[[int], None]
    entry_keeping_lock: Callable[[int], None]


def element(dtype: str, machine: Machine | None = None) -> Element:
    """Of a machine, by default this one."""
    of_arrays, products = KINDS[dtype]
    type, bytes = {"float32": ("float", 4), "float64": ("double", 8)}[of_arrays]
    return Element(type, bytes, (machine or target.machine()).lanes(bytes), products)


def said(dtype: str, products: str) -> str:
    """What calls say for such arrays and products."""
    return next(name for name, kind in KINDS.items() if kind == (dtype, products))


def multiplies_pairs() -> bool:
    """Whether float32 numbers are rounded to bfloat16 for products, where they may be."""
    return target.machine().multiplies_pairs


def write_code(plan: Plan, which: str, dtype: str, machine: Machine | None = None, packs: bool = True) -> Code:
    """The text of `inference`, `training` or `backward` of a plan, for a machine, by default this one. Without `packs` it finds
    weights packed, and biases added up, always.
    """
    program: Program = getattr(plan, which)
    values = {s.name: s.init for s in plan.graph.states}
    machine, keeps = machine or target.machine(), which != "backward"
    return Driver(program, plan.phase.weights, plan.summed, values, element(dtype, machine), machine, keeps, packs).code()


@cache  # without end, as code that is loaded stays
def compiled(plan: Plan, which: str, dtype: str) -> Compiled:
    """The native code of a program. Places in its argument block go by names, so cells with other names have their own.

    Raises: UnsupportedError for a program of training with products of int8.
    """
    if dtype == IN_INT8 and which != "inference":
        raise UnsupportedError("products of int8 have no gradients")
    names = [node.name for node in plan.graph.nodes]
    key = f"{plan.graph.identity} {names} {which} {dtype} {target.identity()}"
    code, binary = remembered("code", key, lambda: _compile(plan, which, dtype))
    (address,) = target.load(binary, "stack")
    return Compiled(code, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address), ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(address))


def _compile(plan: Plan, which: str, dtype: str) -> tuple[Code, bytes]:
    """What the caller must know of a program's code, and the code itself."""
    code = write_code(plan, which, dtype)
    return replace(code, text=""), target.object_code(code.text)


def why_not(network: Network, dtype: str) -> str | None:
    """Why this backend cannot run a network, or None."""
    if dtype not in KINDS:
        return f"dtype {dtype} has no kernels (float32 and float64 have)"
    if dtype == IN_INT8:
        sizes = [network.layer_sizes(layer) for layer, _ in network.units]
        dims = [buffer.dim for buffer in network.plan.inference.buffers if buffer.dim is not None]
        widest = max(dim.evaluate(of_layer) for dim in dims for of_layer in sizes)
        if widest > MOST_ROUNDED:
            return f"vectors of more than {MOST_ROUNDED} features are not rounded to int8, got {widest}"
    return network.plan.why_not(unsupported)


def _make_frame(network: Network, shape: CallShape) -> Frame:
    """With the probabilities, which calls that draw nothing compute with; those that draw say what they draw by."""
    ready = compiled(network.plan, shape.which, shape.dtype)
    frame = Frame(network, shape, ready.code, ready.entry, ready.entry_keeping_lock)
    randomness = network.randomness(0, None)
    if randomness is not None:
        frame.random_choices(randomness)
    return frame


def scatters(network: Network) -> bool:
    """Whether the rows of the output and of its cotangent may stand anywhere (see `CallShape.anywhere`)."""
    return network.plan.backward.is_pointwise("d_y")


POOLS = Pools(_make_frame)
UNEVEN = Pools(_make_frame, limit=64)
"""Of batches whose sequences end at different steps: seldom the same again, but often of about the same size."""


@lru_cache(maxsize=256)
def reserve_rate(network: Network, dtype: str) -> tuple[int, int]:
    """(bytes for every row of every step, bytes beside them) that hold any reserve of a network."""
    arena, one = Arena(), Extent(1, 1)
    e = element(dtype)
    per_row = (network.layers - 1) * network.directions * network.output_size * e.bytes
    buffers = 2 * network.layers
    for layer, _ in network.units:
        for placed in ReserveLayout(network, e, layer, one, arena).buffers.values():
            per_row += placed.row_bytes * (placed.bytes // placed.panel_bytes)
            buffers += 1
    return per_row, buffers * ALIGNMENT


def reserve_bytes(network: Network, dtype: str, total: Any, rows: Any) -> Any:
    """Bytes that a training forward call keeps for its backward call, of `total` rows of all steps and `rows` samples; linear, so
    that they may be symbolic.
    """
    per_row, beside = reserve_rate(network, dtype)
    return (total + rows) * per_row + beside


def kept_bytes(network: Network, dtype: str, total: Any, rows: Any, budget: int | None) -> Any:
    """The same, within a budget if there is one."""
    needed = reserve_bytes(network, dtype, total, rows)
    return needed if budget is None else min(needed, budget)


def shares(networks: Sequence[Network], budget: int | None) -> list[int | None]:
    """A budget divided over calls that are made one after the other, by the features that they keep; of any backend."""
    if budget is None:
        return [None] * len(networks)
    needs = [
        sum(
            1 if buffer.dim is None else buffer.dim.evaluate(network.layer_sizes(layer))
            for layer, _ in network.units
            for buffer in network.plan.training.buffers
            if buffer.role in ("state", "saved")
        )
        for network in networks
    ]
    return [budget * need // sum(needs) for need in needs]


def kept_by_parts(network: Network, dtype: str, total: int, rows: int, budget: int | None) -> int:
    """The same of all parts of a network, each from an aligned place on."""
    sizes = [
        kept_bytes(part, dtype, total, rows, share)
        for part, share in zip(network.parts, shares(network.parts, budget), strict=True)
    ]
    return sum(-(-bytes // ALIGNMENT) * ALIGNMENT for bytes in sizes)


def windows(network: Network, dtype: str, extent: Extent, budget: int | None) -> Windows | None:
    """What a training call keeps, if not everything. Raises: UnsupportedError when a budget is too small."""
    return None if budget is None else recompute.choose(network, element(dtype), extent, budget)


def forward_in_windows(network: Network, shape: CallShape, addresses: Sequence[int], randomness: Randomness | None) -> None:
    """A training call that keeps some windows of steps."""
    recompute.forward(_drawing_frame(network, shape, randomness), addresses)


def backward_in_windows(
    network: Network,
    shape: CallShape,
    addresses: Sequence[int],
    first: tuple[Strides | None, ...],
    given: Sequence[int],
    randomness: Randomness | None,
) -> None:
    """Its backward call. `first` and `given` are of its forward call: the strides of the first states; the addresses of inputs,
    first states, sources and the reserve.
    """
    nothing = (None,) * len(network.state_sizes)
    again = CallShape(
        which="training",
        dtype=shape.dtype,
        extent=shape.extent,
        inputs=shape.inputs,
        output=None,
        first=first,
        last=nothing,
        windows=shape.windows,
    )
    frame, same = (_drawing_frame(network, one, randomness) for one in (shape, again))
    recompute.backward(frame, same, addresses, given)


def _drawing_frame(network: Network, shape: CallShape, randomness: Randomness | None) -> Frame:
    frame = _make_frame(network, shape)
    if randomness is not None:
        frame.random_choices(randomness)
    return frame


def _frame_of(network: Network, which: str, dtype: str, extent: Extent) -> Frame:
    """Of a call with all that it may have, for what does not depend on where arrays stand."""
    sequence = (0, 0)
    inputs, states = (sequence,) * len(network.graph.inputs), (sequence,) * len(network.state_sizes)
    more = ((0, 0, 0),) * len(network.graph.more_outputs)
    shape = CallShape(which, dtype, extent, inputs, output=sequence, first=states, last=states, more=more)
    if which == "backward":
        shape = replace(shape, output_steps=(0, extent.steps), d_inputs=inputs, gradients=True)
    return _make_frame(network, shape)


@dataclass(frozen=True)
class Way:
    """How a call runs: on how many threads, how many directions at once, whether the threads of each split columns (by layer and
    direction), how often they then wait in a step, and the bytes that it works in.
    """

    threads: int
    abreast: int
    columns: tuple[bool, ...]
    barriers: int
    work_bytes: int
    again: float
    """the share of steps that a backward call computes again"""


def way(network: Network, which: str, dtype: str, extent: Extent, budget: int | None = None, room: Extent | None = None) -> Way:
    """How an `inference`, `training` or `backward` call would run now; an inference call that is not the first of its kind.
    `room`: what its memory is for, if more.

    Raises: UnsupportedError when a budget is too small.
    """
    frame, found = _frame_of(network, which, dtype, room or extent), windows(network, dtype, extent, budget)
    frame.fit(extent)
    count = 1 if frame.small else frame.work.threads(threads.default(), which == "inference")
    abreast, columns = frame.work.abreast(count), tuple(frame.columns(count))
    barriers = len(frame.program.body) if frame.program.waits and count > abreast and any(columns) else 0
    bytes, again = frame.own_bytes + frame.packed_bytes, 0.0
    if found is not None:
        again = found.share_again(extent.steps)
        bytes += way(network, "training", dtype, extent).work_bytes if which == "backward" else 0
    return Way(count, abreast, columns, barriers, bytes, again)


def call(
    network: Network,
    shape: CallShape,
    addresses: Sequence[int],
    randomness: Randomness | None = None,
    keep: Callable[[int], Packed] | None = None,
    trusting: bool = False,
    packs: Packs | None = None,
) -> None:
    """Run a forward or backward call; `CallShape` says in which order the addresses come, `Pool.call` what the rest is."""
    extent, pools = None, POOLS
    if shape.extent.counts is not None:
        extent, pools = shape.extent, UNEVEN
        if shape.which == "inference":  # where nothing is kept whose size the caller was told
            shape = replace(shape, extent=extent.room)
    key = network, shape
    (pools.get(key) or pools.add(key, network, shape)).call(addresses, randomness, keep, trusting, extent, packs)


class Repeated:
    """An inference call that is made again and again at the same addresses, by one thread at a time; its weights stay as they
    are.
    """

    def __init__(self, network: Network, shape: CallShape, addresses: Sequence[int]) -> None:
        self.frame, self.addresses = _make_frame(network, shape), addresses
        self.packed = Packed(self.frame.packed_bytes)
        self.scratch = Scratch(self.frame.own_bytes)
        self.asked = 0
        self.last = 0.0

    def __call__(self) -> None:
        frame, asked = self.frame, threads.default()
        if asked != self.asked:
            # the first call, which packs; the second, which trusts what the first has packed; in a forked child, or after torch
            # has been imported
            frame.call(self.addresses, self.scratch, self.packed, trusting=True)
            self.asked = asked if frame.kept == TRUSTED else 0
        elif frame.threads == 1:
            frame.call_again(1)
        else:
            asleep = time.monotonic() - self.last > threads.doze()
            frame.call_again(frame.threads_asleep if asleep else frame.threads)
            self.last = time.monotonic()


def joint(pool: Pool) -> Joint | None:
    """For backward calls like those of a pool that share their weights; None if they cannot."""
    return Joint(_make_frame, pool.network, pool.shape) if may_join(pool.network, pool.shape) else None


@dataclass
class BackwardInTwo:
    """A backward call in two parts: what the steps leave in the scratch memory is still there for the sources' gradients."""

    frame: Frame
    scratch: Scratch
    lock: Lock = field(default_factory=Lock)
    """for threads that ask for gradients of one call at once: they share the frame"""


def backward_data(
    network: Network, shape: CallShape, addresses: Sequence[int], randomness: Randomness | None = None
) -> BackwardInTwo:
    """A backward call without the sources' gradients, though its shape has them; its extent must be `whole`. Gives all that
    `backward_weights` needs.
    """
    frame = _drawing_frame(network, shape, randomness)
    work = BackwardInTwo(frame, Scratch(frame.own_bytes + frame.packed_bytes))
    frame.phases(steps=True, gradients=False)
    frame.call(addresses, work.scratch)
    return work


def backward_weights(work: BackwardInTwo, addresses: Sequence[int]) -> None:
    """The sources' gradients alone, of what `backward_data` has left."""
    with work.lock:
        work.frame.phases(steps=False, gradients=True)
        work.frame.call(addresses, work.scratch)
