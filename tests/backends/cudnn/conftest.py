"""What cuDNN is held against runs in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from anyrnn.backends.cudnn import matching, run
from anyrnn.backends.triton import tape
from anyrnn.torch import triton_or_cudnn
from tests.backends.triton.conftest import interpreted

__all__ = ["interpreted"]


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN is there, and takes half of the time."""
    tape.forget()
    triton_or_cudnn.KNOWN.clear()
    triton_or_cudnn.DECIDED.clear()
    monkeypatch.setattr(run, "why_not", lambda network, *_: r if isinstance(r := matching.match(network), str) else None)
    monkeypatch.setattr(triton_or_cudnn, "kind_of", lambda call, x, packing, trains: f"{call.network} {x.shape} {trains}")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    times = iter([2.0, 1.0] * 100)
    monkeypatch.setattr(triton_or_cudnn, "_of_many", lambda made: [made(), next(times)][1])
    monkeypatch.setattr("anyrnn.torch.base.RecurrentBase._on_triton", lambda module, tensor: True)
    monkeypatch.setattr("anyrnn.torch.calls.Call.on_triton", lambda call, like: True)
