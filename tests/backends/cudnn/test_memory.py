"""Whether weights stand in one memory as cuDNN wants them is seen without a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import anyrnn.torch
from anyrnn.backends.cudnn import run
from anyrnn.backends.cudnn.matching import order_of

NETWORK = anyrnn.torch.LSTM(3, 4).network
SIZES = [48, 64, 16, 16]
"""Of the weights in cuDNN's order; a number is left free between them."""
PLACES, TOTAL = (2, 51, 116, 133), 150


def standing(begin: int, whole: Tensor) -> list[Tensor]:
    """The sources as they stand in cuDNN's order, from one number of a memory on."""
    order, found = order_of(NETWORK), dict[int, Tensor]()
    assert order is not None
    shapes = NETWORK.source_shapes(0)
    for k, place, size in zip(order, PLACES, SIZES, strict=True):
        found[k] = torch.as_strided(whole, (size,), (1,), begin + place).view(shapes[k])
    return [found[k] for k in range(len(found))]


def moved(sources: list[Tensor], which: int) -> list[Tensor]:
    return [s.clone() if k == which else s for k, s in enumerate(sources)]


@pytest.fixture(autouse=True)
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(run, "_places", lambda *of: (PLACES, TOTAL))
    run.standing.cache_clear()
    yield
    run.standing.cache_clear()


@pytest.mark.parametrize("begin", [0, 7, 50])
def test_it_is_found(begin: int) -> None:
    whole = torch.arange(200.0, dtype=torch.float64)
    found = run.one_buffer(NETWORK, standing(begin, whole))
    assert found is not None
    assert found.equal(whole[begin : begin + TOTAL])
    assert found.data_ptr() == whole[begin:].data_ptr()
    assert not found.requires_grad


@pytest.mark.parametrize(
    "sources",
    [
        *(lambda k=k: moved(standing(0, torch.zeros(TOTAL)), k) for k in range(4)),
        lambda: standing(0, torch.zeros(TOTAL - 1)),
        lambda: standing(-1, torch.zeros(200)),
        lambda: standing(-1, torch.zeros(200)[1:]),
    ],
    ids=["one elsewhere", "another", "a third", "a fourth", "too short", "begins before", "begins before, in a view"],
)
def test_elsewhere_it_is_not(sources: Callable[[], Any]) -> None:
    assert run.one_buffer(NETWORK, sources()) is None
