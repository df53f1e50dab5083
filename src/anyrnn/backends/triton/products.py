"""The large products beside the steps, by torch's library: as few as there can be.

The gates of a cell are products of one vector with neighbouring rows of one matrix, and their sums stand in neighbouring columns.
Where that is so, products become one: whether it is so is seen where the numbers stand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeVar

import torch
from torch import Tensor

from anyrnn.backends.triton.memory import span


@dataclass(frozen=True)
class Product:
    """`operand` [rows, K] times a matrix: [F, K], or [K, F] if `transposed`, or blocks on a diagonal."""

    operand: Tensor
    matrix: Tensor
    transposed: bool
    heads: int

    def value(self) -> Tensor:
        if self.heads == 1:
            return self.operand @ (self.matrix if self.transposed else self.matrix.T)
        blocks = self.matrix.view(self.heads, -1, self.matrix.shape[1])
        found = torch.bmm(_of_heads(self.operand, self.heads), blocks if self.transposed else blocks.transpose(1, 2))
        return found.transpose(0, 1).flatten(1)


@dataclass(frozen=True)
class Total:
    """`out` [rows, F] = biases + products."""

    out: Tensor
    biases: tuple[Tensor, ...]
    products: tuple[Product, ...]

    def make(self) -> None:
        total = sum(self.biases[1:], start=self.biases[0]) if self.biases else None
        *others, last = joined(self.products, _added)
        for product in others:
            total = product.value() if total is None else total + product.value()
        if last.heads > 1:
            self.out.copy_(last.value() if total is None else total + last.value())
            return
        matrix = last.matrix if last.transposed else last.matrix.T
        if total is None:
            torch.mm(last.operand, matrix, out=self.out)
        else:
            torch.addmm(total, last.operand, matrix, out=self.out)


@dataclass(frozen=True)
class Outer:
    """To make or to add to `gradient` [F, K]: left [rows, F] transposed times right [rows, K], or blocks on a diagonal of it."""

    gradient: Tensor
    left: Tensor
    right: Tensor
    heads: int

    def make(self, adds: bool) -> None:
        """`adds`: to what is there."""
        if self.heads == 1 and self.gradient.dtype is self.left.dtype:
            if adds:
                self.gradient.addmm_(self.left.T, self.right)
            else:
                torch.mm(self.left.T, self.right, out=self.gradient)
            return
        if self.heads == 1:
            found, gradient = self.left.T @ self.right, self.gradient
        else:
            left, right = (_of_heads(t, self.heads) for t in (self.left, self.right))
            found, gradient = torch.bmm(left.transpose(1, 2), right), self.gradient.view(self.heads, -1, self.gradient.shape[1])
        if adds:
            gradient.add_(found)
        else:
            gradient.copy_(found)


def _of_heads(rows: Tensor, heads: int) -> Tensor:
    """[heads, rows, features of each]; of no rows too."""
    return rows.view(len(rows), heads, rows.shape[1] // heads).transpose(0, 1)


@dataclass(frozen=True)
class Summed:
    """To make or to add to `gradient` [F]: the sum of the rows of a value [rows, F]."""

    gradient: Tensor
    value: Tensor

    def make(self, adds: bool) -> None:
        if adds:
            self.gradient.add_(self.value.sum(0, dtype=self.gradient.dtype))
        else:
            torch.sum(self.value, 0, dtype=self.gradient.dtype, out=self.gradient)


def make_gradients(parts: Sequence[Outer | Summed], unmade: Sequence[Tensor]) -> None:
    """Add parts to the gradients of sources. Those that are `unmade` hold nothing yet: what is the only part of their numbers is
    stored; where that leaves some, they are zeros first.
    """
    places, empty = [_place(part.gradient) for part in parts], [_place(gradient) for gradient in unmade]
    makes = [
        part.gradient.is_contiguous() and _filled(place, empty) and sum(_shared(place, other) > 0 for other in places) == 1
        for part, place in zip(parts, places, strict=True)
    ]
    stored = [place for one, place in zip(makes, places, strict=True) if one]
    for gradient, place in zip(unmade, empty, strict=True):
        if not _filled(place, stored):
            gradient.zero_()
    made: dict[tuple[int, torch.Size, tuple[int, ...]], Tensor] = {}
    for one, part in zip(makes, parts, strict=True):
        if isinstance(part, Outer) or not one:
            part.make(adds=not one)
            continue
        same = part.value.data_ptr(), part.value.shape, part.value.stride()
        if same in made:  # two biases of one sum
            part.gradient.copy_(made[same])
        else:
            part.make(adds=False)
            made[same] = part.gradient


Memory = tuple[int, int]
"""From an address to behind another."""


def _place(gradient: Tensor) -> Memory:
    return gradient.data_ptr(), gradient.data_ptr() + span(gradient)


def _shared(a: Memory, b: Memory) -> int:
    """Bytes."""
    return max(0, min(a[1], b[1]) - max(a[0], b[0]))


def _filled(place: Memory, others: Sequence[Memory]) -> bool:
    """Whether the others, which share nothing with each other, are all of it together."""
    return sum(_shared(place, other) for other in others) == place[1] - place[0]


def new_gradients(sources: Sequence[Tensor], dtype: torch.dtype, device: torch.device) -> tuple[list[Tensor], Tensor]:
    """Memory for the gradients of sources, and that of all vectors among them: they stand side by side, so that sums of several
    can be made at once.
    """
    lengths = [len(s) if s.dim() == 1 else 0 for s in sources]
    vectors = torch.empty(sum(lengths), dtype=dtype, device=device)
    places = zip(sources, accumulate(lengths, initial=0), lengths, strict=False)
    return [
        vectors[begin : begin + length] if s.dim() == 1 else torch.empty(s.shape, dtype=dtype, device=device)
        for s, begin, length in places
    ], vectors


def converted(gradients: Sequence[Tensor], vectors: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """What `new_gradients` gave, in another dtype."""
    found, into = new_gradients(gradients, dtype, vectors.device)
    into.copy_(vectors)
    for new, old in zip(found, gradients, strict=True):
        if new.dim() != 1:
            new.copy_(old)
    return found


T = TypeVar("T")


def joined(parts: Sequence[T], join: Callable[[T, T], T | None]) -> list[T]:
    """Neighbours made one, in the order in which the parts come."""
    found: list[T] = []
    for part in parts:
        both = join(found[-1], part) if found else None
        if both is None:
            found.append(part)
        else:
            found[-1] = both
    return found


def totals(parts: Sequence[Total]) -> list[Total]:
    return joined(sorted(parts, key=lambda t: t.out.data_ptr()), _total)


def outers(parts: Sequence[Outer]) -> list[Outer]:
    return joined(sorted(parts, key=lambda p: p.gradient.data_ptr()), _outer)


def sums(parts: Sequence[Summed]) -> list[Summed]:
    return joined(sorted(parts, key=lambda p: p.gradient.data_ptr()), _summed)


def _total(a: Total, b: Total) -> Total | None:
    """Sums of products of the same operands in neighbouring columns."""
    out = columns(a.out, b.out)
    if out is None or len(a.biases) != len(b.biases) or len(a.products) != len(b.products):
        return None
    biases = [rows(*pair) for pair in zip(a.biases, b.biases, strict=True)]
    products = []
    for p, q in zip(a.products, b.products, strict=True):
        matrix = rows(p.matrix, q.matrix)
        plain = not p.transposed and not q.transposed and p.heads == q.heads == 1
        if matrix is None or not plain or not _same(p.operand, q.operand):
            return None
        products.append(replace(p, matrix=matrix))
    whole = [bias for bias in biases if bias is not None]
    return Total(out, tuple(whole), tuple(products)) if len(whole) == len(biases) else None


def _added(a: Product, b: Product) -> Product | None:
    """Two of a sum of products with neighbouring rows of a matrix that is transposed."""
    if not (a.transposed and b.transposed and a.heads == b.heads == 1):
        return None
    operand, matrix = columns(a.operand, b.operand), rows(a.matrix, b.matrix)
    return None if operand is None or matrix is None else Product(operand, matrix, True, 1)


def _outer(a: Outer, b: Outer) -> Outer | None:
    if a.heads != 1 or b.heads != 1 or not _same(a.right, b.right):
        return None
    gradient, left = rows(a.gradient, b.gradient), columns(a.left, b.left)
    return None if gradient is None or left is None else Outer(gradient, left, a.right, 1)


def _summed(a: Summed, b: Summed) -> Summed | None:
    if not a.gradient.dim() or not b.gradient.dim():
        return None
    gradient, value = rows(a.gradient, b.gradient), columns(a.value, b.value)
    return None if gradient is None or value is None else Summed(gradient, value)


def _same(a: Tensor, b: Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride()


def _follows(a: Tensor, b: Tensor, elements: int) -> bool:
    """Whether b stands so many elements behind a, in the same memory."""
    together = a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() and a.dtype == b.dtype
    return together and b.storage_offset() == a.storage_offset() + elements


def rows(a: Tensor, b: Tensor) -> Tensor | None:
    """One array of the rows of two that follow each other; None where they do not."""
    alike = a.shape[1:] == b.shape[1:] and a.is_contiguous() and b.is_contiguous()
    if not alike or not _follows(a, b, a.numel()):
        return None
    return a.as_strided((len(a) + len(b), *a.shape[1:]), a.stride())


def columns(a: Tensor, b: Tensor) -> Tensor | None:
    """One matrix of the columns of two that follow each other; None where they do not."""
    alike = len(a) == len(b) and a.stride() == b.stride() and a.stride(1) == 1
    if not alike or not _follows(a, b, a.shape[1]):
        return None
    return a.as_strided((len(a), a.shape[1] + b.shape[1]), a.stride())
