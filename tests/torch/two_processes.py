"""What each of two processes does under torchrun: gradients of half a batch each, against those of one process with all of it."""

from __future__ import annotations

import gc
import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import anyrnn.torch


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.recurrent = anyrnn.torch.LSTM(3, 5, 2, bidirectional=True, dtype=torch.float64)
        self.cell = anyrnn.torch.GRUCell(10, 4, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.recurrent(x)
        result: Tensor = self.cell(output[-1])
        return result


def check(how: str) -> None:
    rank = dist.get_rank()
    x = torch.randn(6, 8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    model, alone = Model(), Model()
    alone(x).square().mean().backward()
    if how == "fsdp":
        mesh = init_device_mesh("cpu", (2,))
        for module in (model.recurrent, model.cell, model):
            fully_shard(module, mesh=mesh)
    run = DistributedDataParallel(model) if how == "ddp" else model
    run(x[:, 4 * rank : 4 * rank + 4]).square().mean().backward()
    for (name, ours), theirs in zip(model.named_parameters(), alone.parameters(), strict=True):
        gradient = ours.grad.full_tensor() if how == "fsdp" else ours.grad  # type: ignore[union-attr,operator]
        torch.testing.assert_close(gradient, theirs.grad, rtol=1e-12, atol=1e-15, msg=lambda text, who=name: f"{who}: {text}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for how in sys.argv[1:]:
        check(how)
        sys.stdout.write(f"{how} {dist.get_rank()} is equal\n")  # at once: the other process writes to the same pipe
    gc.collect()  # or torch now and then ends its threads too late: "terminate called without an active exception"
    dist.destroy_process_group()
