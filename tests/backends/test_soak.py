"""Many calls, and many shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import anyrnn
from anyrnn.backends.llvm import pools, run, target

MOST_RESTING = pools.MOST_RESTING


@pytest.fixture(autouse=True)
def memory_rests(poisoned_scratch: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between calls, as it does outside tests."""
    monkeypatch.setattr(pools, "MOST_RESTING", MOST_RESTING)


def resident_bytes() -> int:
    account = Path("/proc/self/statm")
    if not account.exists():
        pytest.skip("this system does not tell a process's memory")
    return int(account.read_text().split()[1]) * 4096


def compiled_so_far() -> int:
    return run.compiled.cache_info().misses


@pytest.mark.parametrize("count", [1_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_memory_stays_as_it_is(count: int) -> None:
    layer = anyrnn.Recurrent("lstm", 3, 5, seed=0, backend="llvm")
    x = np.ones((2, 1, 3), np.float32)

    def calls(number: int) -> None:
        for _ in range(number):
            output, _, reserve = layer.forward_training(x)
            layer.backward(reserve, output)
            layer(x)

    calls(500)
    before = resident_bytes()
    calls(count // 3)
    assert resident_bytes() - before < 2**20


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_new_shapes_compile_nothing(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = np.random.default_rng(0).integers(1, 40, (count, 4))
    layer = anyrnn.Recurrent("gru", 2, 3, seed=0, backend="llvm")

    def trained(layer: anyrnn.Recurrent, steps: int, rows: int) -> None:
        output, _, reserve = layer.forward_training(np.ones((steps, rows, layer.network.input_size), np.float32))
        layer.backward(reserve, output)

    trained(layer, 2, 2)
    layer(np.ones((1, 1, 2), np.float32))
    before = compiled_so_far()

    def never(*_: object) -> bytes:
        raise AssertionError("something was compiled")

    monkeypatch.setattr(target, "object_code", never)
    for steps, rows, features, hidden in sizes.tolist():
        layer = anyrnn.Recurrent("gru", features, hidden, seed=0, backend="llvm")
        trained(layer, steps, rows)
        layer(np.ones((steps, rows, features), np.float32))
    assert compiled_so_far() == before
    assert len(run.POOLS.known) <= run.POOLS.limit
    assert 1 <= len(pools.RESTING) <= MOST_RESTING
