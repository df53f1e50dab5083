"""Tensors as kernels take and give them: new ones, and where numbers stand in any."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from anyrnn._memory import LARGE, MAPPED, aligned, in_large_pages, keep_what_is_freed
from anyrnn.backends.quick import EMPTY

Form = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides."""
empty = EMPTY["cpu"]
"""What makes a tensor of a form and a dtype."""


def form_of(tensor: Tensor) -> Form:
    return tuple(tensor.shape), tensor.stride()


def in_rows(*shape: int) -> Form:
    """Of a contiguous tensor. To torch's strides a side of none is one."""
    return shape, tuple([prod(max(1, n) for n in shape[k + 1 :]) for k in range(len(shape))])


def of_sequence(steps: int, rows: int, features: int, batch_first: bool) -> Form:
    """Of a tensor [T, N, features], with `batch_first` the transpose of a contiguous one."""
    strides = (features, steps * features, 1) if batch_first else (max(1, rows) * features, features, 1)
    return (steps, rows, features), strides


def paged(new: Tensor) -> Tensor:
    """The same new tensor; if it is large, its memory will come in large pages. What it leaves stays with the process."""
    if new.nbytes >= MAPPED:
        keep_what_is_freed()
        if new.nbytes >= LARGE:
            in_large_pages(new.data_ptr(), new.nbytes)
    return new


def new_rows(rows: int, features: int, like: Tensor) -> Tensor:
    """A new tensor [rows, features]; if it is large, in recycled memory."""
    bytes = rows * features * like.element_size()
    if bytes < LARGE or not like.is_cpu:
        return like.new_empty(rows, features)
    return torch.from_numpy(aligned(bytes)).view(like.dtype).view(rows, features)


def readable(tensor: Tensor) -> Tensor:
    """The tensor itself when its features lie next to each other, else a copy."""
    return tensor if tensor.stride(-1) == 1 or tensor.size(-1) <= 1 else tensor.contiguous()


def strides_of(tensor: Tensor) -> tuple[int, int]:
    """Bytes from step to step and row to row, or from unit to unit and row to row. Of packed rows the latter twice."""
    size, stride = tensor.element_size(), tensor.stride()
    return stride[0] * size, stride[len(stride) - 2] * size


def new_sequence(features: int, like: Tensor, batch_first: bool) -> Tensor:
    """A new tensor for as many features in every step of every sample as `like` has samples and steps; with `batch_first` it is
    the transpose of a contiguous [N, T, features] one.
    """
    sides = like.shape
    if len(sides) == 2:
        return new_rows(sides[0], features, like)
    if batch_first:  # not by `transpose`, as views could not be changed in place by the caller
        return like.new_empty_strided(*of_sequence(sides[0], sides[1], features, batch_first))
    return like.new_empty(sides[0], sides[1], features)  # quicker than with a tuple


def new_sequences(units: int, features: int, like: Tensor, batch_first: bool) -> Tensor:
    """The same for each of so many units, [units, T, N, features]."""
    if like.dim() == 2:
        return like.new_empty(units, like.size(0), features)
    steps, rows = like.size(0), like.size(1)
    if batch_first:
        (_, strides) = of_sequence(steps, rows, features, batch_first)
        return like.new_empty_strided((units, steps, rows, features), (rows * steps * features, *strides))
    return like.new_empty(units, steps, rows, features)


def strides_of_units(tensor: Tensor) -> tuple[int, int, int]:
    """Bytes from unit to unit, from step to step and from row to row; of packed rows the latter twice."""
    size, stride = tensor.element_size(), tensor.stride()
    return stride[0] * size, stride[1] * size, stride[len(stride) - 2] * size
