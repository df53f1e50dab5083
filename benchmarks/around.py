"""`python -m benchmarks.around`: a training step of a small language model (embedding, two recurrent layers, a linear layer,
cross-entropy, Adam) with anyrnn's layers and with torch.nn's, in one process, block by block. Told are the whole step, what the
recurrent layers take of it, and the rest: torch's own operators, which must not be slower for what runs between them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn

import anyrnn.torch
from benchmarks.measure import Blocks, measure
from benchmarks.report import aligned
from benchmarks.run import Settings

WORDS, FEATURES, STEPS, SAMPLES = 2000, 256, 50, 32
SLOWER = 1.05
"""The most that the rest of a step may take of what it takes with torch.nn's layers; what is above is more than noise."""
APART = 1e-4
"""How far the losses of the first step may be apart, of their size: the weights are the same."""


class Model(nn.Module):
    """Remembers when each part of a step began."""

    def __init__(self, recurrent: nn.Module) -> None:
        super().__init__()
        self.embedding, self.recurrent = nn.Embedding(WORDS, FEATURES), recurrent
        self.linear = nn.Linear(FEATURES, WORDS)
        self.optimiser = torch.optim.Adam(self.parameters())
        self.tokens = torch.randint(WORDS, (STEPS + 1, SAMPLES), generator=torch.Generator().manual_seed(0))
        self.parts: list[tuple[float, float]] = []
        """Seconds of the recurrent layers and of the rest, for each step."""

    def step(self) -> float:
        marks = [time.perf_counter()]

        def mark(_: Tensor | None = None) -> None:
            marks.append(time.perf_counter())

        embedded = self.embedding(self.tokens[:-1])
        mark()
        outputs = self.recurrent(embedded)[0]
        mark()
        outputs.register_hook(mark)  # its gradient has come: the layers' backward pass begins
        embedded.register_hook(mark)
        loss = nn.functional.cross_entropy(self.linear(outputs).flatten(0, 1), self.tokens[1:].flatten())
        loss.backward()
        self.optimiser.step()
        self.optimiser.zero_grad()
        mark()
        start, forward, forwarded, backward, backwarded, end = marks
        layers = forwarded - forward + backwarded - backward
        self.parts.append((layers, end - start - layers))
        return loss.item()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.around", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--threads", type=int, default=Settings().threads, help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="blocks of each (default: 15)")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    lines, status = [["layers", "step ms", "of it layers", "the rest", "step, of torch.nn's", "the rest, of torch.nn's"]], 0
    for name in ("LSTM", "GRU"):
        models = {}
        for module in (nn, anyrnn.torch):
            torch.manual_seed(0)
            models[module.__name__] = Model(getattr(module, name)(FEATURES, FEATURES, 2))
        models[nn.__name__].load_state_dict(models[anyrnn.torch.__name__].state_dict())
        losses = [model.step() for model in models.values()]  # compiles: a slow first call would count as a slow system's
        if not abs(losses[0] - losses[1]) <= APART * losses[0]:  # nor for NaN
            raise ValueError(f"{name}: the losses of the first step differ: {losses[0]} and {losses[1]}")
        measure({name: partial(model.step) for name, model in models.items()}, Blocks(rounds=chosen.rounds))
        found = {n: [median(parts[3:]) for parts in zip(*model.parts, strict=True)] for n, model in models.items()}
        theirs = found[nn.__name__]
        for module, (layers, rest) in found.items():
            shares = [f"{(layers + rest) / sum(theirs):.2f}", f"{rest / theirs[1]:.2f}"]
            lines.append([f"{module}.{name}", *(f"{s * 1e3:.2f}" for s in (layers + rest, layers, rest)), *shares])
        layers, rest = found[anyrnn.torch.__name__]
        status |= layers + rest >= sum(theirs) or rest > SLOWER * theirs[1]
    print(aligned(lines))
    return status


if __name__ == "__main__":
    sys.exit(main())
