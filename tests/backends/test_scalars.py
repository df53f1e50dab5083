"""Numbers of a sample among features, and numbers as states, in every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import anyrnn
import anyrnn.torch
from anyrnn import Scalar, State, Vec, affine, cell, concat, mean, norm, sigmoid, softmax, split, sqrt, tanh, total, vector, where
from anyrnn.trace import Cell
from tests.budget import assert_relative
from tests.onnx.exported import check

T, N, D, H = 5, 3, 4, 19


@cell
def joined(x, h):  # type: ignore[no-untyped-def]
    v = tanh(affine("a", x, h))
    return concat(mean(v), v, 2.0 * total(v * v), 0.5), State(h=v)


@cell
def alone(x, h):  # type: ignore[no-untyped-def]
    v = tanh(affine("a", x, h))
    return total(v), State(h=v)


@cell
def told_of_the_first_step(x, h, first: Scalar(init=1)):  # type: ignore[no-untyped-def, valid-type]
    h = tanh(affine("a", x, h)) + first * h.shape[0] / sqrt(h.shape[0])
    return h, State(h=h, first=0.0)


@cell
def with_a_vector_of_numbers(x, h, last: Vec(3, init=2)):  # type: ignore[no-untyped-def, valid-type]
    h = tanh(affine("a", x, h) + affine("a", last))
    return h, State(h=h, last=-0.25)


def plain(step: Any, h: Any, number: int) -> Any:
    """What the state and the output are after a step."""
    v = torch.tanh(step)
    match number:
        case 0:
            return v, torch.cat([v.mean(-1, True), v, 2 * (v * v).sum(-1, True), torch.full_like(v[:, :1], 0.5)], -1)
        case 1:
            return v, v.sum(-1, True)
    return v, v


@pytest.mark.parametrize("made", [joined, alone], ids=str)
@pytest.mark.parametrize("backend", ["llvm", "triton", "reference"])
def test_numbers_as_outputs(made: Cell, backend: str) -> None:
    torch.manual_seed(0)
    layer = anyrnn.torch.Recurrent(made, D, H, dtype=torch.float64, backend=backend)
    x = torch.randn(T, N, D, dtype=torch.float64, requires_grad=True)
    w, u, b, c = (p for _, p in layer.named_parameters())
    h, outputs = x.new_zeros(N, H), []
    for step in x:
        h, y = plain(step @ w.T + h @ u.T + b + c, h, [joined, alone].index(made))
        outputs.append(y)
    expected, sources = torch.stack(outputs), [x, *layer.parameters()]
    found = layer(x)[0]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(*(torch.autograd.grad(y.square().sum(), sources) for y in (found, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("backend", ["llvm", "triton", "reference"])
def test_numbers_as_states(backend: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(T, N, D, dtype=torch.float64)
    layer = anyrnn.torch.Recurrent(told_of_the_first_step, D, H, dtype=torch.float64, backend=backend)
    tanh_layer = anyrnn.torch.RNN(D, H, dtype=torch.float64)
    tanh_layer.load_state_dict(layer.state_dict())
    first = tanh_layer(x[:1])[0] + H**0.5
    torch.testing.assert_close(layer(x)[0], torch.cat([first, tanh_layer(x[1:], first)[0]]), rtol=1e-12, atol=1e-12)
    assert not layer(x)[1][1].any()
    other = anyrnn.torch.Recurrent(with_a_vector_of_numbers, D, H, dtype=torch.float64, backend=backend)
    _, (_, last) = other(x)
    assert (last == -0.25).all()


@pytest.mark.parametrize("made", [joined, alone, told_of_the_first_step, with_a_vector_of_numbers], ids=str)
def test_elsewhere(made: Cell) -> None:
    check(anyrnn.Recurrent(made, D, H, seed=0, dtype="float64"), T=T, N=N, states=True, lengths=[T, 0, 2])
    jax, anyrnn_jax = pytest.importorskip("jax"), pytest.importorskip("anyrnn.jax")
    x, found = np.random.default_rng(0).standard_normal((T, N, D)).astype("f"), []
    for backend in ("auto", "reference"):
        layer = anyrnn_jax.Recurrent(made, D, H, backend=backend)
        parameters = layer.init(jax.random.key(0))
        found.append(jax.grad(lambda p, layer=layer: (layer.apply(p, x)[0] ** 2).sum())(parameters))
    for name, gradient in found[0].items():
        assert_relative(
            np.asarray(gradient),
            np.asarray(found[1][name]),
            "float32 kernels against a scan, through JAX's transformations",
            name,
        )


@cell
def with_a_parameter(x, h):  # type: ignore[no-untyped-def]
    g = sigmoid(affine("g", x, h, size=1))
    h = tanh(affine("n", x, h)) * total(g * g + vector("p", 1))
    return h, State(h=h)


@cell
def with_a_state(x, h, t: Vec(1)):  # type: ignore[no-untyped-def, valid-type]
    t = tanh(affine("t", x, t, size=1))
    h = tanh(affine("n", x, h)) * (t + mean(softmax(t)) + total(where(t > 0, t, 0.5 * t)))
    return h, State(h=h, t=t)


@cell
def of_parts(x, h):  # type: ignore[no-untyped-def]
    a, b, c, d = split(softmax(affine("k", x, h, size=4)), 4)
    h = tanh(affine("n", x, h)) * (a - b * c + norm(d))
    return h, State(h=h)


@pytest.mark.parametrize("made", [with_a_parameter, with_a_state, of_parts], ids=str)
@pytest.mark.parametrize("samples", [1, 3, 9])
def test_vectors_of_one_feature(made: Cell, samples: int) -> None:
    torch.manual_seed(0)
    layers = [anyrnn.torch.Recurrent(made, D, H, dtype=torch.float64, backend=backend) for backend in ("llvm", "reference")]
    layers[1].load_state_dict(layers[0].state_dict())
    x, found = torch.randn(T, samples, D, dtype=torch.float64), []
    for layer in layers:
        leaf = x.clone().requires_grad_()
        output = layer(leaf)[0]
        found.append([output, *torch.autograd.grad(output.square().sum(), [leaf, *layer.parameters()])])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
