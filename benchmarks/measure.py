"""Timing in blocks."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

LEAST_ROUNDS = 3
ENDLESS = 5
"""So many times what is enough for a row ends it after any round."""


@dataclass(frozen=True)
class Blocks:
    """How a system is timed: in `rounds` blocks, each a pause, calls to warm up, and timed calls.

    There are at least `calls` timed calls in a block, and for quick systems as many as take `seconds`, up to `most`. At least
    `warm_up` calls come before them, and for quick systems as many as take `seconds`: after a pause a processor takes some
    milliseconds to come to its speed, in which quick calls would be timed and slow ones would not. Calls of
    more than `long` seconds need no more than one to warm up and one or two timed in a block; of one that takes `enough` seconds
    the first is the block. When a row has taken `enough` seconds, three rounds do, and one when it has taken five times as many.
    """

    rounds: int = 7
    pause: float = 0.030
    warm_up: int = 2
    calls: int = 6
    seconds: float = 0.010
    most: int = 100
    between: float = 0.0
    """Seconds of sleep before each timed call."""
    long: float = 0.5
    enough: float = 60.0


@dataclass(frozen=True)
class Timing:
    """Seconds of every timed call, block by block."""

    blocks: tuple[tuple[float, ...], ...]

    @property
    def samples(self) -> list[float]:
        return sorted(sample for block in self.blocks for sample in block)

    def percentile(self, percent: float) -> float:
        """The smallest sample that `percent` of the samples do not exceed."""
        samples = self.samples
        return samples[max(0, math.ceil(len(samples) * percent / 100) - 1)]

    @property
    def median(self) -> float:
        return median(self.samples)

    @property
    def block_medians(self) -> list[float]:
        return [median(block) for block in self.blocks]


@dataclass(frozen=True)
class Reference:
    """What the machine can do, to be timed in turn with the systems: a call, and the flops or bytes that it is."""

    call: Callable[[], object]
    amount: int


def measure(calls: Mapping[str, Callable[[], object]], blocks: Blocks) -> dict[str, Timing]:
    """Time each call: a block of the first, a block of the second, and so on, then all over again."""
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in calls}
    start = time.perf_counter()
    gc.collect()
    gc.freeze()  # a block's collection looks at what is made from here on: all of torch takes a tenth of a second
    try:
        for number in range(blocks.rounds):
            spent = time.perf_counter() - start
            if number and spent > blocks.enough * (1 if number >= LEAST_ROUNDS else ENDLESS):
                break
            for name, call in calls.items():
                found[name].append(_block(call, blocks))
    finally:
        gc.unfreeze()
    return {name: Timing(tuple(times)) for name, times in found.items()}


def _block(call: Callable[[], object], blocks: Blocks) -> tuple[float, ...]:
    gc.collect()
    time.sleep(blocks.pause)
    quickest = _timed(call)
    if quickest >= blocks.enough:
        return (quickest,)
    made, spent = 1, quickest
    while quickest < blocks.long and (made < blocks.warm_up or spent < blocks.seconds):
        seconds = _timed(call)
        made, spent, quickest = made + 1, spent + seconds, min(quickest, seconds)
    count = min(max(blocks.calls, math.ceil(blocks.seconds / max(quickest, 1e-9))), max(blocks.most, blocks.calls))
    if quickest >= blocks.long:
        count = 2 if quickest < 2 * blocks.long else 1
    gc.disable()
    try:
        if not blocks.between:
            return tuple([_timed(call) for _ in range(count)])
        return tuple([_paced(call, blocks.between) for _ in range(count)])
    finally:
        gc.enable()


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _paced(call: Callable[[], object], between: float) -> float:
    time.sleep(between)
    return _timed(call)


def geometric_mean(values: Sequence[float]) -> float | None:
    """None for no values."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
