"""What a call costs beside the work: held against an autograd function that does nothing, in the same process.

On the machine for which the limits were set (8 microseconds for inference, 40 for forward and backward), such a function with
tensors in and out like an LSTM's takes 35.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyrnn.torch

NOTHING, INFERENCE, TRAINING = 35.0, 8.0, 40.0


class Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, shape: None, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = new(tensors[0])
        ctx.save_for_backward(*tensors, torch.empty(1000, dtype=torch.uint8))
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        tensors = ctx.saved_tensors
        return None, None, *[torch.empty_like(t) for t in tensors[1:-1]]


def new(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Room for an LSTM's results."""
    return x.new_empty((1, 1, 1)), x.new_empty((1, 1, 1)), x.new_empty((1, 1, 1))


class Room(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return new(x)


def quickest(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of a call, the least of several blocks of each."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(8):
        for name, call in calls.items():
            for _ in range(20):
                call()
            start = time.perf_counter()
            for _ in range(500):
                call()
            found[name] = min(found[name], (time.perf_counter() - start) / 500)
    return found


@pytest.mark.slow
@pytest.mark.timing
def test_our_part_of_a_small_call() -> None:
    layer, room = anyrnn.torch.LSTM(1, 1), Room()
    x, ones, parameters = torch.zeros(1, 1, 1), torch.ones(1, 1, 1), list(layer.parameters())

    def trained(results: Callable[[], Any]) -> Callable[[], None]:
        def call() -> None:
            for parameter in parameters:
                parameter.grad = None
            results()[0].backward(ones)

        return call

    training = {"ours": trained(lambda: layer(x)), "nothing": trained(lambda: Nothing.apply(None, x, *parameters))}
    found = quickest(training)
    with torch.no_grad():
        inference = quickest({"ours": lambda: layer(x), "room": lambda: room(x)})
    unit = found["nothing"] / NOTHING
    ours = {"inference": inference["ours"] - inference["room"], "training": found["ours"] - found["nothing"]}
    print({name: f"{seconds * 1e6:.1f} us, {seconds / unit:.1f} on that machine" for name, seconds in ours.items()})
    assert ours["inference"] <= INFERENCE * unit
    assert ours["training"] <= TRAINING * unit
