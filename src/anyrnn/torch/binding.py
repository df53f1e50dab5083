"""The torch operators behind the modules, and the autograd functions that call them.

`anyrnn::forward` and `anyrnn::backward` are functional operators without autograd of their own. They are called from one of two
autograd functions: `Plain`, in eager mode and while torch.compile traces (which refuses a jvp), and `Transformed`, under
torch.func's transforms, which has a jvp and a vmap rule. What no kernel computes (second derivatives, forward mode, vmapped
calls) goes through the interpreter on torch, which is differentiable itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as are_functorch_transforms_active
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from anyrnn._memory import LARGE, RECYCLER
from anyrnn.backends.llvm import run as llvm
from anyrnn.backends.llvm.frame import Shape as CallShape
from anyrnn.backends.llvm.memory import Extent
from anyrnn.backends.reference import run as reference
from anyrnn.ir.philox import Randomness
from anyrnn.sequence.network import Network

Tensors = Sequence[Tensor]
DTYPES = {torch.float32: "float32", torch.float64: "float64"}


@dataclass(frozen=True)
class Call:
    """What a call needs to know beside its tensors. `dropout` is the probability of dropping features between layers."""

    network: Network
    batch_first: bool
    dropout: float = 0.0

    @cached_property
    def width(self) -> int:
        return self.network.directions * self.network.output_size

    @cached_property
    def units(self) -> int:
        return len(self.network.units)

    @cached_property
    def state_sizes(self) -> tuple[int, ...]:
        return self.network.state_sizes

    @cached_property
    def summed(self) -> tuple[int, ...]:
        """Which of the sources of all units have gradients that kernels add to."""
        names = self.network.sources * self.units
        return tuple(k for k, name in enumerate(names) if name in self.network.plan.summed)

    def randomness(self, seed: Tensor | None) -> Randomness | None:
        """`seed` is a tensor of one int64."""
        if seed is None:
            return None
        return Randomness(int(seed) & 0xFFFFFFFFFFFFFFFF, (0.0, *[self.dropout] * (self.network.layers - 1)))


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
        network, graph = call.network, call.network.graph
        nodes = [(n.op, n.inputs, n.shape, n.attributes, n.per_sample) for n in graph.nodes]
        parameters = [(p.name, p.shape) for p in graph.parameters]
        cell = (nodes, graph.outputs, graph.inputs, graph.states, parameters)
        text = repr((cell, network.sizes, network.layers, network.bidirectional, call.batch_first, call.dropout))
        number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
        CALLS[number] = call
        HANDLES[call] = number
    return HANDLES[call]


# memory of the caller


def sequence_like(steps: int, rows: int, features: int, like: Tensor, batch_first: bool) -> Tensor:
    """A new [T, N, features] tensor; with `batch_first` it is the transpose of a contiguous [N, T, features] one."""
    if batch_first:
        return like.new_empty((rows, steps, features)).transpose(0, 1)
    return like.new_empty((steps, rows, features))


def readable(tensor: Tensor) -> Tensor:
    """The tensor itself when its features lie next to each other, else a copy."""
    return tensor if tensor.stride(-1) == 1 or tensor.size(-1) <= 1 else tensor.contiguous()


def strides_of(tensor: Tensor) -> tuple[int, int]:
    """Bytes from step to step and row to row, or from unit to unit and row to row."""
    size = tensor.element_size()
    return tensor.stride(0) * size, tensor.stride(1) * size


# the operators


def run_forward(
    inputs: Tensors, first: Tensors, sources: Tensors, seed: Tensor | None, number: int, keep: bool
) -> tuple[Tensor, list[Tensor], Tensor | None]:
    """The output [T, N, S * H], the last states [units, N, size], and the reserve (None unless `keep`)."""
    call = CALLS[number]
    network, x = call.network, inputs[0]
    steps, rows, _ = x.shape
    inputs = [t if t.stride(-1) == 1 else readable(t) for t in inputs]
    first = [t if t.stride(-1) == 1 else readable(t) for t in first]
    sources = [t if t.is_contiguous() else t.contiguous() for t in sources]
    output = sequence_like(steps, rows, call.width, x, call.batch_first)
    last = [x.new_empty((call.units, rows, size)) for size in call.state_sizes]
    tensors = [*inputs, output, *first, *last, *sources]
    reserve = None
    if keep:
        bytes = llvm.reserve_bytes(network, DTYPES[x.dtype], steps, rows)
        reserve = torch.empty(bytes, dtype=torch.uint8) if bytes < LARGE else torch.from_numpy(RECYCLER.array(bytes))
        tensors.append(reserve)
    key = (number, keep, x.dtype, x.shape, *[t.stride() for t in inputs], *[t.stride() for t in first])
    pool = llvm.POOLS.get(key)
    if pool is None:
        shape = CallShape(
            "training" if keep else "inference",
            DTYPES[x.dtype],
            Extent(steps, rows),
            tuple([strides_of(t) for t in inputs]),
            strides_of(output),
            tuple([strides_of(t) for t in first]) if first else (None,) * len(last),
            tuple([strides_of(t) for t in last]),
        )
        pool = llvm.POOLS.add(key, network, shape)
    pool.call([t.data_ptr() for t in tensors], None if seed is None else call.randomness(seed))
    return output, last, reserve


def new_gradients(call: Call, sources: Tensors) -> list[Tensor]:
    """Memory for the gradients of all sources; zero where kernels add to it."""
    gradients = [torch.empty_like(t) for t in sources]
    for k in call.summed:
        gradients[k].zero_()
    return gradients


def run_backward(
    inputs: Tensors,
    sources: Tensors,
    seed: Tensor | None,
    reserve: Tensor,
    d_output: Tensor | None,
    d_last: Sequence[Tensor | None],
    number: int,
    wanted: Sequence[bool],
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Gradients of the inputs, the first states and the sources; `wanted` says for each of the three kinds whether they are,
    else they are empty.
    """
    call = CALLS[number]
    network, x = call.network, inputs[0]
    steps, rows, _ = x.shape
    inputs = [readable(t) for t in inputs]
    sources = [t if t.is_contiguous() else t.contiguous() for t in sources]
    d_output = readable(d_output) if d_output is not None else None
    d_ends = [readable(d) if d is not None else None for d in d_last]
    d_inputs = [sequence_like(steps, rows, t.shape[-1], t, call.batch_first) for t in inputs] if wanted[0] else []
    d_first = [x.new_empty((call.units, rows, size)) for size in call.state_sizes] if wanted[1] else []
    d_sources = new_gradients(call, sources) if wanted[2] else []
    given = [t for t in (d_output, *d_ends) if t is not None]
    key = (
        number,
        x.dtype,
        x.shape,
        *wanted,
        *[t.stride() for t in inputs],
        *[None if t is None else t.stride() for t in (d_output, *d_ends)],
    )
    pool = llvm.POOLS.get(key)
    if pool is None:
        shape = CallShape(
            "backward",
            DTYPES[x.dtype],
            Extent(steps, rows),
            tuple([strides_of(t) for t in inputs]),
            strides_of(d_output) if d_output is not None else None,
            tuple([strides_of(d) if d is not None else None for d in d_ends]),
            tuple([strides_of(d) for d in d_first]) or (None,) * len(network.state_sizes),
            (0, steps),
            tuple([strides_of(t) for t in d_inputs]) or (None,) * len(inputs),
            bool(d_sources),
        )
        pool = llvm.POOLS.add(key, network, shape)
    tensors = (*inputs, *given, *d_first, *d_inputs, *sources, *d_sources, reserve)
    pool.call([t.data_ptr() for t in tensors], None if seed is None else call.randomness(seed))
    return d_inputs, d_first, d_sources


LIBRARY = torch.library.Library("anyrnn", "DEF")
LIBRARY.define(
    "forward(Tensor[] inputs, Tensor[] first, Tensor[] sources, Tensor? seed, int number, bool keep)"
    " -> (Tensor, Tensor[], Tensor)"
)
LIBRARY.define(
    "backward(Tensor[] inputs, Tensor[] sources, Tensor? seed, Tensor reserve, Tensor? d_output, Tensor?[] d_last,"
    " int number, bool[] wanted)"
    " -> (Tensor[], Tensor[], Tensor[])"
)


def _forward_kernel(
    inputs: Tensors, first: Tensors, sources: Tensors, seed: Tensor | None, number: int, keep: bool
) -> tuple[Tensor, list[Tensor], Tensor]:
    output, last, reserve = run_forward(inputs, first, sources, seed, number, keep)
    return output, last, torch.empty(0, dtype=torch.uint8) if reserve is None else reserve


LIBRARY.impl("forward", _forward_kernel, "CPU")
LIBRARY.impl("backward", run_backward, "CPU")


@torch.library.register_fake("anyrnn::forward", lib=LIBRARY)
def _fake_forward(
    inputs: Tensors, first: Tensors, sources: Tensors, seed: Tensor | None, number: int, keep: bool
) -> tuple[Tensor, list[Tensor], Tensor]:
    call = CALLS[number]
    network, x = call.network, inputs[0]
    steps, rows, _ = x.shape
    output = sequence_like(steps, rows, network.directions * network.output_size, x, call.batch_first)
    bytes = llvm.reserve_bytes(network, DTYPES[x.dtype], steps, rows) if keep else 0
    last = [x.new_empty((len(network.units), rows, size)) for size in network.state_sizes]
    return output, last, torch.empty(bytes, dtype=torch.uint8)


@torch.library.register_fake("anyrnn::backward", lib=LIBRARY)
def _fake_backward(
    inputs: Tensors,
    sources: Tensors,
    seed: Tensor | None,
    reserve: Tensor,
    d_output: Tensor | None,
    d_last: Sequence[Tensor | None],
    number: int,
    wanted: Sequence[bool],
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    call = CALLS[number]
    network, x = call.network, inputs[0]
    steps, rows, _ = x.shape
    d_inputs = [sequence_like(steps, rows, t.shape[-1], t, call.batch_first) for t in inputs] if wanted[0] else []
    d_first = [x.new_empty((len(network.units), rows, size)) for size in network.state_sizes] if wanted[1] else []
    return d_inputs, d_first, [torch.empty_like(t) for t in sources] if wanted[2] else []


# the interpreter on torch


def interpreted(number: int, inputs: Tensors, first: Tensors, sources: Tensors, seed: Tensor | None) -> tuple[Tensor, ...]:
    """The same as the forward operator by torch's own operators: the output, then the last states."""
    network, x = CALLS[number].network, inputs[0]
    per_unit, units = len(network.sources), len(network.units)
    begin = [[t[u] for t in first] for u in range(units)] if first else [first_values(network, x) for _ in range(units)]
    values = [
        reference.source_values(network, layer, sources[u * per_unit : (u + 1) * per_unit])
        for u, (layer, _) in enumerate(network.units)
    ]
    output, last = reference.forward(network, torch, number_like(x), inputs, values, begin, CALLS[number].randomness(seed))
    return output, *(torch.stack([last[u][k] for u in range(units)]) for k in range(len(network.state_sizes)))


def number_like(x: Tensor) -> Callable[[float], Tensor]:
    """What makes tensors of Python numbers, in the dtype and on the device of `x`."""
    dtype, device = x.dtype, x.device
    return lambda value: torch.tensor(value, dtype=dtype, device=device)


def first_values(network: Network, x: Tensor) -> list[Tensor]:
    """A cell's own initial states, [N, size]."""
    return [
        x.new_full((x.shape[1], size), state.init) for state, size in zip(network.graph.states, network.state_sizes, strict=True)
    ]


# autograd


@dataclass(frozen=True)
class Shape:
    """How the flat arguments of an autograd function are made up."""

    number: int
    inputs: int
    first: int
    seeded: bool

    def parts(self, tensors: Tensors) -> tuple[Tensors, Tensors, Tensors, Tensor | None]:
        """Inputs, first states, sources, seed."""
        middle, end = self.inputs + self.first, len(tensors) - self.seeded
        return tensors[: self.inputs], tensors[self.inputs : middle], tensors[middle:end], tensors[end] if self.seeded else None


known_shape = lru_cache(maxsize=1024)(Shape)


def _save(ctx: Any, shape: Shape, tensors: Tensors, reserve: Tensor) -> None:
    ctx.shape = shape
    ctx.save_for_backward(*tensors, reserve)
    ctx.set_materialize_grads(False)


def _gradients(
    ctx: Any, d_output: Tensor | None, d_last: Sequence[Tensor | None], function: type[Any]
) -> tuple[Tensor | None, ...]:
    *tensors, reserve = ctx.saved_tensors
    if d_output is None and all(d is None for d in d_last):
        return (None,) * (1 + len(tensors))
    wanted = ctx.needs_input_grad[1:]
    if not torch.is_grad_enabled():  # nobody asks for a derivative of the gradient
        return None, *_run_gradient(ctx.shape, wanted, len(d_last), (d_output, *d_last, *tensors, reserve))
    return None, *function.apply(ctx.shape, wanted, len(d_last), d_output, *d_last, *tensors, reserve)


class Plain(torch.autograd.Function):
    """Forward by the operator, backward by the operator; for eager mode and torch.compile."""

    @staticmethod
    def forward(ctx: Any, shape: Shape, *tensors: Tensor) -> tuple[Tensor, ...]:
        forward = run_forward if direct(*tensors) else torch.ops.anyrnn.forward
        output, last, reserve = forward(*shape.parts(tensors), shape.number, True)
        assert reserve is not None
        _save(ctx, shape, tensors, reserve)
        return output, *last

    @staticmethod
    def backward(ctx: Any, d_output: Tensor | None, *d_last: Tensor | None) -> Any:
        return _gradients(ctx, d_output, d_last, PlainGradient)


def _wanted_kinds(shape: Shape, wanted: Sequence[bool]) -> list[bool]:
    inputs, first, sources, _ = shape.parts(wanted)  # type: ignore[arg-type]
    return [any(inputs), any(first), any(sources)]


def _run_gradient(
    shape: Shape, wanted: Sequence[bool], states: int, tensors: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """`tensors`: the output's cotangent, the last states', then what the forward function was given, then the reserve."""
    d_output, d_last, given, reserve = tensors[0], tensors[1 : 1 + states], tensors[1 + states : -1], tensors[-1]
    inputs, _, sources, seed = shape.parts(given)  # type: ignore[arg-type]
    kinds = _wanted_kinds(shape, wanted)
    assert reserve is not None
    backward = run_backward if direct(reserve) else torch.ops.anyrnn.backward
    d_inputs, d_first, d_sources = backward(inputs, sources, seed, reserve, d_output, list(d_last), shape.number, kinds)
    nothing = [None] * len(given)
    flat = [*(d_inputs or nothing[: shape.inputs]), *(d_first or nothing[: shape.first])]
    flat += [*(d_sources or nothing[: len(sources)]), *nothing[: shape.seeded]]
    return tuple([g if want else None for g, want in zip(flat, wanted, strict=True)])


class PlainGradient(torch.autograd.Function):
    """The backward operator; its own derivative is the interpreter's."""

    @staticmethod
    def forward(ctx: Any, shape: Shape, wanted: Sequence[bool], states: int, *tensors: Tensor | None) -> Any:
        ctx.shape, ctx.wanted, ctx.states = shape, wanted, states
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return _run_gradient(shape, wanted, states, tensors)

    @staticmethod
    def backward(ctx: Any, *d_gradients: Tensor | None) -> Any:
        return None, None, None, *_second_order(ctx.shape, ctx.wanted, ctx.states, ctx.saved_tensors[:-1], d_gradients), None


def interpreted_gradient(
    shape: Shape, wanted: Sequence[bool], states: int, tensors: Sequence[Tensor | None]
) -> tuple[Tensor, ...]:
    """The same as the backward operator by torch's own operators, for the gradients that are wanted.

    `tensors`: the output's cotangent, the last states', then what the forward function was given.
    """
    cotangents = tensors[: 1 + states]
    given: list[Any] = list(tensors[1 + states :])
    differentiable = given[:-1] if shape.seeded else given
    seeds = given[len(differentiable) :]
    results, pull = torch.func.vjp(lambda *g: interpreted(shape.number, *shape.parts((*g, *seeds))), *differentiable)[:2]
    gradients = pull(tuple(torch.zeros_like(r) if c is None else c for r, c in zip(results, cotangents, strict=True)))
    return tuple(g for g, want in zip(gradients, wanted, strict=False) if want)


def _of_present(function: Callable[[list[Any]], Any], tensors: Sequence[Tensor | None]) -> tuple[Any, list[Tensor], list[int]]:
    """A function of a list of tensors as one of those that are there and have derivatives; those, and their places."""
    places = [k for k, t in enumerate(tensors) if t is not None and t.is_floating_point()]

    def of_present(*present: Tensor) -> Any:
        full = list(tensors)
        for place, tensor in zip(places, present, strict=True):
            full[place] = tensor
        return function(full)

    return of_present, [t for t in tensors if t is not None and t.is_floating_point()], places


def _spread(found: Sequence[Tensor], places: Sequence[int], count: int) -> tuple[Tensor | None, ...]:
    """`count` values: those found, at their places."""
    by_place = dict(zip(places, found, strict=True))
    return tuple(by_place.get(k) for k in range(count))


def _second_order(
    shape: Shape, wanted: Sequence[bool], states: int, tensors: Sequence[Tensor | None], d_gradients: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """The derivative of a backward call, by differentiating the interpreter twice; what it gives can be differentiated again."""
    asked = [w and d is not None for w, d in zip(wanted, d_gradients, strict=True)]
    if not any(asked):
        return (None,) * len(tensors)
    function, present, places = _of_present(lambda full: interpreted_gradient(shape, asked, states, full), tensors)
    _, pull = torch.func.vjp(function, *present)[:2]
    found = pull(tuple(d for d, a in zip(d_gradients, asked, strict=True) if a))
    return _spread(found, places, len(tensors))


class Transformed(torch.autograd.Function):
    """The same under torch.func's transforms."""

    @staticmethod
    def forward(shape: Shape, *tensors: Tensor) -> tuple[Tensor, ...]:
        output, last, reserve = torch.ops.anyrnn.forward(*shape.parts(tensors), shape.number, True)
        return output, *last, reserve

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        shape, *tensors = inputs
        _save(ctx, shape, tensors, output[-1])
        ctx.save_for_forward(*tensors)
        ctx.mark_non_differentiable(output[-1])

    @staticmethod
    def backward(ctx: Any, d_output: Tensor | None, *d_rest: Tensor | None) -> Any:
        return _gradients(ctx, d_output, d_rest[:-1], TransformedGradient)

    @staticmethod
    def jvp(ctx: Any, _shape: None, *tangents: Tensor | None) -> Any:
        primals = ctx.saved_tensors[: len(tangents)]
        shape = ctx.shape
        seeds = primals[len(primals) - shape.seeded :]
        primals = primals[: len(primals) - shape.seeded]
        moving = [t if t is not None else torch.zeros_like(p) for p, t in zip(primals, tangents, strict=False)]
        out = torch.func.jvp(
            lambda *given: interpreted(shape.number, *shape.parts((*given, *seeds))), tuple(primals), tuple(moving)
        )[1]
        return *out, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, shape: Shape, *tensors: Tensor) -> Any:
        def one(*parts: Tensor) -> tuple[Tensor, ...]:
            return *interpreted(shape.number, *shape.parts(parts)), parts[0].new_empty(0, dtype=torch.uint8)

        return torch.vmap(one, in_dims[1:], randomness=info.randomness)(*tensors), (0,) * (
            2 + len(CALLS[shape.number].network.state_sizes)
        )


class TransformedGradient(torch.autograd.Function):
    """The backward operator under torch.func's transforms."""

    @staticmethod
    def forward(shape: Shape, wanted: Sequence[bool], states: int, *tensors: Tensor | None) -> Any:
        return _run_gradient(shape, wanted, states, tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.shape, ctx.wanted, ctx.states, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *d_gradients: Tensor | None) -> Any:
        return None, None, None, *_second_order(ctx.shape, ctx.wanted, ctx.states, ctx.saved_tensors[:-1], d_gradients), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, shape: Shape, wanted: Sequence[bool], states: int, *tensors: Tensor | None) -> Any:
        def one(*parts: Tensor | None) -> tuple[Tensor, ...]:
            return interpreted_gradient(shape, wanted, states, parts[:-1])

        found = torch.vmap(one, in_dims[3:], randomness=info.randomness)(*tensors)
        return _spread(found, [k for k, w in enumerate(wanted) if w], len(wanted)), tuple(0 if w else None for w in wanted)

    @staticmethod
    def jvp(ctx: Any, _shape: None, _wanted: None, _states: None, *tangents: Tensor | None) -> Any:
        wanted, tensors = ctx.wanted, ctx.saved_tensors[:-1]
        function, present, places = _of_present(lambda full: interpreted_gradient(ctx.shape, wanted, ctx.states, full), tensors)
        moving = [torch.zeros_like(p) if tangents[k] is None else tangents[k] for p, k in zip(present, places, strict=True)]
        found = torch.func.jvp(function, tuple(present), tuple(moving))[1]
        return _spread(found, [k for k, w in enumerate(wanted) if w], len(wanted))


def direct(*tensors: Tensor) -> bool:
    """Whether the kernels may be called without torch's dispatcher, which costs more than a small call: nothing traces, and the
    tensors are plain ones.
    """
    return not is_compiling() and PLAIN_TENSORS.issuperset(map(type, tensors)) and not torch._C._len_torch_dispatch_stack()


PLAIN_TENSORS = frozenset((Tensor, torch.nn.Parameter))


def call_network(
    number: int, inputs: Tensors, first: Tensors, sources: Tensors, seed: Tensor | None
) -> tuple[Tensor, Sequence[Tensor]]:
    """The output and the last states, through the kernels, with whatever gradient is asked for."""
    transformed = are_functorch_transforms_active()
    if forward_ad._current_level >= 0 and not transformed:  # in forward mode
        output, *last = interpreted(number, inputs, first, sources, seed)
        return output, last
    if not transformed and not (torch.is_grad_enabled() and any(t.requires_grad for t in (*inputs, *first, *sources))):
        forward = run_forward if direct(*inputs, *first, *sources) else torch.ops.anyrnn.forward
        output, last, _ = forward(inputs, first, sources, seed, number, False)
        return output, last
    shape = (Shape if is_compiling() else known_shape)(number, len(inputs), len(first), seed is not None)
    seeds = () if seed is None else (seed,)
    if transformed:
        output, *last, _ = Transformed.apply(shape, *inputs, *first, *sources, *seeds)
    else:
        output, *last = Plain.apply(shape, *inputs, *first, *sources, *seeds)
    return output, last
