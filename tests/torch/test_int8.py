"""Frozen modules whose matrices are multiplied as integers of eight bits."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyrnn
import anyrnn.torch
from anyrnn import UnsupportedError
from tests.budget import IN_INT8

T, N, D, H = 7, 5, 11, 40


def layer_of(kind: str = "lstm", **options: Any) -> Any:
    torch.manual_seed(0)
    return anyrnn.torch.Recurrent(kind, D, H, **options).eval()


def run(layer: Any, *given: Any, **call: Any) -> torch.Tensor:
    with torch.no_grad():
        return layer(*given, **call)[0].clone()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(T, N, D, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", ["lstm", "gru", "lstm_heads", "gru_layernorm"])
def test_results_are_near_and_others(kind: str, x: torch.Tensor) -> None:
    layer = layer_of(kind, num_layers=2, bidirectional=True)
    exact = run(layer, x)
    found = run(layer.freeze(int8=True), x)
    assert not torch.equal(found, exact)
    assert (found - exact).norm() < IN_INT8 * exact.norm()
    assert all(torch.equal(run(layer, x), found) for _ in range(3))
    assert layer._earlier.repeated, "the last ones were remembered"


CALLS: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "lengths": lambda layer, x: run(layer, x, lengths=[7, 0, 3, 7, 1]),
    "mask": lambda layer, x: run(layer, x, mask=torch.rand(T, N, generator=torch.Generator().manual_seed(2)) > 0.4),
    "last": lambda layer, x: run(layer, x, return_outputs="last"),
    "states": lambda layer, x: run(layer, x, return_states="all"),
    "stepwise": lambda layer, x: torch.cat(stepwise(layer, x)),
}


def stepwise(layer: Any, x: torch.Tensor) -> list[torch.Tensor]:
    found, state = [], None
    for step in x:
        with torch.no_grad():
            y, state = layer(step[None], state)
        found.append(y.clone())
    return found


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "residual": True}, {"dropout": 0.5, "num_layers": 2}], ids=str)
@pytest.mark.parametrize("call", CALLS)
def test_every_call(call: str, options: dict[str, Any], x: torch.Tensor) -> None:
    layer = layer_of("gru", **options)
    exact = CALLS[call](layer, x)
    layer.freeze(int8=True)
    found = CALLS[call](layer, x)
    assert not torch.equal(found, exact)
    assert (found - exact).norm() < IN_INT8 * exact.norm()
    if call == "stepwise":
        assert torch.equal(found, run(layer, x))


@pytest.mark.parametrize("end", ["train", "freeze"])
def test_it_ends(end: str, x: torch.Tensor) -> None:
    layer = layer_of()
    exact = run(layer, x)
    layer.freeze(int8=True)
    found = run(layer, x)
    if end == "train":
        layer.train().eval()
        layer(x)[0].sum().backward()
        assert layer.weight_hh_l0.grad is not None
    else:
        layer.freeze()
    assert torch.equal(run(layer, x), exact)
    assert torch.equal(run(layer.freeze(int8=True), x), found)


@pytest.mark.parametrize("wanted", ["parameters", "input", "state"])
def test_gradients_are_refused(wanted: str, x: torch.Tensor) -> None:
    layer = layer_of("gru").freeze(int8=True).requires_grad_(wanted == "parameters")
    given = x.requires_grad_(wanted == "input"), torch.zeros(1, N, H, requires_grad=wanted == "state")
    message = (
        r"Recurrent: a call with gradients: products of int8 have none; call it under torch.no_grad\(\), or thaw it by train\(\)"
    )
    for call in (layer, lambda *given: anyrnn.explain(layer, *given)):
        with pytest.raises(RuntimeError, match=message):
            call(*given)
    run(layer, *given)
    with torch.inference_mode():
        layer(*given)


def test_what_cannot_be(x: torch.Tensor) -> None:
    with pytest.raises(UnsupportedError, match=r"freeze\(int8=True\): it is for float32 on a CPU, got torch\.float64 on cpu"):
        layer_of(dtype=torch.float64).freeze(int8=True)
    with pytest.raises(UnsupportedError, match=r"it is for float32 on a CPU, got torch\.float32 on meta"):
        layer_of(device="meta").freeze(int8=True)
    with pytest.raises(UnsupportedError, match="backend='reference' was asked for"):
        layer_of(backend="reference").freeze(int8=True)
    with pytest.raises(RuntimeError, match=r"freeze\(\) is for evaluation"):
        layer_of().train().freeze(int8=True)
    layer = layer_of().freeze(int8=True)
    layer.to(torch.float64)
    with pytest.raises(UnsupportedError, match=r"got torch\.float64 on cpu"):
        run(layer, x.double())
    layer.to(torch.float32)
    run(layer, x)


@pytest.mark.parametrize("way", ["vmap", "jvp"])
def test_transformations_are_refused(way: str, x: torch.Tensor) -> None:
    layer = layer_of().freeze(int8=True).requires_grad_(False)
    ways = {
        "vmap": lambda: torch.func.vmap(lambda x: layer(x)[0])(x[None]),
        "jvp": lambda: torch.func.jvp(lambda x: layer(x)[0], (x,), (x,)),
    }
    with pytest.raises(UnsupportedError, match=r"freeze\(int8=True\) is for native kernels|products of int8 have no gradients"):
        ways[way]()


def test_changed_parameters_are_seen(x: torch.Tensor) -> None:
    layer = layer_of().freeze(int8=True)
    run(layer, x)
    with torch.no_grad():
        layer.weight_hh_l0 *= 2
    other = layer_of()
    other.load_state_dict(layer.state_dict())
    assert torch.equal(run(layer, x), run(other.freeze(int8=True), x))


def test_copies(x: torch.Tensor) -> None:
    layer = layer_of().freeze(int8=True)
    found = run(layer, x)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(run(other, x), found)
        assert torch.equal(run(other.freeze(), x), run(layer_of(), x))


@pytest.mark.slow
def test_compiled(x: torch.Tensor) -> None:
    layer = layer_of()
    compiled = torch.compile(layer, fullgraph=True)
    exact = run(compiled, x)
    layer.freeze(int8=True)
    found = run(layer, x)
    assert not torch.equal(found, exact)
    assert torch.equal(run(compiled, x), found)
    exported = torch.export.export(layer.requires_grad_(False), (x,)).module()
    assert torch.equal(exported(x)[0], found)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_exported_programs_refuse_what_layers_refuse(dtype: torch.dtype, x: torch.Tensor) -> None:
    layer = layer_of().freeze(int8=True)
    with torch.no_grad():
        exported = torch.export.export(layer, (x,)).module()
        assert torch.equal(exported(x)[0], layer(x)[0])
    with pytest.raises(UnsupportedError, match="products of int8 have no gradients"):
        exported(x)[0].sum().backward()
    with pytest.raises(UnsupportedError, match="products of int8 are for float32, got"), torch.no_grad():
        exported.to(dtype)(x.to(dtype))


def test_modules_of_torch_have_no_such_products() -> None:
    model = torch.nn.Sequential(anyrnn.torch.GRU(D, H)).eval()
    anyrnn.torch.freeze(model, int8=True)
    with pytest.raises(UnsupportedError, match="swap_back: 0 has products of int8"):
        anyrnn.torch.swap_back(model)
    anyrnn.torch.swap_back(anyrnn.torch.freeze(model))
    assert type(model[0]) is torch.nn.GRU


def test_an_older_pickle_has_none(x: torch.Tensor) -> None:
    layer = layer_of()
    state = layer.__reduce_ex__(2)[2]
    assert "int8" not in str(sorted(state))
    other = type(layer).__new__(type(layer))
    other.__setstate__({name: value for name, value in state.items() if name != "_int8"})
    assert not other.int8
    assert torch.equal(run(other, x), run(layer, x))
    with pytest.raises(AttributeError):
        layer.int8 = True


def test_it_is_told(x: torch.Tensor) -> None:
    layer = layer_of().freeze(int8=True)
    with torch.no_grad():
        told = str(anyrnn.explain(layer, x))
    assert "float32 with products of int8" in told
    assert "llvm: native kernels" in told


def test_a_single_cell(x: torch.Tensor) -> None:
    cell = anyrnn.torch.GRUCell(D, H).eval()
    exact = cell(x[0]).detach()
    cell.freeze(int8=True)
    with torch.no_grad():
        found = cell(x[0])
    assert not torch.equal(found, exact)
    assert (found - exact).norm() < IN_INT8 * exact.norm()


def test_a_model(x: torch.Tensor) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(D, D), torch.nn.ModuleDict({"a": torch.nn.GRU(D, H), "b": torch.nn.LSTM(D, H)}))
    with pytest.raises(ValueError, match="the model has no layer of anyrnn"):
        anyrnn.torch.freeze(model.eval())
    with pytest.raises(TypeError, match=r"freeze: model should be a torch\.nn\.Module, got GRU"):
        anyrnn.torch.freeze(anyrnn.torch.GRU)
    layers = anyrnn.torch.swap(model)[1]
    exact = run(layers["a"], x)
    layers["b"].double()
    with pytest.raises(UnsupportedError, match="LSTM: freeze"):
        anyrnn.torch.freeze(model, int8=True)
    assert torch.equal(run(layers["a"], x), exact)
    layers["b"].float()
    assert anyrnn.torch.freeze(model, int8=True) is model
    assert not torch.equal(run(layers["a"], x), exact)
    assert layers["b"].int8
    assert torch.equal(run(model.train().eval()[1]["a"], x), exact)
