"""Programs for torch.nn, changed by `swap` alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

import anyrnn.torch
from benchmarks.measure import Blocks, measure
from tests.torch import programs

PROGRAMS = {
    "tagger": (programs.tagger, 60),
    "actor-critic": (programs.actor_critic, 60),
    "language model": (programs.language_model, 60),
}
each = pytest.mark.parametrize(("program", "steps"), PROGRAMS.values(), ids=PROGRAMS)


def left_as_it_is(model: nn.Module) -> nn.Module:
    return model


@each
@pytest.mark.filterwarnings("error::UserWarning")
def test_losses_are_those_of_torch(program: Callable[..., list[float]], steps: int) -> None:
    swapped: list[nn.Module] = []

    def change(model: nn.Module) -> nn.Module:
        found = anyrnn.torch.swap(model)
        swapped.extend(m for m in found.modules() if isinstance(m, anyrnn.torch.LSTM))
        assert not any(isinstance(m, nn.RNNBase) for m in found.modules())
        return found

    losses, expected = program(change, steps), program(left_as_it_is, steps)
    assert swapped
    assert losses == pytest.approx(expected, rel=1e-8)
    assert min(expected[-10:]) < 0.9 * expected[0], "it learns"


SIZES = {
    "tagger": {"hidden": 200, "samples": 32, "longest": 40},
    "actor-critic": {"hidden": 256, "samples": 16, "length": 20},
    "language model": {"hidden": 512, "samples": 20, "length": 35},
}


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("name", PROGRAMS)
def test_they_are_faster(name: str) -> None:
    program, _ = PROGRAMS[name]

    def run(change: Callable[[nn.Module], nn.Module]) -> None:
        program(change, 12, **SIZES[name], dtype=torch.float32)  # of which `swap` takes less than one

    times = measure({"ours": partial(run, anyrnn.torch.swap), "theirs": partial(run, left_as_it_is)}, Blocks(rounds=5, calls=3))
    print({system: timing.median for system, timing in times.items()})
    assert times["ours"].median < times["theirs"].median
