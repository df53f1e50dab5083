"""What a value of an ONNX graph is before anything is computed: numbers that are known, or features that layers give.

An axis of a value is a product of parts. A part is a number, some features, or an `Axis`: the steps, the samples, or an axis of
an input of which nothing has said yet what it is. The array of a value holds what belongs to each feature, and knows nothing of
steps and samples: numbers, or references to the columns of layers. So transposing, slicing and joining features of whatever kind
is done by NumPy, on references.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

TIME, BATCH, FEATURE = "steps", "samples", "features"
MOST_AXES = 8
"""In the product that a size is."""
MOST_FEATURES = 2**20
"""Of a value whose numbers are not in the file: an input, or what is made of inputs."""


class Axis:
    """Steps, samples or features, as soon as something tells. Two that turn out to be one refer to one.

    Args: stride: of an input's axis, how far apart references to its features are.
    """

    def __init__(self, label: str, size: int | None = None, role: str | None = None, stride: int = 0) -> None:
        self.label, self.stride, self._size, self._role = label, stride, size, role
        self._same: Axis | None = None
        self._shared = self._settled = False

    def found(self) -> Axis:
        axis = self
        while axis._same is not None:
            axis = axis._same
        return axis

    @property
    def size(self) -> int | None:
        """None if it is told by calls alone."""
        return self.found()._size

    @property
    def role(self) -> str | None:
        return self.found()._role

    def be(self, role: str) -> None:
        """Raises: ValueError when it is something else."""
        axis = self.found()
        if axis._role not in (None, role):
            raise ValueError(f"{self.label} is read as {role}, and elsewhere as {axis._role}")
        if role == FEATURE and (axis._shared or axis._size is None):
            how = "as one with that of another value" if axis._shared else "and has no fixed size"
            how = "after a layer was made of it" if axis._settled else how
            raise ValueError(f"{self.label} is read as features, {how}")
        axis._role = role

    @property
    def is_settled(self) -> bool:
        return self.found()._settled

    def settle(self) -> None:
        """From now on it becomes no features."""
        axis = self.found()
        if axis._role is None:
            axis._shared = axis._settled = True

    def sized(self, size: int) -> None:
        """Raises: ValueError when it has another size."""
        axis = self.found()
        if axis._size not in (None, size):
            raise ValueError(f"{self.label} has the size {axis._size}, expected {size}")
        axis._size = size

    def join(self, other: Axis) -> None:
        """Both are one. Raises: ValueError when they cannot be."""
        a, b = self.found(), other.found()
        if a is b:
            return
        if FEATURE in (a._role, b._role):
            raise ValueError(f"{self.label} is read as features, and as one with {other.label}")
        if b._role is not None:
            a.be(b._role)
        if b._size is not None:
            a.sized(b._size)
        b._same, a._shared = a, True


@dataclass(frozen=True)
class Size:
    """A number that a model computes from the sizes of its inputs: a factor, times axes whose sizes calls tell."""

    factor: int
    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, parts: Sequence[Part]) -> int | Size:
        """The product of parts of an axis: an int if it is known."""
        numbers = [part if isinstance(part, int) else part.size for part in parts]
        factor = math.prod(n for n in numbers if n is not None)
        unknown = [part.found() for part, n in zip(parts, numbers, strict=True) if n is None and isinstance(part, Axis)]
        if len(unknown) > MOST_AXES or abs(factor) >= 2**63:
            raise ValueError(f"expected the size of an axis, got a product of {len(unknown)} sizes and {factor:.3g}")
        return cls(factor, tuple(sorted(unknown, key=id))) if unknown else factor

    def _now(self) -> int | Size:
        return Size.of((self.factor, *self.axes))

    def __mul__(self, other: Any) -> int | Size:
        if isinstance(other, Size):
            return Size.of((self.factor, other.factor, *self.axes, *other.axes))
        return Size.of((self.factor, int(other), *self.axes)) if other == int(other) else NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> int | Size:
        """Raises: ValueError unless it is a divisor whatever the sizes are."""
        if not isinstance(other, Size) and other != int(other):
            raise ValueError(f"{self!r} is divided by {other!r}, which is no whole number")
        by = other if isinstance(other, Size) else Size(int(other), ())
        left = Counter(a.found() for a in self.axes)
        left.subtract(a.found() for a in by.axes)
        if not by.factor or self.factor % by.factor or min(left.values(), default=0) < 0:
            raise ValueError(f"{self!r} is no multiple of {other!r}")
        return Size.of((self.factor // by.factor, *left.elements()))

    __truediv__ = __floordiv__

    def __repr__(self) -> str:
        names = [axis.label for axis in self.axes]
        return " * ".join(names if self.factor == 1 else [str(self.factor), *names])

    def __eq__(self, other: object) -> bool:
        mine, others = self._now(), other._now() if isinstance(other, Size) else other
        if not isinstance(mine, Size) or not isinstance(others, Size):
            return not isinstance(mine, Size) and not isinstance(others, Size) and mine == others
        return (mine.factor, mine.axes) == (others.factor, others.axes)

    __hash__ = None  # type: ignore[assignment]


Part = int | Axis
Sizes = Sequence[int | Size]


@dataclass(frozen=True)
class Value:
    """`array` has a dimension for each number among the parts of `axes`, in order; none of them is 1. `known`: it holds numbers,
    and not references to columns.
    """

    axes: tuple[tuple[Part, ...], ...]
    array: Array
    known: bool = False

    @classmethod
    def of(cls, array: Array) -> Value:
        """Known numbers."""
        return cls(tuple([(k,) for k in array.shape]), array, True).plain()

    def plain(self) -> Value:
        """The same, with the axes that have turned out to be features as such, and features of one axis together."""
        array, axes, shape = self.array, [], []
        for parts in self.axes:
            found: list[Part] = []
            for part in parts:
                size = part if isinstance(part, int) else part.size if part.role == FEATURE else None
                if size is None:
                    found.append(part)
                elif size != 1:
                    found = [*found[:-1], found[-1] * size] if found and isinstance(found[-1], int) else [*found, size]
            axes.append(tuple(found))
            shape += [part for part in found if isinstance(part, int)]
        if any(isinstance(p, Axis) and p.role == FEATURE for parts in self.axes for p in parts):
            array = self._with_features()
        return Value(tuple(axes), array.reshape(shape), self.known)

    def _with_features(self) -> Array:
        """The array with a dimension for each of the axes that have turned out to be features; references step through an input
        as its memory would.
        """
        array, position = self.array, 0
        for part in (part for parts in self.axes for part in parts):
            if isinstance(part, Axis) and part.role == FEATURE:
                array = np.expand_dims(array, position)
                if array.size * (part.size or 1) > MOST_FEATURES:
                    raise ValueError(f"{part.label}: expected at most {MOST_FEATURES} features in all, got {part.size}")
                if not self.known:
                    steps = np.arange(part.size or 0, dtype=np.int64) * part.stride
                    array = array + steps.reshape([-1] + [1] * (array.ndim - position - 1))
                else:
                    array = np.broadcast_to(array, (*array.shape[:position], part.size or 1, *array.shape[position + 1 :]))
                position += 1
            elif isinstance(part, int):
                position += 1
        return array

    # shapes

    @property
    def sizes(self) -> list[int | Size]:
        return [Size.of(parts) for parts in self.axes]

    @property
    def outer(self) -> list[Axis]:
        """Its steps and samples, in order."""
        return [part.found() for parts in self.axes for part in parts if isinstance(part, Axis)]

    def settled_axes(self) -> tuple[tuple[Part, ...], ...]:
        """Its axes, for the columns of a layer that was made of it: none of those that have no role yet can become features."""
        for axis in self.outer:
            axis.settle()
        return self.axes

    @property
    def numbers(self) -> Array:
        """Known numbers as they are. Raises: ValueError for what is known by calls alone."""
        if not self.known or self.outer:
            raise ValueError("an input that should be constant depends on what the model is given")
        return self.array.reshape([n if isinstance(n, int) else 0 for n in self.sizes])

    def transposed(self, order: Sequence[int]) -> Value:
        if sorted(order) != list(range(len(self.axes))):
            raise ValueError(f"perm should be an order of the {len(self.axes)} axes, got {list(order)}")
        places = self._places()
        dims = [d for k in order for d in range(places[k], places[k] + self._features(k))]
        return Value(tuple([self.axes[k] for k in order]), self.array.transpose(dims), self.known)

    def _features(self, axis: int) -> int:
        return sum(isinstance(part, int) for part in self.axes[axis])

    def _places(self) -> list[int]:
        """For each axis, the dimension of the array where its features begin."""
        counts = [self._features(k) for k in range(len(self.axes))]
        return [sum(counts[:k]) for k in range(len(counts))]

    def along(self, axis: int, function: Callable[[Array, int], Array]) -> Value:
        """Features of an axis changed, by a function of the array and the axis's dimension there.

        Raises: ValueError for an axis that is not of features.
        """
        axis = self.axis(axis)
        if any(isinstance(part, Axis) for part in self.axes[axis]):
            raise ValueError(f"axis {axis} should be one of features, it is {Size.of(self.axes[axis])!r}")
        place = self._places()[axis]
        array = self.array if self.axes[axis] else np.expand_dims(self.array, place)
        changed = function(array, place)
        inside = tuple(changed.shape[place : place + changed.ndim - array.ndim + 1])
        new = [(k,) for k in inside]  # none, where one feature is taken
        axes = (*self.axes[:axis], *new, *self.axes[axis + 1 :])
        return Value(axes, changed, self.known).plain()

    def axis(self, number: int) -> int:
        """From 0. Raises: ValueError for one that there is not."""
        rank = len(self.axes)
        if not -rank <= number < rank:
            raise ValueError(f"there is no axis {number}: the value has {rank}")
        return number % rank

    def squeezed(self, axes: Sequence[int] | None) -> Value:
        """Raises: ValueError for axes that are not of size 1; where none are given, for sizes that calls tell, which may be 1."""
        if axes is None and (open_ := [n for n in self.sizes if not isinstance(n, int)]):
            raise ValueError(f"axes should be given, as it depends on a call whether {open_[0]!r} is 1")
        chosen = {self.axis(k) for k in axes} if axes is not None else {k for k, n in enumerate(self.sizes) if _is_one(n)}
        for k in chosen:
            if not _is_one(self.sizes[k]):
                raise ValueError(f"axis {k} should have the size 1 to be left out, it has {self.sizes[k]!r}")
        return replace(self, axes=tuple([parts for k, parts in enumerate(self.axes) if k not in chosen]))

    def unsqueezed(self, axes: Sequence[int]) -> Value:
        rank = len(self.axes) + len(axes)
        places = [k % rank if -rank <= k < rank else rank for k in axes]
        if len(set(places)) != len(places) or rank in places or rank > 32:
            raise ValueError(f"axes should be different ones of the {rank} of the result, got {list(axes)}")
        left = iter(self.axes)
        return replace(self, axes=tuple([() if k in places else next(left) for k in range(rank)]))

    def reshaped(self, targets: Sizes) -> Value:
        """Raises: ValueError where that would cut through steps or samples."""
        left: list[Part] = [part for parts in self.axes for part in parts]
        inside: list[int] = []
        axes: list[tuple[Part, ...]] = []
        for place, target in enumerate(targets):
            group: list[Part] = []
            rest: int | Size = target
            while not _is_one(rest) or (not group and left and Size.of(left[:1]) == 1):
                if not left:
                    raise self._cannot(targets)
                rest = self._consume(left, rest, group, targets)
            following = targets[place + 1] if place + 1 < len(targets) else 0
            while group and left and Size.of(left[:1]) == 1 and not _is_one(following):
                group.append(left.pop(0))
            axes.append(tuple(group))
            inside += [part for part in group if isinstance(part, int)]
        if any(not _is_one(Size.of([part])) for part in left):
            raise self._cannot(targets)
        axes = [*axes[:-1], (*axes[-1], *left)] if axes else []
        return Value(tuple(axes), self.array.reshape(inside), self.known).plain()

    def _consume(self, left: list[Part], rest: int | Size, group: list[Part], targets: Sizes) -> int | Size:
        """Take the next part, or as much of it as is wanted; what is then still wanted."""
        part = left.pop(0)
        size = Size.of([part])
        if isinstance(size, Size) or isinstance(part, Axis):
            try:
                after = (rest if isinstance(rest, Size) else Size(rest, ())) // size
            except ValueError:
                raise self._cannot(targets) from None
            group.append(part)
            return after
        factor = rest.factor if isinstance(rest, Size) else rest
        common = math.gcd(factor, part)
        if (common < part and (common < factor or isinstance(rest, Size))) or not common:
            raise self._cannot(targets)
        group.append(common)
        if common < part:
            left.insert(0, part // common)
        return rest // common

    def _cannot(self, targets: Sizes) -> ValueError:
        return ValueError(f"cannot make shape {list(targets)} of {self.sizes}: steps and samples would be mixed with features")


def _is_one(size: int | Size) -> bool:
    return not isinstance(size, Size) and size == 1
