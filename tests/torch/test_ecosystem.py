"""What torch does around modules: checkpoints of activations, deterministic mode, modules before they have memory, hooks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

import anyrnn.torch

T, N, D, H = 6, 3, 4, 5


def gradients(layer: torch.nn.Module, run: Any, x: Tensor) -> list[Tensor]:
    torch.manual_seed(1)
    layer.zero_grad()
    x = x.clone().requires_grad_()
    output, _ = run(x)
    output.sin().sum().backward()
    return [output.detach(), x.grad, *(p.grad for p in layer.parameters())]  # type: ignore[list-item]


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "dropout": 0.5, "zoneout": 0.2, "recurrent_dropout": 0.3}])
def test_activation_checkpoints(options: dict[str, Any], reentrant: bool) -> None:
    """A call that is made again in the backward pass draws the same numbers, and gives the same bits."""
    layer, x = anyrnn.torch.Recurrent("lstm", D, H, **options), torch.randn(T, N, D)
    found = gradients(layer, lambda x: checkpoint(layer, x, use_reentrant=reentrant), x)
    assert all(map(torch.equal, found, gradients(layer, layer, x)))


def test_deterministic_algorithms() -> None:
    layer, x = anyrnn.torch.GRU(D, H), torch.randn(T, N, D)
    expected = gradients(layer, lambda x: layer(x, lengths=[2, 6, 0]), x)
    torch.use_deterministic_algorithms(True)
    try:
        found = gradients(layer, lambda x: layer(x, lengths=[2, 6, 0]), x)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("name", ["LSTM", "GRUCell"])
def test_made_without_memory(name: str) -> None:
    made = getattr(anyrnn.torch, name)(D, H)
    with torch.device("meta"):
        later = getattr(anyrnn.torch, name)(D, H)
    assert all(p.is_meta for p in later.parameters())
    later.to_empty(device="cpu")
    later.load_state_dict(made.state_dict())
    x = torch.randn(N, D)
    found, expected = (torch.utils._pytree.tree_leaves(layer(x)) for layer in (later, made))
    assert all(map(torch.equal, found, expected))
    torch.manual_seed(3)
    later.reset_parameters()
    torch.manual_seed(3)
    assert torch.equal(next(later.parameters()), next(getattr(anyrnn.torch, name)(D, H).parameters()))


def test_hooks() -> None:
    """Around calls and their gradients, as of any module."""
    layer, x = anyrnn.torch.LSTM(D, H), torch.randn(T, N, D, requires_grad=True)
    seen: list[str] = []
    layer.register_forward_pre_hook(lambda *_: seen.append("before"))
    layer.register_forward_hook(lambda *_, **__: seen.append("after"), with_kwargs=True)
    layer.register_full_backward_hook(lambda *_: seen.append("backward"))
    layer.weight_hh_l0.register_hook(lambda gradient: seen.append("gradient"))
    layer(x, lengths=[1, 2, 3])[0].sum().backward()
    assert seen[:2] == ["before", "after"]
    assert sorted(seen[2:]) == ["backward", "gradient"]


class Encoded(Dataset[Tensor]):
    """Samples that a layer has gone over."""

    def __init__(self) -> None:
        self.layer, self.x = anyrnn.torch.LSTM(D, H), torch.randn(8, T, D)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Tensor:
        with torch.no_grad():
            found: Tensor = self.layer(self.x[index])[0]
        return found


@pytest.mark.filterwarnings("ignore:.*use of fork\\(\\) may lead to deadlocks:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork.. was called.*JAX is multithreaded:RuntimeWarning")
@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_of_a_data_loader(start: str) -> None:
    data = Encoded()
    expected = torch.stack([data[k] for k in range(8)])
    found = torch.cat(list(DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context=start)))
    assert torch.equal(found, expected)


def test_new_first_values_of_parametrised_and_pruned_parameters() -> None:
    layer = anyrnn.torch.LSTM(D, H)
    parametrizations.weight_norm(layer, "weight_hh_l0")
    torch.manual_seed(3)
    layer.reset_parameters()
    torch.manual_seed(3)
    expected = anyrnn.torch.LSTM(D, H)
    torch.testing.assert_close(layer.weight_hh_l0, expected.weight_hh_l0)
    assert torch.equal(layer.bias_hh_l0, expected.bias_hh_l0)
    pruned = anyrnn.torch.LSTM(D, H)
    prune.l1_unstructured(pruned, "weight_ih_l0", 0.5)
    before = [p.clone() for p in pruned.parameters()]
    with pytest.raises(TypeError, match="weight_ih_l0 is computed by a hook of the module"):
        pruned.reset_parameters()
    assert all(map(torch.equal, pruned.parameters(), before))
