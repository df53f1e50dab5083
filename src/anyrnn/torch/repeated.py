"""Calls like one that was made before, in which nothing has to be looked at again: at least half of what a small call costs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch._C import _len_torch_dispatch_stack as count_dispatch_modes
from torch.autograd import forward_ad

from anyrnn._memory import ALIGNMENT
from anyrnn.backends import bfloat16
from anyrnn.backends.llvm import run as llvm
from anyrnn.torch import autograd, kernels, plain, taped
from anyrnn.torch.calls import WIDE, Tensors
from anyrnn.torch.loops import LEAST_BYTES, Joined, Loop, Loops, Pending
from anyrnn.torch.memory import readable

if TYPE_CHECKING:
    from anyrnn.torch.base import Mode, RecurrentBase

IS_NESTED = Tensor.is_nested.__get__  # type: ignore[attr-defined]
"""Guards that meet a nested tensor end the process."""
MOST_CALLS, REFILL = 16, 32
"""How often a module remembers another call, which takes longer than to look at one, before as many others have been made for
each: where calls are never alike for long, that is what it spends on them.
"""
MOST_KINDS, MOST_SEEN = 64, 1024
"""Of calls that are remembered, the latest, and of those that have been made once."""
MOST_ALIKE = 2
"""Calls of one kind that are remembered, the latest first, and backward calls. In loops the first is often unlike all others: its
states are views, or were made outside of `torch.inference_mode`; the last output's cotangent is a part of that of all outputs.
"""
MOST_BACKWARD_CALLS = 16
"""The same of the backward calls of one that is remembered, of those that share their weights apart from others."""


@dataclass(frozen=True)
class Repeated:
    """A call of samples that have all steps, with an input, maybe first states, and no other argument."""

    mode: Mode
    rounds: bool
    """whether products are of numbers rounded to bfloat16"""
    asks: Callable[[], bool] | None
    """tells whether they would be now, where that may have changed"""
    like: Callable[..., bool]
    """whether input, first states and sources are what they were, in all but their numbers; and whether autocast is on"""
    batch_first: bool
    fixed: Sequence[Tensor | None] | None
    """the sources that are no parameters, in the places of all, where these follow from no parameter"""
    parameters: frozenset[str]
    """their names, where `fixed` is None"""
    run: Callable[[Tensor, Tensors, Tensors, int], tuple[Tensor, Tensors]]
    """gives the output and the last states, of the input [T, N, D], first states, sources, and the module's promise; of cells
    all without the sides of steps and units
    """

    def __call__(self, module: RecurrentBase, input: Any, hx: Any, computed: list[Tensors]) -> tuple[Tensor, Tensors] | None:
        """The output and the last states as the module gives them; None if the call is not like it. `computed`: the sources that
        another has computed for the same call, which is done once.
        """
        if (
            module._modes[module.training] is not self.mode
            or plain.is_transformed()
            or count_dispatch_modes()
            or module.backend == "reference"
            or (self.asks is not None and self.asks() is not self.rounds)
        ):
            return None
        first = () if hx is None else hx if type(hx) is tuple and hx else (hx,)
        sources: Any
        if self.fixed is not None:
            sources = list(map(module._parameters.get, self.mode.source_names, self.fixed))
        elif self.parameters <= module._parameters.keys():
            if not computed:
                computed.append(module._sources(self.mode, None, input)[0])
            (sources,) = computed
        else:  # a parametrisation, which computes, and maybe draws, only once in a call
            return None
        try:
            if any(map(IS_NESTED, (input, *first, *sources))) or not self.like(input, *first, *sources):
                return None
        except TypeError:  # another number of states, or what is no tensor
            return None
        x = input.transpose(0, 1) if self.batch_first else input
        output, last = self.run(x, first, sources, module._frozen)
        return output.transpose(0, 1) if self.batch_first else output, last


Kind = tuple[Any, ...]
"""Of calls that a module remembers apart: whether gradients are enabled, whether the input has one, whether the last of the first
states has one (None where there are none), and the input's shape.
"""


@dataclass
class Earlier:
    """What a module remembers of its calls, by their kind."""

    repeated: dict[Kind, tuple[Repeated, ...]] = field(default_factory=dict)
    seen: set[Kind] = field(default_factory=set)
    """those of calls that were noted"""
    noted: int = 0
    left: int = MOST_CALLS
    loops: Loops = field(default_factory=Loops)

    def __reduce__(self) -> tuple[type[Earlier], tuple[()]]:
        """A copy remembers nothing. (Modules leave it out of theirs, but torch copies those with parametrisations whole.)"""
        return Earlier, ()

    def find(self, input: Any, hx: Any) -> tuple[Repeated, ...]:
        """What a call with such an input and first states may be like."""
        if not self.repeated or type(input) is not Tensor or input.is_nested:
            return ()
        last = hx[-1] if type(hx) is tuple and hx else hx
        kind = torch.is_grad_enabled(), input.requires_grad, getattr(last, "requires_grad", None), input.shape
        return self.repeated.get(kind, ())

    def note(
        self, module: RecurrentBase, mode: Mode, input: Tensor, first: Tensors, sources: Tensors, of_step: bool = False
    ) -> None:
        """A call that was just made. Of those of one kind the second is remembered, and later ones that are not like it.
        `of_step`: the tensors have no sides of steps and units.
        """
        self.noted += 1
        if not self.noted % REFILL:
            self.left = min(self.left + 1, MOST_CALLS)
        kind = torch.is_grad_enabled(), input.requires_grad, first[-1].requires_grad if first else None, input.shape
        if kind in self.seen and self.left:
            self.left -= 1
            repeated = _remembered(module, mode, kind[0], input, first, sources, of_step, self.loops)
            if repeated is not None:
                self.repeated[kind] = (repeated, *self.repeated.get(kind, ()))[:MOST_ALIKE]
            if len(self.repeated) > MOST_KINDS:
                self.repeated.pop(next(iter(self.repeated)), None)
        if len(self.seen) == MOST_SEEN:
            self.seen.clear()
        self.seen.add(kind)


def _remembered(
    module: RecurrentBase, mode: Mode, grad: bool, input: Tensor, first: Tensors, sources: Tensors, of_step: bool, loops: Loops
) -> Repeated | None:
    """The call, if one like it needs no look: kernels ran it as one call, on tensors as they are."""
    number, *_ = module._numbers(mode, input, all_states=False, ends=False)
    tensors = (input, *first, *sources)
    network = mode.network
    fits = not mode.draws and network.is_one_call and network.merge != "separate" and not network.learned_state
    plain_call = fits and input.dim() == (2 if of_step else 3) and all(map(Tensor.is_contiguous, sources))
    if not plain_call or plain.is_transformed() or module._why_not_native(input) is not None:
        return None
    if not all(t.dtype is input.dtype for t in tensors) or not plain.direct(*tensors):
        return None
    like = plain.likeness(*tensors)
    trains = grad and any(t.requires_grad for t in tensors)
    if like is plain.unknown:
        return None
    x = input.transpose(0, 1) if module.batch_first else input
    if of_step:
        x, first = input.unsqueeze(0), [t.unsqueeze(0) for t in first]
    repeat: kernels.Repeat | taped.Repeat | None
    if module._on_triton(input):
        repeat = None if of_step else taped.repeat(number, trains, x, first, sources)
    else:
        repeat = kernels.repeat(number, trains, 0 if trains else module._frozen, x, first, of_step)
    if repeat is None:
        return None
    joins = of_step and isinstance(repeat, kernels.Repeat) and sum(t.nbytes for t in sources) >= LEAST_BYTES
    run: Any = TrainingRepeat(repeat, len(first), of_step, loops if joins else None) if trains else repeat.infer
    fixed = None
    if mode.phase is None or not mode.phase.reads:
        made = {w.name for w in network.plan.phase.computed}
        names = network.sources * len(network.units)
        fixed = [source if name in made else None for name, source in zip(names, sources, strict=True)]
    asks: Callable[[], bool] | None = None
    products = module._made_of(input)
    if input.dtype is WIDE and input.is_cpu and products != "int8" and llvm.multiplies_pairs():
        # guards tell whether autocast is on, and not to which dtype
        asks = bfloat16.allowed if torch.is_autocast_enabled("cpu") else bfloat16.is_set
    return Repeated(
        mode,
        products == "bfloat16",
        asks,
        like,
        module.batch_first,
        fixed,
        frozenset(itertools.chain(*module._parameter_names)),
        run,
    )


class KnownBackward(NamedTuple):
    """A backward call that is remembered."""

    like: Callable[..., bool]
    """whether what was saved and the cotangents are what they were, in all but their numbers"""
    backward: kernels.RepeatBackward | taped.RepeatBackward
    joined: Joined | None
    """of one that shares its weights with others"""


class TrainingRepeat:
    """Calls with a gradient like one that was made, and what is known of their backward calls."""

    def __init__(self, forward: kernels.Repeat | taped.Repeat, first: int, of_step: bool, loops: Loops | None) -> None:
        """`loops`: for cells whose calls may be those of a loop."""
        self.forward, self.first = forward, first
        self.layout = autograd.known_layout(forward.number, 1, first, False, None, None, of_step)
        self.known: dict[tuple[object, ...], tuple[KnownBackward, ...]] = {}
        self.left = MOST_BACKWARD_CALLS
        self.loops = loops

    def __call__(self, x: Tensor, first: Tensors, sources: Tensors, frozen: int) -> tuple[Tensor, Tensors]:
        loop = None if self.loops is None else self.loops.find(sources)
        sources = sources if loop is None or loop.shared is None else loop.shared
        output, *last = APPLY((self, loop), x, *first, *sources)
        return output, last

    def parts(self, tensors: Tensors) -> tuple[Tensor, Tensors, Tensors]:
        """The input, first states, sources."""
        middle = 1 + self.first
        return tensors[0], tensors[1:middle], tensors[middle:]

    def gradients(
        self,
        wanted: tuple[bool, ...],
        saved: Tensors,
        cotangents: Sequence[Tensor | None],
        pending: Pending | None,
        stays: bool,
    ) -> tuple[Tensor | None, ...] | None:
        """What the backward pass gives; None if it is not like one that was made. `wanted` are all that autograd asks for, of
        which the first is no tensor. With `pending` the sources' gradients are left there, where `stays` to be summed later.
        """
        key = (wanted, pending is None, *[d is None for d in cotangents])
        several = self.known.get(key)
        if several is None or torch.is_grad_enabled() or forward_ad._current_level >= 0 or count_dispatch_modes():
            return None
        given, *read, reserve = [d for d in cotangents if d is not None], *saved
        if any(map(IS_NESTED, given)) or reserve.data_ptr() % ALIGNMENT:
            return None
        known = next((one for one in several if one.like(*saved, *given)), None)
        if known is None:
            return None
        x, first, sources = self.parts(read)
        if pending is not None and stays and known.joined is not None:
            d_inputs, d_first = pending.now().run(known.joined, x, sources, reserve, given)
            d_sources: list[Tensor] = []
        else:
            d_inputs, d_first, d_sources = known.backward.run(x, first, sources, reserve, given)
            if pending is not None and d_sources:
                pending.now().add(d_sources)
                d_sources = []
        found = [None, *(d_inputs or (None,)), *(d_first or (None,) * len(first)), *(d_sources or (None,) * len(sources))]
        return tuple([g if want else None for g, want in zip(found, wanted, strict=True)])

    def other_gradients(
        self, ctx: Any, saved: Tensors, cotangents: Sequence[Tensor | None], pending: Pending | None
    ) -> tuple[Tensor | None, ...]:
        """The same of any backward pass, which is remembered. With `pending` it leaves gradients of sources there, if it can."""
        found = autograd.gradients(ctx, saved, cotangents[0], cotangents[1:], autograd.PlainGradient)
        of_sources = found[2 + self.first :]
        if pending is not None and autograd.kernels_run(*saved, *cotangents) and any(d is not None for d in of_sources):
            pending.now().add(of_sources)
            found = (*found[: 2 + self.first], *[None] * len(of_sources))
        x, first, sources = self.parts(saved[:-1])
        in_rows = all(map(Tensor.is_contiguous, (*sources, saved[-1])))  # if no hook has changed them
        if self.left and in_rows and autograd.kernels_run(*saved, *cotangents):
            self.left -= 1
            middle, wanted = 1 + self.first, ctx.needs_input_grad
            like = plain.likeness(*saved, *[d for d in cotangents if d is not None])
            kinds = (wanted[1], any(wanted[2 : 1 + middle]), any(wanted[1 + middle :]))
            given, of_step = cotangents, self.layout.of_step
            if of_step:
                x, given = x.unsqueeze(0), [d if d is None else d.unsqueeze(0) for d in given]
            backward: kernels.RepeatBackward | taped.RepeatBackward | None
            if isinstance(self.forward, taped.Repeat):
                backward = taped.repeat_backward(self.forward.number, x, first, sources, saved[-1], given, kinds)
            else:
                backward = kernels.repeat_backward(self.forward.number, x, sources, not first, given, kinds, of_step)
            if backward is not None and like is not plain.unknown:
                key = (wanted, pending is None, *[d is None for d in cotangents])
                joined = None
                if pending is not None and self.loops is not None and isinstance(backward, kernels.RepeatBackward) and kinds[2]:
                    joined = self.loops.joined(backward)
                self.known[key] = (KnownBackward(like, backward, joined), *self.known.get(key, ()))[:MOST_ALIKE]
        return found


class PlainRepeat(torch.autograd.Function):
    """As `autograd.Plain`, of a call that is remembered."""

    @staticmethod
    def forward(ctx: Any, call: tuple[TrainingRepeat, Loop | None], *tensors: Tensor) -> tuple[Tensor, ...]:
        """`call`: what it is like, and the loop that it is a part of."""
        repeat, ctx.loop = call
        ctx.repeat, ctx.pending = repeat, None if ctx.loop is None else ctx.loop.pending
        parts = repeat.parts(tensors)
        if ctx.pending is None:
            output, last, reserve = repeat.forward.train(*parts)
        else:
            assert isinstance(repeat.forward, kernels.Repeat)  # others are parts of no loop
            output, last, reserve = repeat.forward.train(*parts, parameters=ctx.loop.sources)
            ctx.places = list(map(Tensor.data_ptr, (*tensors, reserve)))
        autograd.save(ctx, repeat.layout, tensors, reserve)
        return output, *last

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
        saved, repeat = ctx.saved_tensors, ctx.repeat
        if ctx.loop is not None:
            ctx.loop.goes_on = False
        # a sum's are one number for all features, by which no call would be like another
        cotangents = tuple([d if d is None else readable(d) for d in cotangents])
        # What a hook of autograd's has kept elsewhere may be others' by the time that it is summed, or differ from call to call.
        # A leaf may be stepped as soon as its gradient has come.
        in_place = ctx.pending is not None and ctx.places == list(map(Tensor.data_ptr, saved))
        stays = in_place and not (saved[0].is_leaf and saved[0].requires_grad)
        found = repeat.gradients(ctx.needs_input_grad, saved, cotangents, ctx.pending, stays)
        return found if found is not None else repeat.other_gradients(ctx, saved, cotangents, ctx.pending)


APPLY = super(torch.autograd.Function, PlainRepeat).apply
"""What `PlainRepeat.apply` comes to where nothing is transformed, and no tensor is what a transformation has left behind: none of
these is plain, nor to torch's guards like one that is.
"""
