"""Published methods that differentiate gradients, on models whose recurrent modules are exchanged by `swap` alone."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import anyrnn.torch

T, N, D, H = 6, 4, 3, 5


class Reader(nn.Module):
    """A number for each sequence."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.recurrent = getattr(nn, kind)(D, H, batch_first=True)
        self.head = nn.Linear(H, 1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.recurrent(x)[0][:, -1])
        return result


def gradient_penalty(model: nn.Module) -> list[float]:
    """The critic of a WGAN-GP: Gulrajani et al. 2017, Improved Training of Wasserstein GANs, arXiv 1704.00028."""
    generator = torch.Generator().manual_seed(0)
    optimiser, losses = torch.optim.Adam(model.parameters(), 0.01), []
    for _ in range(4):
        real, fake = (torch.randn(N, T, D, dtype=torch.float64, generator=generator) for _ in range(2))
        share = torch.rand(N, 1, 1, dtype=torch.float64, generator=generator)
        between = (share * real + (1 - share) * fake).requires_grad_()
        (gradient,) = torch.autograd.grad(model(between).sum(), between, create_graph=True)
        penalty = (gradient.flatten(1).norm(dim=1) - 1).square().mean()
        loss = model(fake).mean() - model(real).mean() + 10 * penalty
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def adapted(model: nn.Module, rate: Tensor, generator: torch.Generator) -> Tensor:
    """The loss on new samples of a task, after two steps of descent on others."""
    weights = dict(model.named_parameters())
    task = torch.randn(D, dtype=torch.float64, generator=generator)

    def loss(weights: dict[str, Tensor]) -> Tensor:
        x = torch.randn(N, T, D, dtype=torch.float64, generator=generator)
        found: Tensor = (functional_call(model, weights, x)[:, 0] - (x @ task).mean(1)).square().mean()
        return found

    for _ in range(2):
        gradients = torch.autograd.grad(loss(weights), list(weights.values()), create_graph=True)
        weights = {name: w - rate * g for (name, w), g in zip(weights.items(), gradients, strict=True)}
    return loss(weights)


def maml(model: nn.Module) -> list[float]:
    """Finn et al. 2017, Model-Agnostic Meta-Learning, arXiv 1703.03400; with a rate that is learned too, as in Li et al. 2017,
    Meta-SGD, arXiv 1707.09835.
    """
    generator = torch.Generator().manual_seed(0)
    rate = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    optimiser, found = torch.optim.Adam([*model.parameters(), rate], 0.01), []
    for _ in range(4):
        loss = torch.stack([adapted(model, rate, generator) for _ in range(3)]).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        found += [loss.item(), rate.item()]
    return found


@pytest.mark.parametrize("method", [gradient_penalty, maml])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_losses_are_those_of_torch(kind: str, method: Callable[[nn.Module], list[float]]) -> None:
    torch.manual_seed(0)
    theirs = Reader(kind).double()
    ours = copy.deepcopy(theirs)
    anyrnn.torch.swap(ours)
    assert isinstance(ours.recurrent, anyrnn.torch.Recurrent)
    found, expected = method(ours), method(theirs)
    assert found == pytest.approx(expected, rel=1e-9)
    assert found[-1] != found[0]


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_gradients_of_each_sample_with_dropout(randomness: str) -> None:
    layer = anyrnn.torch.LSTM(D, H, 2, dropout=0.5, batch_first=True)
    parameters = dict(layer.named_parameters())

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        total: Tensor = functional_call(layer, parameters, (x[None],))[0].sum()
        return total

    x = torch.randn(1, T, D).expand(N, T, D)
    of_each = torch.vmap(torch.func.grad(loss), (None, 0), randomness=randomness)(parameters, x)["weight_ih_l1"]
    assert of_each.isfinite().all()
    assert all(torch.allclose(of_each[0], other, rtol=1e-4) == (randomness == "same") for other in of_each[1:])
