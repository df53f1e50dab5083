"""What cuDNN writes to in a backward call. In the place of torch's operators of its networks are others, which do that on the
CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import anyrnn.torch
from anyrnn.backends.cudnn import run

HIDDEN = 4
WAS_COPIED: list[bool] = []
"""Of each backward call, whether it had a reserve of its own."""


def forward(x: Tensor, weights: list[Tensor], _: int, buffer: Tensor, h: Tensor, c: Tensor, *more: Any) -> tuple[Tensor, ...]:
    output = x.new_ones(*x.shape[:-1], HIDDEN)
    return output, h.clone(), c.clone(), output.clone().view(-1).view(torch.uint8), buffer.clone()


def backward(x: Tensor, weights: list[Tensor], *more: Any) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """All gradients of weights are how many ones the reserve has."""
    h, c, reserve = more[2], more[3], more[-2]
    assert reserve.storage_offset() % 16 == 0
    WAS_COPIED.append(reserve.nbytes == reserve.untyped_storage().nbytes())
    ones = reserve.view(x.dtype).sum()
    reserve.zero_()
    return x.clone(), h.clone(), c.clone(), [torch.ones_like(w) * ones for w in weights]


@pytest.fixture
def operators(chosen: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(run, "standing", lambda *_: None)
    monkeypatch.setattr(run, "_places", lambda *_: ((0, 48, 112, 128), 144))
    library = torch.library.Library("aten", "IMPL")
    library.impl("_cudnn_rnn", forward, "CPU")
    library.impl("_cudnn_rnn_backward", backward, "CPU")
    yield
    library._destroy()


@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize(("steps", "samples"), [(1, 1), (3, 1), (5, 1), (1, 64)])
def test_it_begins_where_memory_of_its_own_would(steps: int, samples: int) -> None:
    """Whatever the output's size."""
    module, x = anyrnn.torch.LSTM(3, HIDDEN, dtype=torch.bfloat16), torch.randn(steps, samples, 3, dtype=torch.bfloat16)
    for _ in range(4):
        module.zero_grad()
        module(x)[0].sum().backward()
        assert not WAS_COPIED[-1]
        assert all(p.grad.eq(steps * samples * HIDDEN).all() for p in module.parameters())


@pytest.mark.usefixtures("operators")
def test_it_is_copied_where_a_graph_captures_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which can run it again."""
    module, x = anyrnn.torch.LSTM(3, HIDDEN), torch.randn(5, 2, 3)
    loss = module(x)[0].sum()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    loss.backward()
    assert WAS_COPIED[-1]


@pytest.mark.usefixtures("operators")
def test_it_is_copied_for_another_backward_pass_alone() -> None:
    module, x = anyrnn.torch.LSTM(3, HIDDEN), torch.randn(5, 2, 3)
    for passes in (1, 1, 1, 1, 2, 2, 2, 1, 2):  # some are made by tapes, which know of one kind of pass or the other
        WAS_COPIED.clear()
        loss = module(x)[0].sum()
        for left in reversed(range(passes)):
            module.zero_grad()
            loss.backward(retain_graph=left > 0)
            assert all(p.grad.eq(5 * 2 * HIDDEN).all() for p in module.parameters())
        assert WAS_COPIED[-passes:] == [True] * (passes - 1) + [False]
