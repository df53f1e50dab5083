"""Names of what the passes make, where a user's own names look like them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import anyrnn.torch
from anyrnn import Recurrent, State, affine, cell, exp, sigmoid, tanh, vector
from anyrnn.passes.compile import plan


@cell
def of_rates(x, h):  # type: ignore[no-untyped-def]
    rates = []
    for k in range(8):
        r = exp(vector(f"r_{k}"))
        rates.append(r)
    h = tanh(affine("n", x, h))
    for rate in rates:
        h = h * rate
    return h, State(h=h)


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_what_is_made_of_parameters_takes_no_parameter_its_name(backend: str) -> None:
    """The second of the values called `r` was `r_5`."""
    layer = Recurrent(of_rates, 2, 3, backend=backend, dtype=np.float64, seed=0)
    rates = [layer.parameters[f"r_{k}_l0"] for k in range(8)]
    for k, rate in enumerate(rates):
        rate[:] = 0.1 * k
    x = np.full((1, 1, 2), 0.3)
    n = np.tanh(x[0] @ layer.parameters["weight_ih_l0"].T + layer.parameters["bias_ih_l0"] + layer.parameters["bias_hh_l0"])
    np.testing.assert_allclose(layer(x)[0][0], n * np.exp(2.8), rtol=1e-12)


def test_what_is_kept_takes_no_other_its_name() -> None:
    """A variable called as the passes would call what has the name of a state."""

    def called(name: str) -> anyrnn.Cell:
        text = f"""def mine(x, h):
    {name} = sigmoid(affine("a", x, h))
    h = tanh(affine("b", x, h))
    h = {name} * h
    return h, State(h=h)"""
        found = {"sigmoid": sigmoid, "affine": affine, "tanh": tanh, "State": State}
        exec(text, found)
        return cell(found["mine"])

    (second,) = [name for name, _ in plan(called("u").trace()).saves.kept if name.startswith("h_")]
    of = called(second)
    assert len({name for name, _ in plan(of.trace()).saves.kept}) == len(plan(of.trace()).saves.kept)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    gradients = []
    for backend in ("llvm", "reference"):
        torch.manual_seed(0)
        layer = anyrnn.torch.Recurrent(of, 3, 5, backend=backend, dtype=torch.float64)
        layer(x)[0].square().sum().backward()
        gradients.append(layer.weight_ih_l0.grad)
    torch.testing.assert_close(*gradients)
