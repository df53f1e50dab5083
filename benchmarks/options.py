"""`python -m benchmarks.options`: what a training step takes with options, of its time without: dropouts, zoneout, a mask, ragged
batches, a budget of memory; each in turn with the plain step, in one process, block by block.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import anyrnn.torch
from benchmarks.measure import Blocks, measure
from benchmarks.report import aligned
from benchmarks.run import Settings

KEPT = 0.99
"""The share of steps that a mask keeps."""
BUDGET = 10
"""A training call may keep this part of what it needs."""
LAYERS: Mapping[str, tuple[dict[str, Any], float]] = {
    "input_dropout": ({"input_dropout": 0.25}, 1.10),
    "recurrent_dropout": ({"recurrent_dropout": 0.25}, 1.10),
    "three dropouts": ({"input_dropout": 0.25, "recurrent_dropout": 0.25, "output_dropout": 0.25}, 1.10),
    "weight_dropout": ({"weight_dropout": 0.25}, 1.10),
    "zoneout": ({"zoneout": 0.1}, 1.10),
}
"""Options by name, and the most that a step may take of one without."""


@dataclass(frozen=True)
class Shape:
    steps: int
    samples: int
    features: int
    hidden: int

    def __str__(self) -> str:
        return f"{self.steps}x{self.samples}x{self.features}x{self.hidden}"


OPTIONS_AT = (Shape(28, 200, 28, 256), Shape(100, 32, 256, 256))
RAGGED_AT = Shape(1000, 32, 123, 320)
MEMORY_AT = Shape(10_000, 8, 256, 256)


@dataclass(frozen=True)
class Comparison:
    """Two steps, and the most that the first may take of the second's time; `of` says what part of the second counts."""

    name: str
    ours: Callable[[], object]
    other: Callable[[], object]
    most: float
    of: float = 1.0


def step(layer: nn.Module, x: Tensor, **call: Any) -> Callable[[], None]:
    """A training step with a cotangent for every output."""

    def run() -> None:
        output = layer(x, **call)[0]
        output.backward(torch.ones_like(output))
        layer.zero_grad()

    return run


def packed_step(layer: nn.Module, packed: PackedSequence) -> Callable[[], None]:
    """The same with torch's packed rows, which are packed once."""

    def run() -> None:
        output = layer(packed)[0].data
        output.backward(torch.ones_like(output))
        layer.zero_grad()

    return run


def of_layers(cell: str, shape: Shape) -> list[Comparison]:
    """What each option costs, and a mask."""
    x = torch.randn(shape.steps, shape.samples, shape.features)
    make = partial(anyrnn.torch.Recurrent, cell, shape.features, shape.hidden)
    plain = step(make(), x)
    who = f"{cell} {shape}"
    found = [Comparison(f"{who} {name}", step(make(**o), x), plain, most) for name, (o, most) in LAYERS.items()]
    mask = torch.rand(shape.steps, shape.samples) < KEPT
    return [*found, Comparison(f"{who} mask of {KEPT:.0%}", step(make(), x, mask=mask), plain, 1.05)]


def of_ragged(cell: str, shape: Shape) -> list[Comparison]:
    """A batch of lengths that are evenly spread, against torch.nn and against its share of a dense one."""
    x, lengths = torch.randn(shape.steps, shape.samples, shape.features), torch.randint(1, shape.steps + 1, (shape.samples,))
    layer = anyrnn.torch.Recurrent(cell, shape.features, shape.hidden)
    theirs = getattr(nn, cell.upper())(shape.features, shape.hidden)
    theirs.load_state_dict(layer.state_dict())
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    torch.testing.assert_close(layer(packed)[0].data, theirs(packed)[0].data, rtol=1e-4, atol=1e-5)
    ours, share = step(layer, x, lengths=lengths), float(lengths.sum()) / (shape.steps * shape.samples)
    return [
        Comparison(f"{cell} {shape} lengths, of a dense batch's share", ours, step(layer, x), 1.25, share),
        Comparison(f"{cell} {shape} lengths, of torch.nn packed", ours, packed_step(theirs, packed), 0.5),
    ]


def of_memory(cell: str, shape: Shape) -> list[Comparison]:
    """A training step that keeps a tenth."""
    x = torch.randn(shape.steps, shape.samples, shape.features)
    sizes = (shape.features, shape.hidden)
    needed = anyrnn.Recurrent(cell, *sizes).reserve_size(shape.steps, shape.samples)
    plain, bounded = (step(anyrnn.torch.Recurrent(cell, *sizes, memory_budget=budget), x) for budget in (None, needed // BUDGET))
    return [Comparison(f"{cell} {shape} memory_budget of a tenth", bounded, plain, 1.4)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.options", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--threads", type=int, default=Settings().threads, help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="blocks of each (default: %(default)s)")
    parser.add_argument("--rows", default="", help="only rows whose names it is found in")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    comparisons = [
        *(c for cell in ("rnn_tanh", "gru", "lstm") for shape in OPTIONS_AT for c in of_layers(cell, shape)),
        *(c for cell in ("gru", "lstm") for c in of_ragged(cell, RAGGED_AT)),
        *(c for cell in ("gru", "lstm") for c in of_memory(cell, MEMORY_AT)),
    ]
    lines, above = [["training step", "ms", "the other ms", "of it", "at most", ""]], False
    for comparison in comparisons:
        if chosen.rows not in comparison.name:
            continue
        comparison.ours()  # compiles
        times = measure({"ours": comparison.ours, "other": comparison.other}, Blocks(rounds=chosen.rounds))
        ours, other = times["ours"].median, times["other"].median
        ratio = ours / (other * comparison.of)
        is_above = ratio > comparison.most
        above |= is_above
        figures = [f"{ours * 1e3:.2f}", f"{other * 1e3:.2f}", f"{ratio:.2f}", f"{comparison.most:.2f}"]
        lines.append([comparison.name, *figures, "above" if is_above else ""])
    print(aligned(lines))
    return int(above)


if __name__ == "__main__":
    sys.exit(main())
