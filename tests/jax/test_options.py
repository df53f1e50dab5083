"""Every option of layers and of calls, by kernels and by the scan, as NumPy's layers have it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import anyrnn.jax  # noqa: E402
from tests.jax.layers import Given, assert_close, assert_same, on_jax, on_numpy, pair, seed_of  # noqa: E402
from tests.options import COMBINATIONS, options_of, shape_of, title  # noqa: E402

pytestmark = pytest.mark.usefixtures("quick_compile")

QUICK = ("recurrent_dropout", "merge", "residual", "learned_state", "clip_gradient")
"""Options that differ in what they ask of the front-end."""
T, N = 6, 4
random = np.random.default_rng(7)
MASK, RESET = random.random((T, N)) < 0.6, random.random((T, N)) < 0.3
MASK[:, 2] = False
CALLS: dict[str, dict[str, Any]] = {
    "dense": {},
    "lengths": {"lengths": [3, 0, 6, 1]},
    "mask_and_reset": {"mask": MASK, "reset": RESET, "padding": "last"},
    "reset": {"reset": RESET},
    "last": {"return_outputs": "last"},
    "last_of_mask": {"mask": MASK, "return_outputs": "last", "padding": 2.0},
    "all_states": {"return_states": "all"},
    "all_states_of_mask": {"mask": MASK, "reset": RESET, "return_states": "all", "return_outputs": "last", "padding": -1.0},
    "none": {"return_outputs": "none"},
}


def layers(cell: str, names: Any, backend: str = "auto", **more: Any) -> Any:
    options = options_of(cell, names)
    shape = shape_of(cell, options, 6, 5) | more
    sizes = (shape.pop("input_size"), shape.pop("hidden_size"))
    return pair(cell, *sizes, backend=backend, **shape, **options)


@pytest.mark.parametrize("call", ["dense", pytest.param("mask_and_reset", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "names",
    [pytest.param(n, marks=() if len(n) == 1 and n[0] in QUICK else pytest.mark.slow, id=title(n)) for n in COMBINATIONS],
)
@pytest.mark.parametrize("cell", ["gru", *(pytest.param(name, marks=pytest.mark.slow) for name in ("lstm", "gru_before"))])
def test_options_of_layers(cell: str, names: list[str], call: str) -> None:
    layer, layer_of_numpy = layers(cell, names)
    given = Given(layer_of_numpy, T, N, CALLS[call], with_state="learned_state" not in names)
    key = jax.random.key(3)
    expected = on_numpy(given, seed_of(key))
    assert_close(on_jax(layer, given, key), expected, 1e-6)
    scan, _ = layers(cell, names, backend="reference")
    assert_close(on_jax(scan, given, key), expected, 3e-5)


@pytest.mark.parametrize("batch_first", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["time_first", "batch_first"])
@pytest.mark.parametrize("call", CALLS)
def test_options_of_calls(call: str, batch_first: bool) -> None:
    options: dict[str, Any] = {"bidirectional": True, "batch_first": batch_first}
    layer, layer_of_numpy = pair("gru", 5, 6, **options)
    turned = {k: a.T if batch_first and isinstance(a, np.ndarray) else a for k, a in CALLS[call].items()}
    given = Given(layer_of_numpy, T, N, turned)
    expected = on_numpy(given)
    assert_close(on_jax(layer, given), expected, 1e-6)
    scan, _ = pair("gru", 5, 6, backend="reference", **options)
    assert_close(on_jax(scan, given), expected, 3e-5)


def test_what_is_drawn_has_its_mean_without_a_key() -> None:
    layer, layer_of_numpy = pair("gru", 5, 6, zoneout=0.4)
    given = Given(layer_of_numpy, T, N, {})
    expected = on_numpy(given)
    assert_close(on_jax(layer, given), expected, 1e-6)
    scan, _ = pair("gru", 5, 6, zoneout=0.4, backend="reference")
    assert_close(on_jax(scan, given), expected, 3e-5)


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_without_a_batch(backend: str) -> None:
    layer, layer_of_numpy = pair("lstm", 3, 5, backend=backend, bidirectional=True)
    x = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    mask = np.arange(7) != 2
    y, (h, c) = layer.apply(layer_of_numpy.parameters, x, mask=mask, reset=~mask)
    expected, states = layer_of_numpy(x, mask=mask, reset=~mask)
    for one, other in zip((y, h, c), (expected, *states), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    again, state = layer.apply(layer_of_numpy.parameters, x, (h, c), return_outputs="last", return_states="all")
    assert again.shape == (10,)
    assert state[0].shape == (2, 7, 5)


def test_a_mask_value() -> None:
    layer, layer_of_numpy = pair("gru", 3, 5)
    x = np.random.default_rng(0).normal(size=(7, 2, 3)).astype(np.float32)
    x[2:4, 1] = -1
    y, _ = layer.apply(layer_of_numpy.parameters, x, mask_value=-1.0)
    np.testing.assert_array_equal(y, layer_of_numpy(x, mask_value=-1.0)[0])


def test_a_key_draws_and_none_does_not() -> None:
    layer = anyrnn.jax.Recurrent("gru", 3, 5, num_layers=2, dropout=0.5)
    parameters, x = layer.init(jax.random.key(0)), np.ones((4, 2, 3), np.float32)
    plain = layer.apply(parameters, x, train=False)[0]
    drawn = [layer.apply(parameters, x, key=jax.random.key(k))[0] for k in (1, 1, 2)]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    assert not np.array_equal(drawn[0], plain)
    assert np.array_equal(layer.apply(parameters, x, key=jax.random.PRNGKey(1))[0], drawn[0])


def test_a_memory_budget() -> None:
    layer, layer_of_numpy = pair("lstm", 64, 64, memory_budget=3_000_000)
    whole, _ = pair("lstm", 64, 64)
    for call in ({}, {"lengths": [1500, 1400, 1300]}):
        given = Given(layer_of_numpy, 1500, 3, call)
        assert_same(on_jax(layer, given), on_jax(whole, given))
        text = str(jax.make_jaxpr(jax.grad(lambda p: layer.apply(p, given.x, **call)[0].sum()))(layer_of_numpy.parameters))  # noqa: B023
        assert "u8[3000000]" in text
    little, _ = pair("lstm", 64, 64, memory_budget=9)
    assert np.array_equal(little.apply(layer_of_numpy.parameters, given.x)[0], whole.apply(layer_of_numpy.parameters, given.x)[0])


@pytest.mark.parametrize("hole", [np.nan, pytest.param(np.inf, marks=pytest.mark.slow)])
@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("cell", ["lstm", pytest.param("rwkv4", marks=pytest.mark.slow)])
def test_steps_that_are_not_there_may_hold_anything(cell: str, backend: str, hole: float) -> None:
    layer, layer_of_numpy = pair(cell, 5, 5, backend=backend, bidirectional=cell == "lstm")
    x = np.random.default_rng(0).normal(size=(7, 2, 5)).astype(np.float32)
    filled = x.copy()
    filled[5:, 1] = hole

    def loss(p: Any, x: Any) -> Any:
        return (layer.apply(p, x, lengths=[7, 5])[0] ** 2).sum()

    def of_gradient(p: Any, x: Any) -> Any:
        return sum((a**2).sum() for a in jax.tree.leaves(jax.grad(loss, (0, 1))(p, x)))

    h = np.full((2, 2, 5), hole, np.float32)
    h[:, 0] = 0.5
    if cell == "lstm":  # the state of a sample without steps
        _, last = layer.apply(layer_of_numpy.parameters, x, [h, h], lengths=[7, 0])
        assert np.array_equal(last[0][:, 1], h[:, 1], equal_nan=True)
        given = jax.grad(lambda p: (layer.apply(p, x, [h, h], lengths=[7, 0])[0] ** 2).sum())(layer_of_numpy.parameters)
        assert all(np.all(np.isfinite(a)) for a in given.values())
    for function in (loss, of_gradient):
        compiled = jax.jit(jax.value_and_grad(function, (0, 1)))
        found, expected = (compiled(layer_of_numpy.parameters, a) for a in (filled, x))
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(a, b)


def test_float64() -> None:
    with jax.enable_x64(True):
        layer, layer_of_numpy = pair("gru", 3, 5, dtype=np.float64)
        given = Given(layer_of_numpy, T, N, {"lengths": [3, 0, 6, 1]})
        assert_same(on_jax(layer, given), on_numpy(given))


def test_sixteen_bits() -> None:
    layer = anyrnn.jax.Recurrent("gru", 3, 5)
    parameters = layer.init(jax.random.key(0), dtype="bfloat16")
    x = jax.random.normal(jax.random.key(1), (7, 2, 3), "bfloat16")
    y, h = layer.apply(parameters, x)
    wide = {name: a.astype("float32") for name, a in parameters.items()}
    expected, last = layer.apply(wide, x.astype("float32"))
    assert y.dtype == h.dtype == "bfloat16"
    assert np.array_equal(y, expected.astype("bfloat16"))
    assert np.array_equal(h, last.astype("bfloat16"))
    gradients = jax.grad(lambda p: layer.apply(p, x)[0].sum())(parameters)
    assert {a.dtype.name for a in gradients.values()} == {"bfloat16"}
