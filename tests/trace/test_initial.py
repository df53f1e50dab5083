"""What cells say of their parameters' first values, and parameters that stay as they begin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import anyrnn
import anyrnn.torch
from anyrnn import CellError, State, affine, cell, matrix, scalar, sigmoid, tanh, vector
from anyrnn.weights import chrono, identity, normal, orthogonal, uniform, xavier


@cell(init={"bias_ih f": 1.0, "weight_hh": orthogonal, "weight_hh n": identity})
def begun(x, h):
    f = sigmoid(affine("f", x, h))
    n = tanh(affine("n", x, h) + vector("shift", init=uniform(3, 4)) * h)
    h = f * h + scalar("rate", init=0.5) * n
    return h, State(h=h)


def layers() -> list[Any]:
    torch.manual_seed(0)
    return [
        anyrnn.Recurrent(begun, 3, 6, num_layers=2, bidirectional=True, seed=0),
        anyrnn.torch.Recurrent(begun, 3, 6, 2, bidirectional=True),
    ]


@pytest.mark.parametrize("layer", layers(), ids=["numpy", "torch"])
def test_gates_begin_as_the_cell_says(layer: Any) -> None:
    def value(name: str) -> Any:
        return layer.parameters[name] if isinstance(layer, anyrnn.Recurrent) else getattr(layer, name).detach().numpy()

    bound = 1 / np.sqrt(6)
    for suffix in ("_l0", "_l0_reverse", "_l1", "_l1_reverse"):
        bias, recurrent = value(f"bias_ih{suffix}"), value(f"weight_hh{suffix}")
        assert (bias[:6] == 1).all()
        assert (np.abs(bias[6:]) <= bound).all()
        np.testing.assert_allclose(recurrent[:6] @ recurrent[:6].T, np.eye(6), atol=1e-5)
        assert np.array_equal(recurrent[6:], np.eye(6))
        assert np.abs(value(f"weight_ih{suffix}")).max() <= bound
        assert ((value(f"shift{suffix}") >= 3) & (value(f"shift{suffix}") <= 4)).all()
        assert value(f"rate{suffix}") == 0.5
    assert not np.array_equal(value("weight_hh_l0")[:6], value("weight_hh_l1")[:6])


def test_first_values_that_are_views() -> None:
    @cell(init={"weight_hh": lambda shape, random: np.eye(*shape)[::-1]})
    def turned(x, h):  # type: ignore[no-untyped-def]
        h = tanh(affine("n", x, h))
        return h, State(h=h)

    for weight in (anyrnn.Recurrent(turned, 3, 4).parameters["weight_hh_l0"], anyrnn.torch.Recurrent(turned, 3, 4).weight_hh_l0):
        assert np.array_equal(np.asarray(weight.detach() if hasattr(weight, "detach") else weight), np.eye(4)[::-1])


@pytest.mark.parametrize("bias", [True, False])
def test_a_parameter_called_as_a_bias_that_affine_has_not(bias: bool) -> None:
    @cell
    def own_bias(x, h):  # type: ignore[no-untyped-def]
        h = tanh(affine("n", x, h, bias=False) + vector("bias_ih"))
        return h, State(h=h)

    assert "bias_ih_l0" in anyrnn.Recurrent(own_bias, 3, 4, bias=bias, seed=0).parameters


def test_first_values_follow_the_seed() -> None:
    one, same, other = (anyrnn.Recurrent(begun, 3, 6, seed=seed) for seed in (0, 0, 1))
    assert all(np.array_equal(one.parameters[name], same.parameters[name]) for name in one.parameters)
    assert not np.array_equal(one.parameters["weight_hh_l0"], other.parameters["weight_hh_l0"])
    in_torch = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        in_torch.append(anyrnn.torch.Recurrent(begun, 3, 6).weight_hh_l0.detach())
    assert torch.equal(in_torch[0], in_torch[1])
    assert not torch.equal(in_torch[0], in_torch[2])


def test_makers() -> None:
    random = np.random.default_rng(0)
    assert np.abs(xavier((30, 20), random)).max() <= np.sqrt(6 / 50)
    drawn = normal(2.0, 5.0)((100, 100), random)
    assert abs(drawn.mean() - 5) < 0.1
    assert abs(drawn.std() - 2) < 0.1
    biases = chrono(100)((1000,), random)
    assert biases.min() >= 0
    assert np.log(50) < biases.max() <= np.log(99)


def test_what_init_cannot_name() -> None:
    @cell(init={"bias_ih g": 1.0})
    def wrong(x, h):
        h = tanh(affine("f", x, h))
        return h, State(h=h)

    with pytest.raises(
        CellError, match=r"test_initial.py:\d+: cell 'wrong': init names 'bias_ih g', and affine has made weight_ih"
    ):
        wrong.trace()
    with pytest.raises(CellError, match="init names 'bias_ih g'"):
        anyrnn.Recurrent(wrong, 3, 4)


def test_init_of_parameters_that_options_leave_out() -> None:
    assert "bias_ih_l0" not in anyrnn.Recurrent(begun, 3, 6, bias=False).parameters


def test_first_values_of_another_shape() -> None:
    @cell
    def wrong(x, h):
        h = tanh(affine("f", x, h) + vector("v", init=lambda shape, random: np.zeros(3)))
        return h, State(h=h)

    with pytest.raises(ValueError, match=r"first values of parameter 'v' should have shape \(5,\), got \(3,\)"):
        anyrnn.Recurrent(wrong, 3, 5)


@pytest.mark.parametrize(
    ("maker", "message"),
    [
        (orthogonal, r", of shape \(5,\): ValueError: not enough values to unpack"),
        (lambda shape, random: None, " should be real numbers, got object"),
        (lambda shape, random: 1j * np.ones(shape), " should be real numbers, got complex128"),
    ],
    ids=["matrix", "nothing", "complex"],
)
@pytest.mark.parametrize("front_end", [anyrnn.Recurrent, anyrnn.torch.Recurrent], ids=["numpy", "torch"])
def test_first_values_that_are_none(front_end: Any, maker: Any, message: str) -> None:
    @cell(init={"bias_hh": maker})
    def wrong(x, h):
        h = tanh(affine("f", x, h))
        return h, State(h=h)

    with pytest.raises(ValueError, match=f"the first values of parameter 'bias_hh'{message}"):
        front_end(wrong, 3, 5)


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ("orthogonal", "should be a number or a function, got 'orthogonal': anyrnn.weights.orthogonal is one"),
        ([1.0], r"should be a number, or a function of a shape and a random generator, got \[1.0\]"),
        (float("nan"), "should be a number, got nan"),
    ],
    ids=["name", "list", "nan"],
)
def test_what_no_parameter_begins_as(init: Any, message: str) -> None:
    def step(x, h):
        h = tanh(affine("f", x, h) + vector("v", init=init))
        return h, State(h=h)

    with pytest.raises(CellError, match=f"cell 'step': init of 'bias_hh' {message}"):
        cell(step, init={"bias_hh": init})
    with pytest.raises(CellError, match=rf"test_initial.py:\d+: init of parameter 'v' {message}"):
        cell(step).trace()


@cell
def reservoir(x, h):
    h = tanh(affine("h", x) + matrix("reservoir", init=orthogonal, trained=False) @ h)
    return h, State(h=h)


def test_fixed_parameters_are_not_trained() -> None:
    module = anyrnn.torch.Recurrent(reservoir, 3, 5)
    assert {name for name, p in module.named_parameters() if not p.requires_grad} == {"reservoir_l0"}
    assert "reservoir_l0" in module.state_dict()
    module(torch.randn(4, 2, 3))[0].sum().backward()
    assert module.reservoir_l0.grad is None
    assert module.weight_ih_l0.grad is not None
    before = module.reservoir_l0.clone()
    optimiser = torch.optim.AdamW(module.parameters(), lr=0.1, weight_decay=0.5)
    optimiser.step()
    assert torch.equal(module.reservoir_l0, before)


def test_fixed_parameters_have_no_gradient_in_numpy() -> None:
    layer = anyrnn.Recurrent(reservoir, 3, 5, seed=0)
    x = np.random.default_rng(0).normal(size=(4, 2, 3)).astype("f")
    y, _, reserve = layer.forward_training(x)
    gradients = layer.backward(reserve, np.ones_like(y))[2]
    assert not gradients["reservoir_l0"].any()
    assert gradients["weight_ih_l0"].any()


def test_operands_that_are_none() -> None:
    @cell
    def alone(x, h):
        nothing = None
        h = tanh(affine("h", x, h, nothing) + affine("g", nothing))
        return h, State(h=h)

    assert [p.name for p in alone.trace().parameters] == ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]


def test_a_cell_inside_of_another_has_its_own_names() -> None:
    @cell
    def outer(x, first, second):
        with anyrnn.scope("a"):
            y, state = anyrnn.cells.rnn_tanh(x, first)
        with anyrnn.scope("b"):
            y, other = anyrnn.cells.rnn_tanh(y, second)
        return y, State(first=state.h, second=other.h)

    names = [p.name for p in outer.trace().parameters if p.name.endswith(("ih", "hh"))]
    assert names == [
        "a_weight_ih",
        "a_weight_hh",
        "b_weight_ih",
        "b_weight_hh",
        "a_bias_ih",
        "a_bias_hh",
        "b_bias_ih",
        "b_bias_hh",
    ]

    @cell
    def wrong(x, h):
        return anyrnn.cells.lstm(x, h)

    with pytest.raises(CellError, match="cell 'lstm' takes x, h, c; got 2 arguments"):
        wrong.trace()


def test_what_a_scope_says_of_first_values_ends_with_it() -> None:
    @cell(init={"bias_ih": 5.0})
    def inner(x, h):  # type: ignore[no-untyped-def]
        with anyrnn.scope("s", init={"weight_hh": 0.0}):
            h = tanh(affine("n", x, h))
        return h, State(h=h)

    @cell
    def outer(x, h):  # type: ignore[no-untyped-def]
        h, _ = inner(x, h)
        h = tanh(affine("m", x, h))
        return h, State(h=h)

    parameters = anyrnn.Recurrent(outer, 4, 4, seed=0).parameters
    assert not parameters["s_weight_hh_l0"].any()
    assert parameters["s_weight_ih_l0"].any()
    assert (parameters["bias_ih_l0"] != 5.0).all()


def test_a_value_that_is_equal_to_an_argument_has_a_name_of_its_own() -> None:
    @cell
    def inner(x, h):  # type: ignore[no-untyped-def]
        v = tanh(x)
        h = tanh(affine("n", x, h, v))
        return h, State(h=h)

    @cell
    def outer(x, h):  # type: ignore[no-untyped-def]
        u = affine("u", x, h)
        with anyrnn.scope("inner"):
            y, _ = inner(u, tanh(u))
        return y, State(h=y)

    names = [p.name for p in outer.trace().parameters if p.name.startswith("inner_weight")]
    assert names == ["inner_weight_ih", "inner_weight_hh", "inner_weight_vh"]


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_a_norm_passes_gradients_on_to_its_eps(backend: str) -> None:
    @cell
    def normalised(x, h):  # type: ignore[no-untyped-def]
        h = tanh(anyrnn.norm(affine("n", x, h), anyrnn.exp(scalar("e", init=-1.0))))
        return h, State(h=h)

    layer = anyrnn.Recurrent(normalised, 3, 4, seed=0, dtype="float64", backend=backend)
    x = np.random.default_rng(0).normal(size=(3, 2, 3))
    y, _, reserve = layer.forward_training(x)
    found = layer.backward(reserve, y)[2]["e_l0"]
    losses = []
    for step in (1e-6, -1e-6):
        layer.parameters["e_l0"] = np.array(-1.0 + step)
        losses.append(float((layer(x)[0] ** 2).sum() / 2))
    assert abs(found - (losses[0] - losses[1]) / 2e-6) < 1e-6 * abs(found)


def test_a_norm_whose_eps_is_a_hyper_parameter_is_one() -> None:
    @cell
    def normalised(x, h, *, eps=1e-3):  # type: ignore[no-untyped-def]
        h = tanh(anyrnn.norm(affine("n", x, h), eps))
        return h, State(h=h)

    assert "norm" in {node.op for node in normalised.trace().nodes}
