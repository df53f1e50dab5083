"""torch as the interpreter's namespace: with the ops of the table that have other gradients than torch would give them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class ClipGradient(torch.autograd.Function):
    """The same values, with gradients from `low` to `high`. Forward mode, in which there is nothing to clip, is refused."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ClippedGradient.apply(gradient, *ctx.saved_tensors), None, None


class ClippedGradient(torch.autograd.Function):
    """A gradient from `low` to `high`. It belongs to no function of the values, so there is no second derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: Tensor, low: Tensor, high: Tensor) -> Tensor:
        return gradient.clamp(low, high)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        raise RuntimeError("a clipped gradient has no derivative: clip_gradient is for first derivatives")


class Namespace:
    """What torch has under NumPy's names, and more."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def clip_gradient(self, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        clipped: Tensor = ClipGradient.apply(x, low, high)
        return clipped

    def softplus(self, x: Tensor) -> Tensor:
        """By torch's own function. The table's definition has `abs`, whose derivative torch takes to be zero at zero, and so the
        second derivative of the whole. Above 40 softplus is x to the last bit of float64.
        """
        return torch.nn.functional.softplus(x, threshold=40.0)

    def stop_gradient(self, x: Tensor) -> Tensor:
        return x.detach()


NAMESPACE = Namespace()
