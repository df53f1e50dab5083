"""Layers, and networks at run time, whose matrices are multiplied as integers of eight bits."""

from __future__ import annotations

import numpy as np
import pytest

import anyrnn
from anyrnn import UnsupportedError, backends, runtime
from tests.runtime.test_networks import draw, given, small

D, H = 19, 37


def near(found: np.ndarray, exact: np.ndarray) -> bool:
    return bool(np.linalg.norm(found - exact) < 0.03 * np.linalg.norm(exact))


@pytest.mark.parametrize("name", ["lstm", "gru", "lstm_heads", "rnn_tanh"])
def test_a_layer(name: str) -> None:
    layer, x = anyrnn.Recurrent(name, D, H, 2, seed=0), draw(9, 3, D)
    exact, rounded = layer(x)[0], layer.in_int8()
    found, state = rounded(x)
    assert not np.array_equal(found, exact)
    assert near(found, exact)
    assert np.array_equal(layer(x)[0], exact)
    stream = rounded.stream(3)
    assert np.array_equal(np.stack([stream(step) for step in x]), found)
    halves = [rounded(x[:4]), None]
    halves[1] = rounded(x[4:], halves[0][1])
    assert np.array_equal(np.concatenate([half[0] for half in halves]), found)
    for a, b in zip(halves[1][1], state, strict=True):
        assert np.array_equal(a, b)
    assert near(rounded(x, lengths=[9, 0, 4])[0], layer(x, lengths=[9, 0, 4])[0])


def test_its_parameters_are_its_own() -> None:
    layer, x = anyrnn.Recurrent("gru", D, H, seed=0), draw(4, 2, D)
    rounded = layer.in_int8()
    found = rounded(x)[0]
    layer.parameters["weight_hh_l0"] += 1
    assert np.array_equal(rounded(x)[0], found)
    assert not rounded.parameters["weight_hh_l0"].flags.writeable
    assert layer.parameters["weight_hh_l0"].flags.writeable


def test_residual_layers() -> None:
    layer, x = anyrnn.Recurrent("gru", D, H, 3, seed=0, residual=True), draw(9, 3, D)
    found, exact = layer.in_int8()(x)[0], layer(x)[0]
    assert not np.array_equal(found, exact)
    assert near(found, exact)


def test_what_cannot_be() -> None:
    layer = anyrnn.Recurrent("gru", D, H, seed=0)
    with pytest.raises(UnsupportedError, match="products of int8 have no gradients"):
        layer.in_int8().forward_training(draw(4, 2, D))
    with pytest.raises(UnsupportedError, match="in_int8: products of int8 are for float32, got float64"):
        anyrnn.Recurrent("gru", D, H, dtype="float64").in_int8()
    with pytest.raises(UnsupportedError, match="in_int8: backend='reference' was asked for"):
        anyrnn.Recurrent("gru", D, H, backend="reference").in_int8()
    network = small("gru", backend="reference")
    with pytest.raises(UnsupportedError, match=r"^rnn: in_int8: backend='reference' was asked for"):
        network.in_int8()


def test_without_llvmlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_llvm", lambda: (None, "llvmlite cannot be imported"))
    backends.why_not_native.cache_clear()
    try:
        with pytest.raises(UnsupportedError, match="in_int8: llvmlite cannot be imported"):
            anyrnn.Recurrent("gru", D, H).in_int8()
    finally:
        backends.why_not_native.cache_clear()


def test_it_is_told() -> None:
    told = anyrnn.explain(anyrnn.Recurrent("gru", D, H).in_int8(), draw(4, 2, D))
    assert [p.name for p in told.passes] == ["inference"]
    assert told.call.endswith("4 steps of 2 samples, float32 with products of int8")


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_a_network(name: str) -> None:
    network, rows = small(name), 3
    rounded, x = network.in_int8(), given(network, 9, rows)
    found, exact = rounded.run(x)[0], network.run(x)[0]
    assert not np.array_equal(found, exact)
    assert near(found, exact)
    stream = rounded.stream(rows)
    assert np.array_equal([stream.step({key: array[t] for key, array in x.items()}) for t in range(9)], found)


def test_embeddings_stand_in_tables() -> None:
    layer = anyrnn.Recurrent("lstm", 8, H, seed=0)
    layers = [runtime.Embedding("e", ["x"], draw(11, 8)), runtime.Recurrent.of("r", ["e"], layer)]
    network = runtime.Network(None, layers)
    x = np.random.default_rng(0).integers(0, 11, (6, 2))
    found, exact = network.in_int8().run(x)[0], network.run(x)[0]
    assert not np.array_equal(found, exact)
    assert near(found, exact)


def test_a_network_is_saved_as_it_was(tmp_path) -> None:
    network = small("gru")
    network.in_int8().save(tmp_path / "a.safetensors")
    network.save(tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
