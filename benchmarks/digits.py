"""`python -m benchmarks.digits`: the digit reader of `anyrnn train` with anyrnn's layers and with torch.nn's, whole training
steps side by side in one process: a piece of steps of the one, a pause, a piece of the other. What is compared is everything that
a program does around the layers too: taking batches, the linear layer, the loss, Adam.

Images are random, for only the time counts; the losses of both are compared all the same.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from anyrnn.datasets import Dataset, Sequences
from anyrnn.train import options
from anyrnn.train.layers import find_layers
from anyrnn.train.model import Reader, build
from benchmarks.measure import Blocks
from benchmarks.report import aligned
from benchmarks.run import Settings

MOST = {"lstm": 0.65, "gru": 0.6, "rnn_tanh": 0.7}
"""The most that anyrnn's time may be of torch.nn's."""
APART = 1e-3
"""How far the losses of the first piece may be apart; later ones drift, as rounding does in training."""
PIECE, PAUSE = 25, Blocks().pause
STEPS, FEATURES, CLASSES = 28, 28, 10


@dataclass
class Side:
    """One of the two: its model, its optimiser, and what it took."""

    model: Reader
    optimiser: torch.optim.Optimizer
    seconds: float = 0.0
    losses: tuple[float, ...] = ()

    def steps(self, images: torch.Tensor, labels: torch.Tensor, batches: Sequence[torch.Tensor]) -> None:
        start = time.perf_counter()
        for batch in batches:
            self.optimiser.zero_grad()
            loss = cross_entropy(self.model(images[batch]), labels[batch])
            loss.backward()
            self.optimiser.step()
            self.losses += (loss.item(),)
        self.seconds += time.perf_counter() - start


def compare(cell: str, steps: int, batch: int = 200, hidden: int = 256) -> tuple[Side, Side]:
    """anyrnn's side and torch.nn's, after so many steps of each on the same batches from the same weights."""
    rng = np.random.default_rng(0)
    images = rng.random((10_000, STEPS, FEATURES), np.float32)
    labels = rng.integers(0, CLASSES, len(images))
    some = Sequences(images[:1], labels[:1])
    dataset = Dataset("random", CLASSES, some, some, "none")
    ours, theirs = (
        Side(model, torch.optim.Adam(model.parameters()))
        for model in (build(find_layers(o), dataset, o) for o in _options(cell, batch, hidden))
    )
    theirs.model.load_state_dict(ours.model.state_dict())
    order = [torch.from_numpy(rng.integers(0, len(images), batch)) for _ in range(steps)]
    tensors = torch.from_numpy(images), torch.from_numpy(labels)
    for first in range(0, steps, PIECE):
        for side in (ours, theirs):
            time.sleep(PAUSE)
            side.steps(*tensors, order[first : first + PIECE])
    return ours, theirs


def _options(cell: str, batch: int, hidden: int) -> list[options.Options]:
    parser = argparse.ArgumentParser()
    options.add_arguments(parser)
    ours = options.from_arguments(parser.parse_args(["digits", "--cell", cell]))
    ours = replace(ours, batch=batch, hidden=hidden, head="all")
    return [ours, replace(ours, layers_from="torch")]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.digits", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--steps", type=int, default=1000, help="of each cell and side (default: 1000)")
    parser.add_argument("--cells", nargs="+", choices=list(MOST), default=list(MOST), help="(default: all)")
    parser.add_argument("--threads", type=int, default=Settings().threads, help="(default: %(default)s)")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    lines, status = [["cell", "anyrnn s", "torch.nn s", "share", "at most", "largest difference of losses"]], 0
    for cell in chosen.cells:
        ours, theirs = compare(cell, chosen.steps)
        share = ours.seconds / theirs.seconds
        apart = max(abs(a - b) for a, b in zip(ours.losses, theirs.losses, strict=True))
        begun = max(abs(a - b) for a, b in zip(ours.losses[:PIECE], theirs.losses[:PIECE], strict=True))
        if not begun <= APART:  # nor for NaN
            raise ValueError(f"{cell}: the losses of the first {PIECE} steps differ by up to {begun:.1e}")
        status |= share > MOST[cell]
        lines.append([cell, f"{ours.seconds:.1f}", f"{theirs.seconds:.1f}", f"{share:.2f}", f"{MOST[cell]:.2f}", f"{apart:.1e}"])
        print(f"{cell} done", file=sys.stderr, flush=True)
    print(aligned(lines))
    return status


if __name__ == "__main__":
    sys.exit(main())
