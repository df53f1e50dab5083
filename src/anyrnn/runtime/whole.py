"""Layers that look at all steps of a sample and give one vector for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from anyrnn.runtime.layer import Array, Call, Layer, Spec, kept
from anyrnn.sequence.network import check_size


class _Whole(Layer):
    """Of all steps of a sample."""

    def gives(self, *given: Spec) -> Spec:
        return Spec(self._sequence(given), steps=False)

    @property
    def why_whole(self) -> str:
        return "it looks at all steps"


class Last(_Whole):
    """The last step of each sample; zeros for a sample without steps. Called step after step it is the last so far, each."""

    kind = "last"

    @property
    def why_whole(self) -> str:
        return ""

    def streamed(self, batch_size: int) -> Callable[..., Array]:
        return np.array

    def run(self, call: Call, *given: Array) -> Array:
        (x,) = given
        if call.lengths is None:
            return np.array(x[-1])
        found: Array = x[np.maximum(call.lengths - 1, 0), np.arange(x.shape[1])]
        return np.where(call.lengths[:, None] > 0, found, np.zeros_like(found))


class Mean(_Whole):
    """The mean of all steps of each sample; zeros for a sample without steps."""

    kind = "mean"

    def run(self, call: Call, *given: Array) -> Array:
        (x,) = given
        there = call.there(len(x))
        if there is None:
            return np.asarray(x.mean(0))
        count = np.maximum(there.sum(0), 1).astype(x.dtype)
        return np.asarray(np.where(there, x, np.zeros_like(x)).sum(0) / count)


class Max(_Whole):
    """The maximum of each feature over all steps of each sample; zeros for a sample without steps."""

    kind = "max"

    def run(self, call: Call, *given: Array) -> Array:
        (x,) = given
        there = call.there(len(x))
        if there is None:
            return np.asarray(x.max(0))
        return np.where(there.any(0), np.where(there, x, -np.inf).max(0), 0).astype(x.dtype)


class Flatten(_Whole):
    """The features of all steps of a sample side by side, the first step first. Samples have so many steps, all of them.

    Args: steps: T.
    """

    kind = "flatten"

    @property
    def why_whole(self) -> str:
        return "it looks at all steps (networks of `anyrnn train --head last` have no such layer)"

    def __init__(self, name: str, inputs: Sequence[str] | str, steps: int) -> None:
        super().__init__(name, inputs)
        check_size(f"{name}: steps", steps)
        self.steps = steps

    def settings(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def gives(self, *given: Spec) -> Spec:
        return Spec(self._sequence(given) * self.steps, steps=False)

    def run(self, call: Call, *given: Array) -> Array:
        (x,) = given
        if len(x) != self.steps or (call.lengths is not None and (call.lengths < self.steps).any()):
            raise ValueError(f"{self.name}: samples should have {self.steps} steps, as all of them are read at once")
        return x.swapaxes(0, 1).copy().reshape(x.shape[1], self.steps * x.shape[2])


class AttentionAverage(_Whole):
    """The average of all steps, each weighted with softmax over the steps of x @ weight.

    Args:
        weight: [features].
        epsilon: added to the sum of the exponentials.
    """

    kind = "attention_average"

    def __init__(self, name: str, inputs: Sequence[str] | str, weight: Array, *, epsilon: float = 0.0) -> None:
        super().__init__(name, inputs)
        weight = kept(weight)
        if weight.ndim != 1:
            raise ValueError(f"{name}: expected a weight [features], got {weight.shape}")
        self.weight, self.epsilon = weight, float(epsilon)

    @property
    def arrays(self) -> Mapping[str, Array]:
        return {"weight": self.weight}

    def settings(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon}

    def gives(self, *given: Spec) -> Spec:
        self._fits(len(self.weight), given)
        return super().gives(*given)

    def run(self, call: Call, *given: Array) -> Array:
        (x,) = given
        there = call.there(len(x))
        x = x if there is None else np.where(there, x, np.zeros_like(x))
        scores = (x * self.weight).sum(-1, keepdims=True)  # [T, N, 1]
        scores = scores if there is None else np.where(there, scores, -np.inf)
        e = np.exp(scores - np.maximum(scores.max(0), np.finfo(x.dtype).min))
        shares = e / np.maximum(e.sum(0) + x.dtype.type(self.epsilon), np.finfo(x.dtype).tiny)
        return np.asarray((x * shares).sum(0))
