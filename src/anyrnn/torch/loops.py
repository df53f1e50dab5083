"""Calls of a cell that share their weights, as a loop has them. Autograd adds up gradients call by call, and each call packs the
weights: for large ones both take longer than the steps. So the calls of a loop get their weights from one node of the graph.
Their backward passes leave what its own sums up for many steps at once, and it is done when all of theirs are. Calls are added up
in the order in which autograd adds those of a loop, so that it changes no bit whether they share.
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
from anyrnn.backends.llvm.joint import Joint, Left
from anyrnn.backends.llvm.memory import Packed
from anyrnn.backends.llvm.pools import Pool
from anyrnn.torch.calls import Tensors
from anyrnn.torch.kernels import RepeatBackward, new_gradients
from anyrnn.torch.packed_weights import VERSION

NEEDS_GRADIENT = Tensor.requires_grad.__get__  # type: ignore[attr-defined]
LEAST_BYTES = 2**16
"""Of the weights: to look after a loop takes longer than to pack and to add up fewer."""


class Joined(NamedTuple):
    """Backward calls of one kind that share their weights with others."""

    backward: RepeatBackward
    joint: Joint
    pools: tuple[Pool, Pool]


@dataclass
class Pass:
    """What a backward pass has done: the sums so far; the calls that are not in them yet, the latest step first, and one of them;
    the weights as they are packed, by whose they are and whether gradients of first states are wanted.
    """

    total: list[Tensor | None] | None = None
    is_whole: bool = True
    """whether each call's gradients of all sources are in it: of biases that have one sum, one goes on for all"""
    left: list[Left] = field(default_factory=list)
    read: list[tuple[Tensor, int, Tensor]] = field(default_factory=list)
    """what they have left beside it: the input, its version, and the reserve"""
    like: Joined | None = None
    packed: dict[tuple[Joint, bool], Packed] = field(default_factory=dict)

    def run(
        self, joined: Joined, x: Tensor, sources: Tensors, reserve: Tensor, cotangents: Tensors
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Gradients of the input and the first states of a call."""
        backward, joint, pools = joined
        if self.like is not None and self.like.joint is not joint:
            self.add_up()
        self.like = joined
        key = joint, bool(backward.d_first)

        def call(addresses: list[int]) -> None:
            left, self.packed[key] = joint.call(pools, addresses, self.packed.get(key))
            self.left.append(left)

        d_inputs, d_first, d_sources = backward.run(x, (), sources, reserve, cotangents, call, of_sources=not joint.most)
        if joint.most:
            self.read.append((x.detach(), VERSION(x), reserve))  # not its node, which may be what holds this
            if len(self.left) >= joint.most:
                self.add_up()
        else:
            self._forget_left(joint)
            self.add(d_sources)
        return d_inputs, d_first

    def add_up(self) -> None:
        """Those that are not in the sums yet."""
        if self.like is None or not self.left:
            return
        if any(VERSION(x) != version for x, version, _ in self.read):
            raise RuntimeError(
                "anyrnn: the input of a cell has been modified by an inplace operation in the backward pass, which reads it "
                "when it sums the weights' gradients"
            )
        backward, joint, _ = self.like
        goes_on = self.total is not None and self.is_whole
        found: Any = self.total if goes_on else new_gradients((), backward.d_sources, self.read[0][0].dtype)
        joint.add_up(self.left, [g.data_ptr() for g in found], goes_on)
        self.left, self.read = [], []
        if not goes_on:
            self.add(found)

    def add(self, found: Sequence[Tensor | None]) -> None:
        """What a call has made itself, or the sum of several; new tensors, which may be kept."""
        self.add_up()
        self.is_whole = self.is_whole and all(g is not None for g in found)  # what nobody wants may not be there
        if self.total is None:
            self.total = list(found)
        else:
            pairs = zip(self.total, found, strict=True)
            self.total = [b if a is None else a if b is None else a.add_(b) for a, b in pairs]

    def _forget_left(self, joint: Joint) -> None:
        joint.done(self.left)
        self.left = []

    def end(self) -> None:
        if self.like is not None:
            self._forget_left(self.like.joint)


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
            found.end()


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
        self.shared: Tensors | None = None
        """the weights for further calls"""
        self.sources: Tensors | None = None
        """those that they are"""
        self.like: list[object] | None = None
        self.pending: Pending | None = None

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
    """The loops that a module's calls are parts of."""

    def __init__(self) -> None:
        self.of_thread = OfThread()
        self.joints: dict[object, Joint | None] = {}

    def find(self, sources: Tensors) -> Loop:
        """The loop of a call with these weights, which uses those that the loop shares, if there are.

        There are from a loop's second call on, or from its first where the last loop had several: a call that is alone would gain
        nothing by the node. There are none where weights are made by others: they are made anew for each call.
        """
        here = self.of_thread
        loop = None if here.latest is None else here.latest()
        if loop is not None and loop.goes_on:
            shares = here.expects = True
        else:
            loop, shares, here.expects = Loop(), here.expects, False
        if shares:
            like = likeness(sources)
            if loop.like is not None and loop.like != like:
                loop = Loop()
            if loop.like is None and all(source.is_leaf for source in sources):
                loop.share(sources, like)
        here.latest = weakref.ref(loop)
        return loop

    def joined(self, backward: RepeatBackward) -> Joined | None:
        """For backward calls like one that was made, if they can share their weights with others."""
        pool = backward.pool
        alike = pool.network, pool.shape.dtype, pool.shape.extent, pool.shape.inputs
        if alike not in self.joints:
            self.joints[alike] = llvm.joint(pool)
        joint = self.joints[alike]
        return None if joint is None else Joined(backward, joint, joint.pools_of(pool.shape))
