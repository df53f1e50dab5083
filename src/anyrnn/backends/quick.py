"""Tensors made as by the code that torch's own compiler writes: without torch's dispatcher, which takes more than half of the
time. Nothing that looks on there (autograd, modes) is told of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _empty_on(device: str) -> Callable[..., Tensor]:
    def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)

    return empty


def _reinterpreted(tensor: Tensor, shape: tuple[int, ...], strides: tuple[int, ...], begin: int) -> Tensor:
    empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return empty.set_(tensor.untyped_storage(), tensor.storage_offset() + begin, shape, strides)


_quicker: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)

EMPTY: dict[str, Callable[..., Tensor]] = {
    device: getattr(_quicker, f"_empty_strided_{device}", _empty_on(device)) for device in ("cpu", "cuda")
}
"""By type of device, what makes a tensor on the current one, of a shape, strides and a dtype."""
reinterpreted: Callable[..., Tensor] = getattr(_quicker, "_reinterpret_tensor", _reinterpreted)
"""Numbers of a tensor as another, of a shape, strides and so many numbers behind its first. It is no view of it to autograd."""
