"""anyrnn's modules beside torch.nn's in one process, in what no row of the suite has: results compared, then calls timed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from torch import Tensor, nn

import anyrnn.torch
from benchmarks.measure import Blocks, measure
from benchmarks.run import Settings

COLUMNS = ["anyrnn ms", "torch.nn ms", "anyrnn, of torch.nn's"]
APART = 1e-5
"""How far results may be apart, of their norm."""

Call = Callable[[], Sequence[Tensor]]
"""It gives its results."""


def parser_of(name: str, about: str | None) -> argparse.ArgumentParser:
    """Of a module's options, which is documented so."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=(about or "").partition("\n\n")[0])
    parser.add_argument("--threads", type=int, default=Settings().threads, help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="blocks of each (default: %(default)s)")
    return parser


def pair(name: str, *sizes: int, **options: object) -> dict[str, nn.Module]:
    """anyrnn's module of a name and torch.nn's, with the same weights."""
    ours, theirs = (getattr(library, name)(*sizes, **options) for library in (anyrnn.torch, nn))
    theirs.load_state_dict(ours.state_dict())
    return {"anyrnn": ours, "torch.nn": theirs}


def compare(label: str, calls: Mapping[str, Call], rounds: int) -> tuple[list[str], float]:
    """What stands in the columns, and the last of these as a number. Raises: ValueError where results differ."""
    for found, expected in zip(*(call() for call in calls.values()), strict=True):
        if not (found - expected).norm() <= APART * expected.norm():  # nor for NaN
            raise ValueError(f"{label}: results differ from torch.nn's")
    timings = measure(calls, Blocks(rounds=rounds)).values()
    ratio = median(mine / other for mine, other in zip(*(timing.block_medians for timing in timings), strict=True))
    return [*(f"{timing.median * 1e3:.3f}" for timing in timings), f"{ratio:.2f}"], ratio
