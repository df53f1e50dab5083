"""`python -m benchmarks.cells`: training of single cells in a loop of Python's, as decoders and agents have it, or `--inference`,
with anyrnn's cells and with torch.nn's, in one process, block by block. Results that differ end it before any time is told.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from benchmarks.measure import geometric_mean
from benchmarks.report import aligned
from benchmarks.side_by_side import COLUMNS, compare, pair, parser_of

CELLS = ("RNNCell", "GRUCell", "LSTMCell")
SIZES = ((20, 1, 64), (20, 1, 256), (20, 16, 256), (20, 128, 256), (1, 32, 512), (10, 64, 512), (5, 16, 1024), (20, 64, 64))
INFERENCE_SIZES = tuple((20, samples, features) for features in (64, 256, 512, 1024) for samples in (1, 2, 4, 16, 64))
"""Steps, samples, features of input and state."""
AT_FIRST = 6
"""Loops before calls share their weights, all as those that are timed."""


def last_state(cell: nn.Module, x: Tensor) -> Tensor:
    """Of the loop."""
    state = None
    for of_step in x.unbind(0):
        state = cell(of_step, state)
    assert state is not None
    return state if isinstance(state, Tensor) else state[0]


def training_of(cell: nn.Module, x: Tensor, d_state: Tensor) -> Callable[[], list[Tensor]]:
    """A training step: the loop, forward and backward; it gives the gradients."""
    leaf, parameters = x.clone().requires_grad_(), list(cell.parameters())

    def step() -> list[Tensor]:
        leaf.grad = None
        for parameter in parameters:
            parameter.grad = None
        last_state(cell, leaf).backward(d_state)
        return [t.grad for t in (leaf, *parameters) if t.grad is not None]

    return step


def inference_of(cell: nn.Module, x: Tensor) -> Callable[[], list[Tensor]]:
    """The loop; it gives the last state."""

    @torch.no_grad()
    def step() -> list[Tensor]:
        return [last_state(cell, x)]

    return step


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("cells", __doc__)
    parser.add_argument("--inference", action="store_true", help="without gradients")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    lines, ratios = [["cell, steps x samples x features", *COLUMNS]], []
    for name in CELLS:
        for steps, samples, features in INFERENCE_SIZES if chosen.inference else SIZES:
            torch.manual_seed(0)
            x, d_state = torch.randn(steps, samples, features), torch.randn(samples, features)
            calls = {
                library: inference_of(cell, x) if chosen.inference else training_of(cell, x, d_state)
                for library, cell in pair(name, features, features).items()
            }
            for _ in range(AT_FIRST):
                calls["anyrnn"]()
            label = f"{name} {steps}x{samples}x{features}"
            columns, (ratio,) = compare(label, calls, chosen.rounds)
            lines.append([label, *columns])
            ratios.append(ratio)
    print(aligned(lines))
    print(f"geometric mean {geometric_mean(ratios):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
