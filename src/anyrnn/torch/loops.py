"""Calls of a cell that share their weights, as a loop has them. Autograd adds up gradients call by call, and each call packs the
weights: for large ones both take longer than the steps. So the calls of a loop get their weights from one node of the graph.
Their backward passes leave what its own sums up for many steps at once, and it is done when all of theirs are. No bit depends on
it: calls are added up in the order in which autograd would add them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C import _current_graph_task_id as current_pass
from torch.autograd import Variable

from anyrnn.backends.llvm import run as llvm
from anyrnn.backends.llvm.joint import Left, Steps, taken
from anyrnn.backends.llvm.memory import Packed
from anyrnn.backends.llvm.pools import Pool
from anyrnn.torch.calls import Tensors
from anyrnn.torch.kernels import Repeat, RepeatBackward, new_gradients
from anyrnn.torch.packed_weights import VERSION

NEEDS_GRADIENT = Tensor.requires_grad.__get__  # type: ignore[attr-defined]
LEAST_BYTES = 2**16
"""Of the weights: what is looked after for a loop takes longer than fewer are packed and added to."""


class Kind(NamedTuple):
    """Backward calls that leave their weights' gradients to be summed."""

    backward: RepeatBackward
    steps: Steps
    pool: Pool


@dataclass
class Pass:
    """What a backward pass has done: the sums so far, and the calls that are not in them yet, the latest step first. They are of
    kinds whose buffers stand alike; `packed` are the weights for such.
    """

    total: list[Tensor | None] | None = None
    kind: Kind | None = None
    left: list[Left] = field(default_factory=list)
    alive: list[Tensors] = field(default_factory=list)
    """what their sums read, for as long"""
    packed: dict[Steps, Packed] = field(default_factory=dict)

    def run(
        self, kind: Kind, x: Tensor, sources: Tensors, reserve: Tensor, cotangents: Tensors
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Gradients of the input and the first states of a call."""
        backward, steps, pool = kind
        if self.kind is not None and self.kind.steps is not steps:
            self.add_up()
        self.kind = kind
        packed = self.packed.get(steps)
        if packed is None:
            packed = self.packed[steps] = steps.pack(pool)
        d_input, d_first, left = backward.of_step(x, sources, reserve, cotangents, partial(steps.call, pool, packed=packed))
        self.left.append(left)
        self.alive.append((x, reserve))
        if len(self.left) >= steps.most:
            self.add_up()
        return d_input, d_first

    def add_up(self) -> None:
        """Those that are not in the sums yet."""
        if self.kind is None or not self.left:
            return
        (backward, steps, _), before = self.kind, self.total if self.kind.steps.adds else None
        found = new_gradients((), backward.d_sources, self.alive[0][0].dtype)
        if before is not None:  # what nobody wants may not be there
            found = [new.zero_() if total is None else total for new, total in zip(found, before, strict=True)]
        steps.add_up(self.left, [g.data_ptr() for g in found], before is not None)
        self.left.clear()
        self.alive.clear()
        if before is None:
            self.add(found)

    def add(self, found: Sequence[Tensor | None]) -> None:
        """What a call has made itself, or the sum of several; new tensors, which may be kept."""
        self.add_up()
        if self.total is None:
            self.total = list(found)
        else:
            pairs = zip(self.total, found, strict=True)
            self.total = [b if a is None else a if b is None else a.add_(b) for a, b in pairs]

    def done(self) -> None:
        for steps, packed in self.packed.items():
            steps.packed.append(packed)
        if self.kind is not None:
            self.kind.steps.scratch += [left.scratch for left in self.left]


class Pending:
    """What backward passes have left to be summed up, by their numbers."""

    def __init__(self) -> None:
        self.passes: dict[int, Pass] = {}

    def now(self) -> Pass:
        """Of the pass that runs now."""
        number = current_pass()
        found = self.passes.get(number)
        if found is None:
            Variable._execution_engine.queue_callback(partial(self._end, number))
            found = self.passes[number] = Pass()
        return found

    def total(self) -> list[Tensor | None] | None:
        """The sources' gradients of all calls of the pass; None where there are none."""
        found = self.passes.get(current_pass())
        if found is None:
            return None
        found.add_up()
        total, found.total = found.total, None
        return total

    def _end(self, number: int) -> None:
        found = self.passes.pop(number, None)
        if found is not None:
            found.done()


class Shared(torch.autograd.Function):
    """Weights as a loop's calls get them."""

    @staticmethod
    def forward(ctx: Any, pending: Pending, *sources: Tensor) -> tuple[Tensor, ...]:
        ctx.pending = pending
        ctx.set_materialize_grads(False)
        same = tuple([source.detach() for source in sources])
        ctx.mark_non_differentiable(*[t for t, source in zip(same, sources, strict=True) if not source.requires_grad])
        return same

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> Any:
        """`given`: of calls that did not leave theirs to be summed, as somebody asks for a derivative of them."""
        total: Sequence[Tensor | None] = ctx.pending.total() or [None] * len(given)
        wanted = ctx.needs_input_grad[1:]
        sums = [a if b is None else b if a is None else a + b for a, b in zip(total, given, strict=True)]
        return None, *[g if want else None for g, want in zip(sums, wanted, strict=True)]


class Loop:
    """Calls with the same weights, as long as one of them is in a graph, and until the first backward pass."""

    __slots__ = ("__weakref__", "goes_on", "like", "pending", "shared", "sources")

    def __init__(self) -> None:
        self.goes_on = True
        self.like: list[object] | None = None
        self.pending: Pending | None = None
        self.shared: Tensors | None = None

    def share(self, sources: Tensors, like: list[object]) -> None:
        self.sources, self.like, self.pending = sources, like, Pending()
        self.shared = Shared.apply(self.pending, *sources)


def likeness(sources: Tensors) -> list[object]:
    """What tells whether weights are the same, as far as autograd has to know. Setting `data` changes no version."""
    return [f(source) for f in (id, VERSION, Tensor.data_ptr, NEEDS_GRADIENT) for source in sources]


class OfThread(threading.local):
    """A thread's last loop, and whether it had more than one call: so will the next."""

    latest: weakref.ref[Loop] | None = None
    expects = False


class Loops:
    """Finds the loop that a module's call is a part of."""

    def __init__(self) -> None:
        self.of_thread = OfThread()
        self.steps: dict[object, Steps | None] = {}
        self.packs: dict[bool, list[Packed]] = {True: [], False: []}
        """What forward calls have packed, by whether they are of one sample, which read some weights where they stand."""

    def find(self, sources: Tensors) -> Loop:
        """The loop of a call with these weights. It is to use those that the loop shares, if there are: there are none yet for a
        call that may be alone, nor where others make the weights.
        """
        here = self.of_thread
        loop = None if here.latest is None else here.latest()
        if loop is not None and loop.goes_on:
            shares = here.expects = True
        else:
            loop, shares = Loop(), here.expects
            here.latest, here.expects = weakref.ref(loop), False
        if shares:
            like = likeness(sources)
            if loop.like is not None and like != loop.like:
                loop = Loop()
                here.latest = weakref.ref(loop)
            if loop.like is None and all(source.is_leaf for source in sources):
                loop.share(sources, like)
        return loop

    def train(self, call: Repeat, x: Tensor, first: Tensors, sources: Tensors) -> tuple[Tensor, list[Tensor], Tensor]:
        """A forward call, for which the weights may be packed already: the native code packs them anew if they look changed."""
        rest, used = self.packs[len(x) == 1], []

        def keep(bytes: int) -> Packed:
            used.append(taken(rest) or Packed(bytes))
            return used[0]

        found = call.train(x, first, sources, keep)
        rest += used
        return found

    def kind(self, backward: RepeatBackward) -> Kind | None:
        """For backward calls like one that was made; None if their gradients cannot be summed together."""
        pool = backward.pool
        alike = pool.network, pool.shape.dtype, pool.shape.extent, pool.shape.inputs
        if alike not in self.steps:
            self.steps[alike] = llvm.steps_like(pool)
        steps = self.steps[alike]
        return None if steps is None else Kind(backward, steps, steps.kind(pool.shape))
