"""The processes that train together under torchrun, each on its part of every batch; or this one alone."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Processes:
    """So many processes, of which this one has number `rank`."""

    rank: int = 0
    count: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the one that writes files and speaks."""
        return self.rank == 0

    def part(self, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        """What this process takes of a batch; the parts differ by one sequence at most."""
        return np.array_split(batch, self.count)[self.rank]

    def together(self, model: nn.Module) -> nn.Module:
        """The model whose gradients are the means over all processes."""
        return model if self.count == 1 else DistributedDataParallel(model)

    def sums(self, *values: float) -> list[float]:
        """The sums over all processes. Raises: RuntimeError when one of them is gone."""
        if self.count == 1:
            return list(values)
        totals = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(totals)
        found: list[float] = totals.tolist()
        return found


ALONE = Processes()


@contextmanager
def joined() -> Iterator[Processes]:
    """The processes that torchrun has started, in touch through gloo; or this one."""
    if not dist.is_torchelastic_launched():
        yield ALONE
        return
    dist.init_process_group("gloo")
    try:
        yield Processes(dist.get_rank(), dist.get_world_size())
    finally:
        gc.collect()  # of what still holds the group, or torch may end its threads too late, and abort
        dist.destroy_process_group()
