"""Tensors made without torch's dispatcher are those that it would make."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from anyrnn.backends import quick

WITHOUT_TORCHS_OWN = quick._empty_on("cpu"), quick._reinterpreted


def test_torch_has_what_is_quick() -> None:
    """Calls are right without, and slower."""
    assert quick.EMPTY["cpu"] is torch._C._dynamo.guards._empty_strided_cpu
    assert quick.EMPTY["cuda"] is torch._C._dynamo.guards._empty_strided_cuda
    assert quick.reinterpreted is torch._C._dynamo.guards._reinterpret_tensor


@pytest.mark.parametrize(
    ("empty", "reinterpreted"), [(quick.EMPTY["cpu"], quick.reinterpreted), WITHOUT_TORCHS_OWN], ids=["torch's", "ours"]
)
@pytest.mark.parametrize("inference", [False, True])
def test_they_are_as_torch_makes_them(
    empty: Callable[..., Tensor], reinterpreted: Callable[..., Tensor], inference: bool
) -> None:
    with torch.inference_mode(inference):
        made = empty((2, 3, 4), (4, 8, 1), torch.float64)
    assert (made.shape, made.stride(), made.dtype, made.device.type) == ((2, 3, 4), (4, 8, 1), torch.float64, "cpu")
    assert made.is_inference() == inference
    assert not made._is_view()
    own = torch.arange(24.0)[2:].requires_grad_()
    with torch.inference_mode(inference):
        rows = reinterpreted(own, (3, 2), (5, 2), 1)
    assert torch.equal(rows, torch.tensor([[3.0, 5.0], [8.0, 10.0], [13.0, 15.0]]))
    assert rows.data_ptr() == own.data_ptr() + 4
    assert not rows.requires_grad
    assert rows.is_inference() == inference
    assert not rows._is_view()
