"""Shares of features, beside torch's softmax: in every backend, of numbers whose exponentials no float has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import anyrnn
import anyrnn.torch
from anyrnn import State, affine, cell, softmax, tanh, vector
from tests.onnx.exported import check

T, N, D = 7, 5, 3


@cell
def attentive(x, h):  # type: ignore[no-untyped-def]
    shares = softmax(300 * affine("a", x, h))
    h = tanh(affine("n", x, h=h * shares)) + softmax(vector("p"))
    return h, State(h=h)


def plain(layer: anyrnn.torch.Recurrent, x: Tensor) -> Tensor:
    p = {name.removesuffix("_l0"): parameter for name, parameter in layer.named_parameters()}
    hidden = len(p["p"])
    (ai, ni), (ah, nh), (ci, di), (ch, dh) = (p[n].split(hidden) for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    h, outputs = x.new_zeros(N, hidden), []
    for step in x:
        shares = torch.softmax(300 * (step @ ai.T + h @ ah.T + ci + ch), -1)
        h = torch.tanh(step @ ni.T + (h * shares) @ nh.T + di + dh) + torch.softmax(p["p"], 0)
        outputs.append(h)
    return torch.stack(outputs)


@pytest.mark.filterwarnings("ignore:invalid value encountered in divide:RuntimeWarning")  # Triton's rows that are no samples
@pytest.mark.parametrize("backend", ["llvm", "triton", "reference"])
@pytest.mark.parametrize("hidden", [1, 5, 16, 33])
def test_as_torch_has_it(backend: str, hidden: int) -> None:
    torch.manual_seed(0)
    layer = anyrnn.torch.Recurrent(attentive, D, hidden, dtype=torch.float64, backend=backend)
    x = torch.randn(T, N, D, dtype=torch.float64, requires_grad=True)
    sources = [x, *layer.parameters()]
    found, expected = layer(x)[0], plain(layer, x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    both = (torch.autograd.grad(output.square().sum(), sources) for output in (found, expected))
    for gradient, wanted in zip(*both, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-9, atol=1e-11)


def test_what_is_no_number_stays_none() -> None:
    layer = anyrnn.torch.Recurrent(attentive, D, 33)
    x = torch.randn(T, N, D)
    x[3, 1, 2] = torch.nan
    missing = layer(x)[0].isnan().any(-1)
    assert missing[3:, 1].all()
    assert missing.sum() == T - 3


@pytest.mark.parametrize("opset", [15, 18])
def test_in_onnx(opset: int) -> None:
    check(anyrnn.Recurrent(attentive, D, 9, seed=0, dtype="float64"), T=T, N=N, opset=opset)


def test_in_jax() -> None:
    jax = pytest.importorskip("jax")
    import anyrnn.jax

    layers: list[Any] = [anyrnn.jax.Recurrent(attentive, D, 9, backend=backend) for backend in ("auto", "reference")]
    parameters, x = layers[0].init(jax.random.key(0)), np.random.default_rng(0).standard_normal((T, N, D)).astype("f")
    kernels, scan = (jax.grad(lambda p, layer=layer: (layer.apply(p, x)[0] ** 2).sum())(parameters) for layer in layers)
    for name, gradient in kernels.items():
        np.testing.assert_allclose(gradient, scan[name], rtol=2e-3, atol=2e-4, err_msg=name)
