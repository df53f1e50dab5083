"""Calls of anyrnn beside others' in one process, in what no row of the suite has: results compared, then calls timed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from torch import Tensor, nn

import anyrnn.torch
from benchmarks.measure import Blocks, measure
from benchmarks.run import Settings

COLUMNS = ["anyrnn ms", "torch.nn ms", "anyrnn, of torch.nn's"]
"""Of a pair."""
APART = 1e-5
"""How far results may be apart, of their norm."""


def parser_of(name: str, about: str | None) -> argparse.ArgumentParser:
    """That of `python -m benchmarks.<name>`, described by the first paragraph of its docstring."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=(about or "").partition("\n\n")[0])
    parser.add_argument("--threads", type=int, default=Settings().threads, help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="blocks of each (default: %(default)s)")
    return parser


def pair(name: str, *sizes: int, **options: object) -> dict[str, nn.Module]:
    """anyrnn's module of a name and torch.nn's, with the same weights."""
    ours, theirs = (getattr(library, name)(*sizes, **options) for library in (anyrnn.torch, nn))
    theirs.load_state_dict(ours.state_dict())
    return {"anyrnn": ours, "torch.nn": theirs}


def compare(
    label: str,
    calls: Mapping[str, Callable[[], Any]],
    rounds: int,
    results: Callable[[Any], Sequence[Tensor]] = list,
    unit: float = 1e-3,
) -> tuple[list[str], list[float]]:
    """The times of all calls in units of so many seconds, then those of all but the last as parts of its own; and these again, as
    numbers. `results`: of what a call gives. Raises: ValueError where they differ from those of the last call.
    """
    *others, base = calls
    expected = results(calls[base]())
    for name in others:
        for one, there in zip(results(calls[name]()), expected, strict=True):
            if not (one.view_as(there) - there).norm() <= APART * there.norm():  # nor for NaN
                raise ValueError(f"{label}: results of {name} differ from those of {base}")
    timings = measure(calls, Blocks(rounds=rounds))
    of_base = timings[base].block_medians
    ratios = [median(a / b for a, b in zip(timings[name].block_medians, of_base, strict=True)) for name in others]
    return [*(f"{timing.median / unit:.3f}" for timing in timings.values()), *(f"{ratio:.2f}" for ratio in ratios)], ratios
