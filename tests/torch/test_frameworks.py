"""Inside Lightning and Accelerate our modules train as torch's do. `make test-all` installs both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import anyrnn.torch

pytestmark = pytest.mark.filterwarnings("ignore")
modules = pytest.mark.parametrize("name", ["LSTM", "GRU"])


class Model(nn.Module):
    def __init__(self, make: Callable[..., nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.recurrent = make(3, 8, batch_first=True)
        self.head = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.recurrent(x)[0][:, -1])
        return result


def batches() -> DataLoader[Any]:
    x = torch.randn(64, 6, 3, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(x, x.sum((1, 2))[:, None].sin()), batch_size=16)


def check(name: str, losses_with: Callable[..., list[float]], bound: float) -> None:
    ours, theirs = losses_with(getattr(anyrnn.torch, name)), losses_with(getattr(nn, name))
    assert len(theirs) == 12
    assert ours == pytest.approx(theirs, rel=bound)
    assert theirs[-1] < theirs[0], "it learns"


@modules
@pytest.mark.parametrize(
    ("options", "bound"),
    [({}, 1e-5), ({"gradient_clip_val": 0.5, "accumulate_grad_batches": 2}, 1e-5), ({"precision": "bf16-mixed"}, 0.02)],
    ids=["plain", "clipped", "bf16"],
)
def test_lightning(name: str, options: dict[str, Any], bound: float) -> None:
    lightning = pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")
    if name == "LSTM" and "precision" in options and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("torch has no bfloat16 LSTM on this processor")

    class Trained(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self, make: Callable[..., nn.Module]) -> None:
            super().__init__()
            self.model, self.losses = Model(make), list[float]()

        def training_step(self, batch: list[Tensor], number: int) -> Tensor:
            loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    def losses(make: Callable[..., nn.Module]) -> list[float]:
        trained = Trained(make)
        silent = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
        lightning.Trainer(max_epochs=3, accelerator="cpu", **silent, **options).fit(trained, batches())
        found: list[float] = trained.losses
        return found

    check(name, losses, bound)


@modules
def test_accelerate(name: str) -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")

    def losses(make: Callable[..., nn.Module]) -> list[float]:
        accelerator, model = accelerate.Accelerator(cpu=True), Model(make)
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        model, adam, data = accelerator.prepare(model, adam, batches())
        found = []
        for x, y in [batch for _ in range(3) for batch in data]:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                adam.step()
                adam.zero_grad()
                found.append(loss.item())
        return found

    check(name, losses, 1e-5)
