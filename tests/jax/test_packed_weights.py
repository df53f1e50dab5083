"""Weights that stay packed between inference calls in JAX: whatever stands where they stood is seen."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import anyrnn.jax  # noqa: E402
from anyrnn.jax import native  # noqa: E402

LAYER = anyrnn.jax.Recurrent("gru", 8, 64)
X = np.random.default_rng(0).standard_normal((4, 3, 8), np.float32)


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    """What is kept from now on."""
    found: dict[Any, Any] = {}
    monkeypatch.setattr(native, "_packed", found)
    return found


def parameters(seed: int) -> dict[str, Any]:
    return jax.tree.map(jax.numpy.asarray, LAYER.init(jax.random.key(seed)))


def check(found: Any, of: dict[str, Any], **given: Any) -> None:
    np.testing.assert_array_equal(found[0], LAYER.on_numpy(of)(X, **given)[0])


@pytest.mark.parametrize("given", [{}, {"lengths": [4, 0, 2]}], ids=str)
def test_each_call_has_its_own_parameters(given: dict[str, Any], packed: dict[Any, Any]) -> None:
    apply = jax.jit(lambda p: LAYER.apply(p, X, **given))
    for seed in range(4):
        mine = parameters(seed)
        for _ in range(3):
            check(apply(mine), mine, **given)
        for name in mine:  # where these stood others may stand
            mine[name] = mine[name] * 2
        check(apply(mine), mine, **given)
    assert packed


def test_they_are_packed_once(packed: dict[Any, Any]) -> None:
    mine = parameters(0)
    apply = jax.jit(lambda p: LAYER.apply(p, X))
    expected = np.array(apply(mine)[0])
    (packs,) = packed.values()
    (memory,) = packs.of(LAYER.network, "float32").rest
    memory.memory[:1024] = 0  # as no weights are
    assert not np.array_equal(apply(mine)[0], expected)
    assert not memory.memory[:1024].any()


def test_threads_have_memory_of_their_own(packed: dict[Any, Any]) -> None:
    apply, wrong = jax.jit(lambda p: LAYER.apply(p, X)), []
    mine = parameters(0)
    expected = np.array(apply(mine)[0])

    def call() -> None:
        wrong.extend(1 for _ in range(100) if not np.array_equal(apply(mine)[0], expected))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(packed) == 1


def test_there_is_a_limit(packed: dict[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    some = [parameters(seed) for seed in range(5)]
    apply = jax.jit(lambda p: LAYER.apply(p, X))
    apply(some[0])
    (packs,) = packed.values()
    monkeypatch.setattr(native, "MOST_PACKED", 2 * packs.bytes)
    for mine in some:
        check(apply(mine), mine)
    assert len(packed) == 3, "as many as have no more, and one that came after them"


def test_training_keeps_nothing(packed: dict[Any, Any]) -> None:
    jax.grad(lambda p: LAYER.apply(p, X)[0].sum())(parameters(0))
    assert not packed
