"""What kind of tensors a call is given: whether kernels may read their memory without torch's dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as are_functorch_transforms_active
from torch._C._functorch import is_batchedtensor, is_functorch_wrapped_tensor, is_legacy_batchedtensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling


def is_batch(tensor: Tensor | None) -> bool:
    """Whether a cotangent stands for many, as with `is_grads_batched` or under `vmap`; then it has no memory for a kernel."""
    return tensor is not None and (is_legacy_batchedtensor(tensor) or is_batchedtensor(tensor))


def is_transformed() -> bool:
    """Whether calls are under one of torch.func's transforms, or in forward mode."""
    return are_functorch_transforms_active() or forward_ad._current_level >= 0


def direct(*tensors: Tensor) -> bool:
    """Whether the kernels may be called without torch's dispatcher, which costs more than a small call: nothing traces, and the
    tensors are plain ones.
    """
    return not is_compiling() and is_plain(*tensors)


def is_plain(*tensors: Tensor) -> bool:
    for tensor in tensors:  # quicker than any() over maps
        if type(tensor) not in PLAIN_TENSORS:
            return False
        if tensor.is_neg() or tensor._is_zerotensor():  # its numbers are the opposite of those in memory; it has no memory
            return False
        if is_functorch_wrapped_tensor(tensor):  # left behind by a transformation, it has no memory of its own
            return False
    return not torch._C._len_torch_dispatch_stack()


PLAIN_TENSORS = frozenset((Tensor, torch.nn.Parameter))


def unknown(*tensors: Tensor) -> bool:
    """The likeness of nothing."""
    return False


def likeness(*tensors: Tensor) -> Callable[..., bool]:
    """A test that holds while tensors are what these are in all but their numbers: types, dtypes, devices, shapes, strides, and
    ways of dispatch. It is torch.compile's own, one call instead of several for each tensor; it never holds where torch has none.
    """
    try:
        guards = torch._C._dynamo.guards.TensorGuards
        sizes: Any = [list(t.shape) for t in tensors]
        strides: Any = [list(t.stride()) for t in tensors]
        test: Callable[..., bool] = guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
        return test if test(*tensors) else unknown
    except (AttributeError, TypeError, RuntimeError):
        return unknown
