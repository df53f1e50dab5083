"""`python -m benchmarks.packed`: layers over batches of sequences of different lengths (PackedSequence), each of other ones, with
anyrnn's layers and with torch.nn's, in one process, block by block. Results that differ end it before any time is told.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Sequence
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import anyrnn.torch
from benchmarks.cells import APART
from benchmarks.measure import Blocks, geometric_mean, measure
from benchmarks.report import aligned
from benchmarks.run import Settings

SIZES = (
    ("LSTM", 5, 4, 32, 64, 1, False),
    ("LSTM", 10, 8, 64, 128, 1, False),
    ("RNN", 20, 16, 64, 64, 1, False),
    ("GRU", 20, 16, 64, 128, 1, True),
    ("GRU", 30, 32, 256, 256, 1, False),
    ("LSTM", 30, 32, 128, 128, 2, True),
    ("LSTM", 50, 64, 100, 256, 1, True),
)
"""The longest of a batch, samples, features of input and state, layers, both directions."""
BATCHES = 60


def batches(steps: int, samples: int, features: int) -> list[PackedSequence]:
    """With lengths from a third of the steps on."""
    found = []
    for _ in range(BATCHES):
        lengths = torch.randint(max(1, steps // 3), steps + 1, (samples,))
        found.append(pack_padded_sequence(torch.randn(steps, samples, features), lengths, enforce_sorted=False))
    return found


def step_of(layer: nn.Module, given: Sequence[PackedSequence], trains: bool) -> Callable[[], list[Tensor]]:
    """A call of the next batch; it gives the output, or of training the gradients."""
    following, parameters = itertools.cycle(given), list(layer.parameters())

    def step() -> list[Tensor]:
        if not trains:
            with torch.no_grad():
                return [layer(next(following))[0].data]
        for parameter in parameters:
            parameter.grad = None
        layer(next(following))[0].data.square().mean().backward()
        return [p.grad for p in parameters if p.grad is not None]

    return step


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packed", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--threads", type=int, default=Settings().threads, help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="blocks of each (default: 9)")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    lines = [["layer, steps x samples x features", "", "anyrnn ms", "torch.nn ms", "anyrnn, of torch.nn's"]]
    ratios: dict[str, list[float]] = {"inference": [], "training": []}
    for name, steps, samples, features, hidden, layers, both in SIZES:
        torch.manual_seed(0)
        options = {"num_layers": layers, "bidirectional": both}
        ours, theirs = (getattr(module, name)(features, hidden, **options) for module in (anyrnn.torch, nn))
        theirs.load_state_dict(ours.state_dict())
        given, label = batches(steps, samples, features), f"{name} {steps}x{samples}x{features}x{hidden}"
        label += f", {layers} layers" * (layers > 1) + ", both directions" * both
        for kind, found_ratios in ratios.items():
            calls = {lib: step_of(layer, given, kind == "training") for lib, layer in (("anyrnn", ours), ("torch.nn", theirs))}
            for found, expected in zip(*(call() for call in calls.values()), strict=True):
                if not (found - expected).norm() <= APART * expected.norm():  # nor for NaN
                    raise ValueError(f"{label}: results differ from torch.nn's")
            timed = measure(calls, Blocks(rounds=chosen.rounds))
            pairs = zip(*(timed[n].block_medians for n in calls), strict=True)
            found_ratios.append(median(mine / other for mine, other in pairs))
            times = [f"{timed[n].median * 1e3:.3f}" for n in calls]
            lines.append([label, kind, *times, f"{found_ratios[-1]:.2f}"])
    print(aligned(lines))
    for kind, found_ratios in ratios.items():
        print(f"geometric mean of {kind} {geometric_mean(found_ratios):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
