"""`python -m benchmarks.packed`: layers over batches of sequences of different lengths (PackedSequence), each of other ones, with
anyrnn's layers and with torch.nn's, in one process, block by block. Results that differ end it before any time is told.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from benchmarks.measure import geometric_mean
from benchmarks.report import aligned
from benchmarks.side_by_side import COLUMNS, compare, pair, parser_of

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
    chosen = parser_of("packed", __doc__).parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    lines = [["layer, steps x samples x features", "", *COLUMNS]]
    ratios: dict[str, list[float]] = {"inference": [], "training": []}
    for name, steps, samples, features, hidden, layers, both in SIZES:
        torch.manual_seed(0)
        modules = pair(name, features, hidden, num_layers=layers, bidirectional=both)
        given, label = batches(steps, samples, features), f"{name} {steps}x{samples}x{features}x{hidden}"
        label += f", {layers} layers" * (layers > 1) + ", both directions" * both
        for kind, of_kind in ratios.items():
            calls = {library: step_of(layer, given, kind == "training") for library, layer in modules.items()}
            columns, (ratio,) = compare(label, calls, chosen.rounds)
            lines.append([label, kind, *columns])
            of_kind.append(ratio)
    print(aligned(lines))
    for kind, of_kind in ratios.items():
        print(f"geometric mean of {kind} {geometric_mean(of_kind):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
