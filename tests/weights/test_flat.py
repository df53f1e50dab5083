"""The flat vector in cuDNN's order, against JAX, which has cuDNN's; first values of single gates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.prune import l1_unstructured

import anyrnn.torch
from anyrnn import weights

SHAPES = [{}, {"num_layers": 2}, {"num_layers": 2, "bidirectional": True}]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_order_is_that_of_cudnn(shape: dict[str, Any]) -> None:
    rnn = pytest.importorskip("jax.experimental.rnn")
    layer = anyrnn.Recurrent("lstm", 3, 5, seed=0, **shape)
    vector = weights.pack(layer)
    layers, both = shape.get("num_layers", 1), shape.get("bidirectional", False)
    assert vector.shape == (rnn.get_num_params_in_lstm(3, 5, layers, both),)
    assert vector.dtype == np.float32
    parts = rnn.unpack_lstm_weights(vector, 3, 5, layers, both)
    units = [layer.network.suffix(*unit) for unit in layer.network.units]
    for name, of_kind in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), parts, strict=True):
        for k, suffix in enumerate(units):
            np.testing.assert_array_equal(of_kind[k], layer.parameters[name + suffix])


@pytest.mark.parametrize("cell", ["lstm_projected", "lstm_peephole", "lstm_layernorm", "indrnn"])
def test_any_cell_has_matrices_before_vectors(cell: str) -> None:
    sizes = {"proj": 2} if cell == "lstm_projected" else {}
    layer = anyrnn.Recurrent(cell, 3, 5, 2, seed=0, **sizes)
    vector = weights.pack(layer)
    found = weights.views(layer, vector)
    assert found.keys() == layer.parameters.keys()
    assert [a.ndim for a in found.values()] == sorted((a.ndim for a in layer.parameters.values()), reverse=True)
    for name, view in found.items():
        np.testing.assert_array_equal(view, layer.parameters[name])
        view += 1.0
    other = anyrnn.Recurrent(cell, 3, 5, 2, seed=1, **sizes)
    weights.unpack(other, vector)
    for name, array in layer.parameters.items():
        np.testing.assert_array_equal(other.parameters[name], array + 1)
    vector[:] = 0
    assert other.parameters["weight_ih_l0"].any(), "it has a copy"


@pytest.mark.parametrize("make", [lambda: anyrnn.torch.GRU(3, 5, 2), lambda: anyrnn.torch.GRUCell(3, 5)], ids=["GRU", "GRUCell"])
def test_torch(make: Any) -> None:
    module, other = make(), make()
    vector = weights.pack(module)
    assert isinstance(vector, torch.Tensor)
    assert not vector.requires_grad
    weights.unpack(other, vector)
    for a, b in zip(other.parameters(), module.parameters(), strict=True):
        assert a.equal(b)
        assert a.requires_grad
    for view, parameter in zip(
        weights.views(module, vector).values(), [p for d in (2, 1) for p in module.parameters() if p.dim() == d], strict=True
    ):
        assert view.equal(parameter)


def test_a_vector_of_another_size_is_refused() -> None:
    layer = anyrnn.Recurrent("gru", 3, 5)
    with pytest.raises(ValueError, match=r"the vector should have shape \(150,\), got \(149,\)"):
        weights.unpack(layer, np.zeros(149))


@pytest.mark.parametrize("make", [anyrnn.Recurrent, anyrnn.torch.Recurrent], ids=["numpy", "torch"])
def test_a_layer_without_parameters(make: Any) -> None:
    layer = make("hgrn", 3, 3, skip_input=True, bias="recurrent")
    vector = weights.pack(layer)
    assert tuple(vector.shape) == (0,)
    weights.unpack(layer, vector)


@pytest.mark.parametrize("of_torch", [False, True])
def test_first_values_of_gates(of_torch: bool) -> None:
    layer: Any = (anyrnn.torch.Recurrent if of_torch else anyrnn.Recurrent)("lstm", 3, 5, 2, bidirectional=True)

    def parameters() -> dict[str, Any]:
        return {
            n: p.detach().numpy().copy() if of_torch else p.copy()
            for n, p in (layer.named_parameters() if of_torch else layer.parameters.items())
        }

    before = parameters()
    weights.initialise(layer, {"bias_ih f": 1.0, "weight_hh": weights.orthogonal, "weight_hh g": weights.identity}, seed=0)
    after = parameters()
    for name, array in after.items():
        assert array.dtype == np.float32
        gates, old = np.split(array, 4), np.split(before[name], 4)
        for gate, now, then in zip("ifgo", gates, old, strict=True):
            if name.startswith("weight_hh"):
                np.testing.assert_allclose(now @ now.T, np.eye(5), atol=1e-6)
                assert np.array_equal(now, np.eye(5)) is (gate == "g")
            elif name.startswith("bias_ih") and gate == "f":
                np.testing.assert_array_equal(now, 1)
            else:
                np.testing.assert_array_equal(now, then)
    assert not np.array_equal(after["weight_hh_l0"][:5], after["weight_hh_l1"][:5])


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (4, 4)])
def test_orthogonal(shape: tuple[int, int]) -> None:
    found = weights.orthogonal(shape, np.random.default_rng(0))
    assert found.shape == shape
    square = found @ found.T if shape[0] <= shape[1] else found.T @ found
    np.testing.assert_allclose(square, np.eye(min(shape)), atol=1e-12)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bias_ih x": 1.0}, "unknown: bias_ih x; this layer has weight_ih, weight_ih r, weight_ih z, weight_ih n, weight_hh"),
        ({"weight_hh": 1.0, "bias": 0.0}, "unknown: bias;"),
        ({"bias_ih r": np.ones(4)}, r"bias_ih r: values should have shape \(5,\), got \(4,\)"),
    ],
)
def test_wrong_first_values_are_refused_before_anything_changes(values: dict[str, Any], message: str) -> None:
    layer = anyrnn.Recurrent("gru", 3, 5, seed=0)
    before = weights.pack(layer)
    with pytest.raises(ValueError, match=message):
        weights.initialise(layer, values)
    np.testing.assert_array_equal(weights.pack(layer), before)


def test_a_parametrisation_is_given_what_it_computes() -> None:
    layer = anyrnn.torch.GRU(3, 4)
    torch.nn.utils.parametrizations.weight_norm(layer, "weight_hh_l0")
    weights.unpack(layer, torch.ones_like(weights.pack(layer)))
    torch.testing.assert_close(weights.pack(layer), torch.ones_like(weights.pack(layer)))
    weights.initialise(layer, {"weight_hh": 7.0})
    torch.testing.assert_close(layer.weight_hh_l0, torch.full((12, 4), 7.0))


def test_what_a_hook_computes_is_refused() -> None:
    layer = anyrnn.torch.GRU(3, 4)
    l1_unstructured(layer, "weight_hh_l0", 0.5)  # type: ignore[no-untyped-call]
    before = weights.pack(layer)
    with pytest.raises(TypeError, match="weight_hh_l0 is computed by a hook"):
        weights.unpack(layer, torch.zeros_like(before))
    assert torch.equal(weights.pack(layer), before)


def test_bfloat16() -> None:
    layer = anyrnn.torch.GRU(3, 4, dtype=torch.bfloat16)
    weights.initialise(layer, {"bias_ih z": 1.0})
    assert layer.bias_ih_l0[4:8].tolist() == [1.0] * 4


def test_what_is_no_vector_no_layer_and_no_number() -> None:
    layer = anyrnn.torch.GRU(3, 4)
    with pytest.raises(ValueError, match="got list"):
        weights.unpack(layer, [1.0])
    with pytest.raises(TypeError, match="swap makes ours of torch"):
        weights.pack(torch.nn.GRU(3, 4))
    with pytest.raises(TypeError, match="values should be numbers"):
        weights.initialise(layer, {"bias_hh": 1j})  # type: ignore[dict-item]
