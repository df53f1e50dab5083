"""Calls like one that was made before, in which nothing has to be looked at again: of small calls that is half of the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as are_functorch_transforms_active
from torch._C import _len_torch_dispatch_stack as count_dispatch_modes
from torch.autograd import forward_ad

from anyrnn.torch import autograd, operators, plain

if TYPE_CHECKING:
    from anyrnn.torch.base import Mode, RecurrentBase

MOST_CALLS = 16
"""How often a module remembers another call, which takes longer than to look at one. Where calls are never alike for long, it
stops.
"""


@dataclass(frozen=True)
class Again:
    """A call of samples that have all steps, with an input, maybe first states, and no other argument."""

    mode: Mode
    like: Callable[..., bool]
    """whether input, first states and sources are what they were, in all but their numbers"""
    batch_first: bool
    run: Callable[[Tensor, Sequence[Tensor], Sequence[Tensor], int], tuple[Tensor, Sequence[Tensor]]]
    """gives the output and the last states, of the input [T, N, D], first states, sources, and the module's promise"""

    def __call__(self, module: RecurrentBase, input: Any, hx: Any) -> tuple[Tensor, Any] | None:
        """What the module gives; None if the call is not like it."""
        first = () if hx is None else hx if type(hx) is tuple and hx else (hx,)
        sources: Any = list(map(module._parameters.get, self.mode.source_names))
        try:
            alike = self.like(input, *first, *sources)
        except TypeError:  # another number of states, or what is no tensor
            return None
        if (
            not alike
            or module._modes[module.training] is not self.mode
            or are_functorch_transforms_active()
            or forward_ad._current_level >= 0
            or count_dispatch_modes()
            or module.backend == "reference"
        ):
            return None
        x = input.transpose(0, 1) if self.batch_first else input
        output, last = self.run(x, first, sources, module._frozen)
        return output.transpose(0, 1) if self.batch_first else output, last[0] if len(last) == 1 else tuple(last)


@dataclass
class Earlier:
    """What a module remembers of its calls, by whether gradients were enabled."""

    again: dict[bool, Again] = field(default_factory=dict)
    shapes: dict[bool, torch.Size] = field(default_factory=dict)
    """of the last inputs"""
    left: int = MOST_CALLS

    def note(self, module: RecurrentBase, mode: Mode, input: Tensor, first: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
        """A call that was just made. Of two in succession with inputs of one shape, the later is remembered."""
        grad, shape = torch.is_grad_enabled(), input.shape
        if shape == self.shapes.get(grad) and self.left:
            self.left -= 1
            again = _remembered(module, mode, grad, input, first, sources)
            if again is not None:
                self.again[grad] = again
        self.shapes[grad] = shape


def _remembered(
    module: RecurrentBase, mode: Mode, grad: bool, input: Tensor, first: Sequence[Tensor], sources: Sequence[Tensor]
) -> Again | None:
    """The call, if one like it needs no look: kernels ran it as one call, on tensors as they are."""
    number = mode.numbers[False, False][0]
    x = input.transpose(0, 1) if module.batch_first else input
    tensors = (input, *first, *sources)
    network = mode.network
    fits = mode.plain and not mode.draws and network.is_one_call and network.merge != "separate" and not network.learned_state
    if not (fits and x.dim() == 3 and all(map(Tensor.is_contiguous, sources)) and module._kernels_run(x)):
        return None
    if not all(t.dtype is x.dtype for t in tensors) or not plain.direct(*tensors):
        return None
    like = plain.likeness(*tensors)
    if like is plain.unknown:
        return None
    if grad and any(t.requires_grad for t in tensors):
        run: Any = autograd.trained_again(number, len(first))
    else:
        run = operators.inferred_again(number, x, first)
    return None if run is None else Again(mode, like, module.batch_first, run)
