"""What an array of a system is made of: a small tree whose leaves are gates' parts of our own parameters.

Our parameters are torch's: matrices [G * H, D] and biases [G * H], gates one after the other. Three short recursions say
everything about a tree: the shape of its array (`shape_of`), from the array to the parts (`take`), and back (`make`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Part:
    """Of one of our parameters, the rows of a gate; of all of them for one without gates."""

    parameter: str
    gate: str = ""

    def __str__(self) -> str:
        return f"{self.parameter} {self.gate}".strip()


@dataclass(frozen=True)
class Sum:
    """Two of our parts that a system has as one: it stands for the first, the second is zero. Where a system adds its own
    `forget_bias` when it runs, that is the second.
    """

    first: Part
    second: Part
    forget_bias: bool = False


@dataclass(frozen=True)
class Unread:
    """Numbers of a part's shape that a system keeps and never reads; written as zeros."""

    like: Part


@dataclass(frozen=True)
class Transposed:
    """A matrix, its axes exchanged."""

    of: Tree


@dataclass(frozen=True)
class Refilled:
    """A matrix's numbers in their order in memory, as a matrix of the transposed shape."""

    of: Tree


@dataclass(frozen=True)
class Vector:
    """All numbers in their order in memory, as one axis."""

    of: Tree


@dataclass(frozen=True)
class Concat:
    """One behind the other along an axis."""

    of: tuple[Tree, ...]
    axis: int = 0


@dataclass(frozen=True)
class Stack:
    """Equally shaped, side by side along a new axis."""

    of: tuple[Tree, ...]
    axis: int = 0


Tree: TypeAlias = Part | Sum | Unread | Transposed | Refilled | Vector | Concat | Stack
Parts = Mapping[Part, Array]
Shapes = Mapping[Part, tuple[Any, ...]]
"""Of all parts: numbers, or linear forms (`ir.dims`) of sizes that are not known yet."""


def renamed(tree: Tree, suffix: str) -> Tree:
    """The same of parameters that carry a suffix behind their names."""
    match tree:
        case Part(parameter, gate):
            return Part(parameter + suffix, gate)
        case Sum(first, second, forget_bias):
            return Sum(Part(first.parameter + suffix, first.gate), Part(second.parameter + suffix, second.gate), forget_bias)
        case Unread(like):
            return Unread(Part(like.parameter + suffix, like.gate))
        case Concat(of) | Stack(of):
            return replace(tree, of=tuple([renamed(child, suffix) for child in of]))
        case _:
            return replace(tree, of=renamed(tree.of, suffix))


def parts_of(tree: Tree) -> Iterator[Part]:
    """The parts that stand in an array."""
    match tree:
        case Part():
            yield tree
        case Sum(first, second):
            yield from (first, second)
        case Unread():
            return
        case Concat(of) | Stack(of):
            for child in of:
                yield from parts_of(child)
        case _:
            yield from parts_of(tree.of)


def shape_of(tree: Tree, shapes: Shapes) -> tuple[Any, ...]:
    """Of the array; a Vector's where all sizes are numbers."""
    match tree:
        case Part():
            return shapes[tree]
        case Sum(part) | Unread(part):
            return shapes[part]
        case Transposed(of) | Refilled(of):
            return shape_of(of, shapes)[::-1]
        case Vector(of):
            return (math.prod(shape_of(of, shapes)),)
        case Concat(of, axis):
            first, *others = [shape_of(child, shapes) for child in of]
            return (*first[:axis], reduce(add, [s[axis] for s in others], first[axis]), *first[axis + 1 :])
        case Stack(of, axis):
            shape, *rest = [shape_of(child, shapes) for child in of]
            if any(other != shape for other in rest) and all(isinstance(side, int) for side in shape):
                raise ValueError(f"layers and directions of shapes {', '.join(map(str, (shape, *rest)))} cannot be stacked")
            return (*shape[:axis], len(of), *shape[axis:])


def take(tree: Tree, array: Array, shapes: Shapes, forget_bias: float = 0.0) -> Iterator[tuple[Part, Array]]:
    """The parts that an array holds, copied."""
    match tree:
        case Part():
            yield tree, array.copy()
        case Sum(first, second, adds):
            yield first, array.copy()
            yield second, np.full_like(array, forget_bias if adds else 0.0)
        case Unread():
            return
        case Transposed(of):
            yield from take(of, array.T, shapes, forget_bias)
        case Refilled(of) | Vector(of):
            yield from take(of, array.reshape(shape_of(of, shapes)), shapes, forget_bias)
        case Concat(of, axis):
            ends = np.cumsum([shape_of(child, shapes)[axis] for child in of])
            for child, piece in zip(of, np.split(array, ends[:-1], axis), strict=True):
                yield from take(child, piece, shapes, forget_bias)
        case Stack(of, axis):
            for child, piece in zip(of, np.moveaxis(array, axis, 0), strict=True):
                yield from take(child, piece, shapes, forget_bias)


def make(tree: Tree, of_part: Callable[[Part], Array], forget_bias: float = 0.0) -> Array:
    """The array of parts, the inverse of `take`."""

    def made(child: Tree) -> Array:
        return make(child, of_part, forget_bias)

    match tree:
        case Part():
            return of_part(tree)
        case Sum(first, second, adds):
            return _added(of_part(first), of_part(second), forget_bias if adds else 0.0)
        case Unread(like):
            return np.zeros_like(of_part(like))
        case Transposed(of):
            return made(of).T
        case Refilled(of):
            matrix = made(of)
            return matrix.reshape(matrix.shape[::-1])
        case Vector(of):
            return made(of).reshape(-1)
        case Concat(of, axis):
            return np.concatenate([made(child) for child in of], axis)
        case Stack(of, axis):
            return np.stack([made(child) for child in of], axis)


def _added(first: Array, second: Array, shift: float) -> Array:
    """The sum less what the system adds. The second stands beside it, as that is where `take` puts it; and adding a zero would
    change the bits of a negative one.
    """
    rest = second - second.dtype.type(shift) if shift else second
    return np.where(rest == 0, first, first + rest)
