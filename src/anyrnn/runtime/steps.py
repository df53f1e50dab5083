"""Layers around recurrent ones that work step by step, on NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anyrnn.runtime.functions import FUNCTIONS
from anyrnn.runtime.layer import Array, Call, Layer, Spec, kept


class Embedding(Layer):
    """The vectors of classes.

    Args: weight: [classes, features].
    """

    kind = "embedding"

    def __init__(self, name: str, inputs: Sequence[str] | str, weight: Array) -> None:
        super().__init__(name, inputs)
        weight = kept(weight)
        if weight.ndim != 2:
            raise ValueError(f"{name}: expected a weight [classes, features], got {weight.shape}")
        self.weight = weight

    @property
    def arrays(self) -> Mapping[str, Array]:
        return {"weight": self.weight}

    def gives(self, *given: Spec) -> Spec:
        if len(given) != 1 or given[0].size is not None:
            raise ValueError(f"{self.name}: expected integers, got {', '.join(map(str, given))}")
        return Spec(self.weight.shape[1], given[0].steps)

    def run(self, call: Call, *given: Array) -> Array:
        (x,) = given
        check_classes(self.name, x, len(self.weight))
        return np.asarray(self.weight[x])


def check_classes(who: str, x: Array, count: int) -> None:
    """Raises ValueError for integers that are no classes from 0 to below `count`."""
    few = x.size <= FEW
    if few and all(0 <= i < count for i in x.ravel().tolist()):
        return
    if few or (x.min() < 0 or x.max() >= count):
        raise ValueError(f"{who}: expected classes from 0 to {count - 1}, got {x.min()} to {x.max()}")


FEW = 16
"""Numbers that Python looks at sooner than NumPy."""


class LayerNorm(Layer):
    """(x - mean) / sqrt(variance + epsilon) over the features, times the weight, plus the bias.

    Source: Ba, Kiros & Hinton 2016, arXiv 1607.06450.

    Args: weight, bias: [features], or None.
    """

    kind = "layer_norm"

    def __init__(
        self,
        name: str,
        inputs: Sequence[str] | str,
        weight: Array | None = None,
        bias: Array | None = None,
        *,
        epsilon: float = 1e-5,
    ) -> None:
        super().__init__(name, inputs)
        self.weight, self.bias = (None if array is None else kept(array) for array in (weight, bias))
        self.epsilon = float(epsilon)
        if any(array.ndim != 1 for array in self.arrays.values()):
            shapes = ", ".join(str(array.shape) for array in self.arrays.values())
            raise ValueError(f"{name}: expected a weight and a bias [features], got {shapes}")

    @property
    def arrays(self) -> Mapping[str, Array]:
        return {name: a for name, a in (("weight", self.weight), ("bias", self.bias)) if a is not None}

    def settings(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon}

    def gives(self, *given: Spec) -> Spec:
        size, steps = self._one(given)
        for array in self.arrays.values():
            self._fits(len(array), given)
        return Spec(size, steps)

    def run(self, call: Call, *given: Array) -> Array:
        (x,) = given
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + x.dtype.type(self.epsilon))
        scaled = scaled if self.weight is None else scaled * self.weight
        return np.asarray(scaled if self.bias is None else scaled + self.bias)


class Activation(Layer):
    """A function of each feature, or of all features of a step: `softmax`, `log_softmax`.

    Args: function: its name, one of `anyrnn.runtime.functions.FUNCTIONS`.
    """

    kind = "activation"

    def __init__(self, name: str, inputs: Sequence[str] | str, function: str) -> None:
        super().__init__(name, inputs)
        if function not in FUNCTIONS:
            raise ValueError(f"{name}: the function should be one of {', '.join(FUNCTIONS)}, got {function!r}")
        self.function = function

    def settings(self) -> dict[str, Any]:
        return {"function": self.function}

    def gives(self, *given: Spec) -> Spec:
        return Spec(*self._one(given))

    def run(self, call: Call, *given: Array) -> Array:
        return FUNCTIONS[self.function](given[0])


class Masked(Layer):
    """Zero in steps beyond the lengths that a call is given; as it is where there are none."""

    kind = "masked"

    def gives(self, *given: Spec) -> Spec:
        if len(given) != 1 or not given[0].steps:
            raise ValueError(f"{self.name}: expected one sequence, got {', '.join(map(str, given)) or 'none'}")
        return given[0]

    def run(self, call: Call, *given: Array) -> Array:
        return call.masked(*given)


class _Joint(Layer):
    """Of several inputs."""

    def gives(self, *given: Spec) -> Spec:
        sizes = [self._one((spec,))[0] for spec in given]
        if not given or len({spec.steps for spec in given}) > 1:
            raise ValueError(f"{self.name}: expected sequences alone or vectors alone, got {', '.join(map(str, given))}")
        return Spec(self._size(sizes), given[0].steps)

    def _size(self, sizes: list[int]) -> int:
        if len(set(sizes)) > 1:
            raise ValueError(f"{self.name}: expected inputs of one size, got {sizes}")
        return sizes[0]


class Concatenate(_Joint):
    """The features of all inputs, one behind the other."""

    kind = "concatenate"

    def _size(self, sizes: list[int]) -> int:
        return sum(sizes)

    def run(self, call: Call, *given: Array) -> Array:
        return np.concatenate(given, -1)


class Add(_Joint):
    """The sum of all inputs."""

    kind = "add"

    def run(self, call: Call, *given: Array) -> Array:
        return np.asarray(sum(given[1:], given[0])) if len(given) > 1 else given[0].copy()


class Multiply(_Joint):
    """The product of all inputs, feature by feature."""

    kind = "multiply"

    def run(self, call: Call, *given: Array) -> Array:
        total = given[0] if len(given) > 1 else given[0].copy()
        for array in given[1:]:
            total = total * array
        return total
