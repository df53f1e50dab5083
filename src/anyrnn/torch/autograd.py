"""The autograd functions that call the operators.

They are two: `Plain`, in eager mode and while torch.compile traces (which refuses a jvp), and `Transformed`, under torch.func's
transforms, which has a jvp and a vmap rule. What no kernel computes (second derivatives, forward mode, vmapped calls) goes
through the interpreter on torch, which is differentiable itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as are_functorch_transforms_active
from torch.autograd import forward_ad
from torch.compiler import is_compiling, is_exporting

from anyrnn.errors import UnsupportedError
from anyrnn.sequence.packing import Packing
from anyrnn.torch.calls import CALLS, Tensors, changed_since
from anyrnn.torch.interpreted import interpreted
from anyrnn.torch.kernels import run_backward, run_forward
from anyrnn.torch.operators import LIBRARY, Counts, as_arguments, as_packing, run_operator
from anyrnn.torch.plain import direct, is_batch, is_plain
from anyrnn.torch.rows import Scatter, taken

T = TypeVar("T")


@dataclass(frozen=True)
class ArgumentLayout:
    """How the flat arguments of an autograd function are made up."""

    number: int
    inputs: int
    first: int
    seeded: bool
    packing: Packing | None = None
    scatter: Scatter | None = None
    of_step: bool = False
    """Inputs, states and outputs have no sides of steps and units: those of a cell's call."""

    def sequences(self, tensors: Tensors) -> Tensors:
        """The same arguments, of a step as those of sequences."""
        if not self.of_step:
            return tensors
        middle = self.inputs + self.first
        return [*[t.unsqueeze(0) for t in tensors[:middle]], *tensors[middle:]]

    def parts(self, tensors: Sequence[T]) -> tuple[Sequence[T], Sequence[T], Sequence[T], T | None]:
        """Inputs, first states, sources, seed; or what is known of each."""
        middle, end = self.inputs + self.first, len(tensors) - self.seeded
        return tensors[: self.inputs], tensors[self.inputs : middle], tensors[middle:end], tensors[end] if self.seeded else None


known_layout = lru_cache(maxsize=1024)(ArgumentLayout)


def interpreted_function(layout: ArgumentLayout, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """What the forward function gives, by torch's own operators."""
    found = interpreted(layout.number, *layout.parts(layout.sequences(tensors)), layout.packing)
    return tuple([t.squeeze(0) for t in found]) if layout.of_step else found


def save(ctx: Any, layout: ArgumentLayout, tensors: Tensors, reserve: Tensor) -> None:
    ctx.layout, ctx.shapes = layout, [t.shape for t in tensors[: layout.inputs + layout.first]]
    ctx.save_for_backward(*tensors, reserve)
    ctx.set_materialize_grads(False)


def gradients(
    ctx: Any, saved: Tensors, d_output: Tensor | None, d_last: Sequence[Tensor | None], function: type[Any]
) -> tuple[Tensor | None, ...]:
    *tensors, reserve = saved
    if d_output is None and all(d is None for d in d_last):
        return (None,) * (1 + len(tensors))
    wanted = ctx.needs_input_grad[1:]
    layout = ctx.layout
    if function is PlainGradient and [t.shape for t in tensors[: len(ctx.shapes)]] != ctx.shapes:
        raise changed_since()
    if layout.scatter is not None and d_output is not None and not kernels_run(d_output, *d_last, *tensors, reserve):
        d_output, layout = taken(d_output, layout.scatter.places), replace(layout, scatter=None)
    if not is_compiling() and not kernels_may_run(d_output, *d_last):
        return None, *_batch_of_gradients(layout, wanted, (d_output, *d_last), tensors)
    under_transforms = not is_compiling() and are_functorch_transforms_active() and function is TransformedGradient
    if not torch.is_grad_enabled() and not under_transforms:  # nobody asks for a derivative of the gradient
        return None, *_run_gradient(layout, wanted, len(d_last), (d_output, *d_last, *tensors, reserve))
    return None, *function.apply(layout, wanted, len(d_last), d_output, *d_last, *tensors, reserve)


def kernels_may_run(*cotangents: Tensor | None) -> bool:
    """Whether cotangents are one each, and no forward mode asks for tangents of the gradients."""
    return forward_ad._current_level < 0 and not any(map(is_batch, cotangents))


def kernels_run(*tensors: Tensor | None) -> bool:
    """Whether a backward call reads these directly, and nobody asks for a derivative of the gradient."""
    present = [t for t in tensors if t is not None]
    return not torch.is_grad_enabled() and kernels_may_run(*present) and direct(*present)


def _batch_of_gradients(
    layout: ArgumentLayout, wanted: Sequence[bool], cotangents: Sequence[Tensor | None], given: Tensors
) -> tuple[Tensor | None, ...]:
    """The gradients by torch's own operators, whatever the cotangents are."""
    if are_functorch_transforms_active():
        found = interpreted_gradient(layout, wanted, len(cotangents) - 1, (*cotangents, *given))
        return _at_wanted(found, wanted)
    again = torch.is_grad_enabled()  # whether somebody asks for a derivative of the gradients
    with torch.enable_grad():
        alike = torch.Tensor.view_as if again else _detached  # views: an argument may depend on another
        leaves = [alike(t, t) if want else t for t, want in zip(given, wanted, strict=True)]
        results = interpreted_function(layout, leaves)
    paired = [(r, c) for r, c in zip(results, cotangents, strict=True) if c is not None and r.requires_grad]
    if not paired:  # a state that counts steps needs nothing
        return tuple(None for _ in wanted)
    asked = [leaf for leaf, want in zip(leaves, wanted, strict=True) if want]
    found = torch.autograd.grad([r for r, _ in paired], asked, [c for _, c in paired], allow_unused=True, create_graph=again)
    return _at_wanted(found, wanted)


def _detached(tensor: Tensor, _: Tensor) -> Tensor:
    return tensor.detach().requires_grad_()


class Plain(torch.autograd.Function):
    """Forward by the operator, backward by the operator; for eager mode and torch.compile."""

    @staticmethod
    def forward(ctx: Any, layout: ArgumentLayout, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = layout.parts(layout.sequences(tensors))
        if direct(*tensors):
            scatter, of_step = layout.scatter, layout.of_step
            output, last, reserve = run_forward(*given, layout.packing, layout.number, True, scatter=scatter, of_step=of_step)
        else:
            output, last, reserve = torch.ops.anyrnn.forward(*given, *as_arguments(layout.packing), layout.number, True)
            if layout.scatter is not None:
                output = layout.scatter.put(output)
            if layout.of_step:  # not as views, which nobody could change in place
                output, last = output.squeeze(0).clone(), [t.squeeze(0).clone() for t in last]
        assert reserve is not None
        save(ctx, layout, tensors, reserve)
        return output, *last

    @staticmethod
    def backward(ctx: Any, d_output: Tensor | None, *d_last: Tensor | None) -> Any:
        return gradients(ctx, ctx.saved_tensors, d_output, d_last, PlainGradient)


def _run_gradient(
    layout: ArgumentLayout, wanted: Sequence[bool], states: int, tensors: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """`tensors`: the output's cotangent, the last states', then what the forward function was given, then the reserve."""
    cotangents = tensors[: 1 + states]
    if layout.of_step:
        cotangents = [d if d is None else d.unsqueeze(0) for d in cotangents]
    d_output, *d_last = cotangents
    *given, reserve = cast("Tensors", tensors[1 + states :])  # only cotangents may be missing
    inputs, first, sources, seed = layout.parts(layout.sequences(given))
    kinds = [any(some) for some in layout.parts(wanted)[:3]]
    rest = (reserve, d_output, d_last, layout.number, kinds)
    if direct(reserve, *[d for d in cotangents if d is not None], *inputs, *first, *sources):
        d_inputs, d_first, d_sources = run_backward(inputs, first, sources, seed, layout.packing, *rest, layout.scatter)
        if layout.of_step:  # in place, as views could not be changed in place by the caller
            d_inputs, d_first = [g.squeeze_(0) for g in d_inputs], [g.squeeze_(0) for g in d_first]
    else:
        d_inputs, d_first, d_sources = torch.ops.anyrnn.backward(
            inputs, first, sources, seed, *as_arguments(layout.packing), *rest
        )
        if layout.of_step:
            d_inputs, d_first = [g.squeeze(0).clone() for g in d_inputs], [g.squeeze(0).clone() for g in d_first]
    nothing = [None] * len(given)
    flat = [*(d_inputs or nothing[: layout.inputs]), *(d_first or nothing[: layout.first])]
    flat += [*(d_sources or nothing[: len(sources)]), *nothing[: layout.seeded]]
    return tuple([g if want else None for g, want in zip(flat, wanted, strict=True)])


class PlainGradient(torch.autograd.Function):
    """The backward operator; its own derivative is the interpreter's."""

    @staticmethod
    def forward(ctx: Any, layout: ArgumentLayout, wanted: Sequence[bool], states: int, *tensors: Tensor | None) -> Any:
        ctx.layout, ctx.wanted, ctx.states = layout, wanted, states
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return _run_gradient(layout, wanted, states, tensors)

    @staticmethod
    def backward(ctx: Any, *d_gradients: Tensor | None) -> Any:
        return None, None, None, *_second_order(ctx.layout, ctx.wanted, ctx.states, ctx.saved_tensors[:-1], d_gradients), None


def interpreted_gradient(
    layout: ArgumentLayout, wanted: Sequence[bool], states: int, tensors: Sequence[Tensor | None]
) -> tuple[Tensor, ...]:
    """The same as the backward operator by torch's own operators, for the gradients that are wanted.

    `tensors`: the output's cotangent, the last states', then what the forward function was given.
    """
    cotangents = tensors[: 1 + states]
    given: list[Any] = list(tensors[1 + states :])
    differentiable = given[:-1] if layout.seeded else given
    seeds = given[len(differentiable) :]
    results, pull = torch.func.vjp(lambda *g: interpreted_function(layout, (*g, *seeds)), *differentiable)[:2]
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


def _spread(found: Sequence[Tensor | None], places: Sequence[int], count: int) -> tuple[Tensor | None, ...]:
    """`count` values: those found, at their places."""
    by_place = dict(zip(places, found, strict=True))
    return tuple(by_place.get(k) for k in range(count))


def _at_wanted(found: Sequence[Tensor | None], wanted: Sequence[bool]) -> tuple[Tensor | None, ...]:
    """The gradients that are wanted, at their places among all."""
    return _spread(found, [k for k, want in enumerate(wanted) if want], len(wanted))


def _second_order(
    layout: ArgumentLayout,
    wanted: Sequence[bool],
    states: int,
    tensors: Sequence[Tensor | None],
    d_gradients: Sequence[Tensor | None],
) -> tuple[Tensor | None, ...]:
    """The derivative of a backward call, by differentiating the interpreter twice; what it gives can be differentiated again."""
    asked = [w and d is not None for w, d in zip(wanted, d_gradients, strict=True)]
    if not any(asked):
        return (None,) * len(tensors)
    function, present, places = _of_present(lambda full: interpreted_gradient(layout, asked, states, full), tensors)
    _, pull = torch.func.vjp(function, *present)[:2]
    found = pull(tuple(d for d, a in zip(d_gradients, asked, strict=True) if a))
    return _spread(found, places, len(tensors))


class Transformed(torch.autograd.Function):
    """The same under torch.func's transforms."""

    @staticmethod
    def forward(layout: ArgumentLayout, *tensors: Tensor) -> tuple[Tensor, ...]:
        output, last, reserve = torch.ops.anyrnn.forward(
            *layout.parts(tensors), *as_arguments(layout.packing), layout.number, True
        )
        return output, *last, reserve

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        layout, *tensors = inputs
        save(ctx, layout, tensors, output[-1])
        ctx.save_for_forward(*tensors)
        ctx.mark_non_differentiable(output[-1])

    @staticmethod
    def backward(ctx: Any, d_output: Tensor | None, *d_rest: Tensor | None) -> Any:
        return gradients(ctx, ctx.saved_tensors, d_output, d_rest[:-1], TransformedGradient)

    @staticmethod
    def jvp(ctx: Any, _layout: None, *tangents: Tensor | None) -> Any:
        primals = ctx.saved_tensors[: len(tangents)]
        layout = ctx.layout
        seeds = primals[len(primals) - layout.seeded :]
        primals = primals[: len(primals) - layout.seeded]
        moving = [t if t is not None else torch.zeros_like(p) for p, t in zip(primals, tangents, strict=False)]
        out = torch.func.jvp(lambda *given: interpreted_function(layout, (*given, *seeds)), tuple(primals), tuple(moving))[1]
        return *out, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, layout: ArgumentLayout, *tensors: Tensor) -> Any:
        def one(*parts: Tensor) -> tuple[Tensor, ...]:
            return *interpreted_function(layout, parts), parts[0].new_empty(0, dtype=torch.uint8)

        return torch.vmap(one, in_dims[1:], randomness=info.randomness)(*tensors), (0,) * (1 + CALLS[layout.number].outputs)


class TransformedGradient(torch.autograd.Function):
    """The backward operator under torch.func's transforms."""

    @staticmethod
    def forward(layout: ArgumentLayout, wanted: Sequence[bool], states: int, *tensors: Tensor | None) -> Any:
        return _run_gradient(layout, wanted, states, tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.layout, ctx.wanted, ctx.states, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *d_gradients: Tensor | None) -> Any:
        return None, None, None, *_second_order(ctx.layout, ctx.wanted, ctx.states, ctx.saved_tensors[:-1], d_gradients), None

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, layout: ArgumentLayout, wanted: Sequence[bool], states: int, *tensors: Tensor | None
    ) -> Any:
        def one(*parts: Tensor | None) -> tuple[Tensor, ...]:
            return interpreted_gradient(layout, wanted, states, parts[:-1])

        found = torch.vmap(one, in_dims[3:], randomness=info.randomness)(*tensors)
        return _at_wanted(found, wanted), tuple(0 if w else None for w in wanted)

    @staticmethod
    def jvp(ctx: Any, _layout: None, _wanted: None, _states: None, *tangents: Tensor | None) -> Any:
        wanted, tensors = ctx.wanted, ctx.saved_tensors[:-1]
        function, present, places = _of_present(lambda full: interpreted_gradient(ctx.layout, wanted, ctx.states, full), tensors)
        moving = [torch.zeros_like(p) if tangents[k] is None else tangents[k] for p, k in zip(present, places, strict=True)]
        found = torch.func.jvp(function, tuple(present), tuple(moving))[1]
        return _at_wanted(found, wanted)


def call_network(
    number: int,
    inputs: Tensors,
    first: Tensors,
    sources: Tensors,
    seed: Tensor | None,
    packing: Packing | None,
    plain_sources: bool,
    frozen: int,
    scatter: Scatter | None = None,
    of_step: bool = False,
) -> tuple[Tensor, Sequence[Tensor]]:
    """The output and the last states, through the kernels, with whatever gradient is asked for. With a `packing`, inputs and
    output are its rows; with a `scatter` the output is all rows of the caller. `plain_sources`: the sources are known to be plain
    and contiguous tensors, and nothing compiles; `frozen`: and they have changed in no way that torch does not count. `of_step`:
    inputs and states have no sides of steps and units, nor have results; for calls with a gradient, in eager mode, on the CPU.
    """
    transformed = are_functorch_transforms_active()
    if scatter is not None and (transformed or forward_ad._current_level >= 0 or not CALLS[number].scatters):
        output, last = call_network(number, inputs, first, sources, seed, packing, plain_sources, frozen)
        return scatter.put(output), last
    if forward_ad._current_level >= 0 and not transformed:  # in forward mode
        output, *last = interpreted(number, inputs, first, sources, seed, packing)
        return output, last
    if not transformed and (is_exporting() or not _is_differentiated(inputs, first, sources)):  # an exported operator has its own
        if is_plain(*inputs, *first) if plain_sources else direct(*inputs, *first, *sources):
            given = (packing, number, False, plain_sources, frozen, scatter)
            output, last, _ = run_forward(inputs, first, sources, seed, *given)
        else:
            output, last, _ = torch.ops.anyrnn.forward(inputs, first, sources, seed, *as_arguments(packing), number, False)
            output = output if scatter is None else scatter.put(output)
        return output, last
    return _differentiable(number, inputs, first, sources, seed, packing, scatter, of_step)


def _has_tangent(tensor: Tensor) -> bool:
    return forward_ad.unpack_dual(tensor).tangent is not None


def _is_differentiated(*arguments: Tensors) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for tensors in arguments for t in tensors)


def _differentiable(
    number: int,
    inputs: Tensors,
    first: Tensors,
    sources: Tensors,
    seed: Tensor | None,
    packing: Packing | None,
    scatter: Scatter | None = None,
    of_step: bool = False,
) -> tuple[Tensor, Sequence[Tensor]]:
    make = ArgumentLayout if is_compiling() or packing is not None else known_layout
    layout = make(number, len(inputs), len(first), seed is not None, packing, scatter, of_step)
    seeds = () if seed is None else (seed,)
    if are_functorch_transforms_active():
        output, *last, _ = Transformed.apply(layout, *inputs, *first, *sources, *seeds)
    else:
        output, *last = Plain.apply(layout, *inputs, *first, *sources, *seeds)
    return output, last


def _differentiable_operator(
    inputs: Tensors,
    first: Tensors,
    sources: Tensors,
    seed: Tensor | None,
    counts: Counts,
    places: Tensor | None,
    number: int,
    keep: bool,
) -> tuple[Tensor, Sequence[Tensor], Tensor]:
    """The operator where autograd sees it: in exported programs, which keep no autograd function. Where a derivative is asked for
    it keeps what that needs by itself, whatever `keep` says, and gives no reserve.
    """
    first, sources = first or [], sources or []  # AOTInductor's packages give None for an empty list
    last: Sequence[Tensor]
    if forward_ad._current_level >= 0 and any(map(_has_tangent, (*inputs, *first, *sources))):
        output, *last = interpreted(number, inputs, first, sources, seed, as_packing(counts, places))
        return output, last, output.new_empty(0, dtype=torch.uint8)
    if _is_differentiated(inputs, first, sources) and not is_exporting():
        if places is None or is_plain(places):
            output, last = _differentiable(number, inputs, first, sources, seed, as_packing(counts, places))
        else:
            output, *last = WithoutGradient.apply(
                (seed, counts, places, number), len(inputs), len(first), *inputs, *first, *sources
            )
        return output, last, output.new_empty(0, dtype=torch.uint8)
    if direct(*inputs, *first, *sources):  # nobody looks on
        return run_operator(inputs, first, sources, seed, counts, places, number, keep)
    with torch._C._AutoDispatchBelowAutograd():
        found: tuple[Tensor, Sequence[Tensor], Tensor] = torch.ops.anyrnn.forward(
            inputs, first, sources, seed, counts, places, number, keep
        )
    return found


class WithoutGradient(torch.autograd.Function):
    """The operator of a program that is taken apart, for samples of different steps, which stand in a tensor that says nothing
    then: no gradient can be made a part of another program.
    """

    @staticmethod
    def forward(ctx: Any, call: tuple[Any, ...], inputs: int, first: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        parts = tensors[:inputs], tensors[inputs : inputs + first], tensors[inputs + first :]
        output, last, _ = torch.ops.anyrnn.forward(*map(list, parts), *call, False)
        return output, *last

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
        what = "a program that was exported with lengths, masks or resets cannot be compiled with gradients: compile the layer"
        raise UnsupportedError(f"anyrnn: {what}")


LIBRARY.impl("forward", _differentiable_operator, "Autograd")
