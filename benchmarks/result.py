"""What was found for a row, and the figures that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.measure import Timing
from benchmarks.suite import Row

OURS = "anyrnn"
FEW_SAMPLES = 4
"""Up to this many samples a step is bound by reading the weights, and is held against the memory's rate."""


@dataclass(frozen=True)
class Ceilings:
    """What the machine allows: flops a second in registers, those of torch's large product, bytes a second of a large array."""

    arithmetic: float | None
    product: float | None
    read: float | None


@dataclass(frozen=True)
class Result:
    """A row with its times, or why it has none.

    Status: `ok`; `wrong`, results differ; `declined`, anyrnn says that it does not do this; `failed`, it raised something else.
    """

    row: Row
    status: Literal["ok", "wrong", "declined", "failed"]
    reason: str = ""
    timings: Mapping[str, Timing] = field(default_factory=dict)
    flops: int = 0
    weight_bytes: int = 0
    first_seconds: Mapping[str, float] = field(default_factory=dict)
    """Each system's first call, with whatever it compiles, or loads from a cache on disk."""
    notes: tuple[str, ...] = ()
    """What else is to be said, such as peers that could not run this row."""

    @property
    def seconds(self) -> float | None:
        return self.timings[OURS].median if self.status == "ok" else None

    @property
    def rate(self) -> float | None:
        """Flops a second."""
        return self.flops / self.seconds if self.seconds else None

    def peak_fraction(self, ceilings: Ceilings) -> float | None:
        """Of the machine's arithmetic."""
        return self.rate / ceilings.arithmetic if self.rate and ceilings.arithmetic else None

    def bandwidth_fraction(self, ceilings: Ceilings) -> float | None:
        """Of the memory's rate, what reading the weights in every step takes; None where many samples share them."""
        if not self.seconds or not ceilings.read or self.row.samples > FEW_SAMPLES:
            return None
        return self.weight_bytes / self.seconds / ceilings.read

    @property
    def ratios(self) -> dict[str, float]:
        """Each peer's time over ours: above 1, anyrnn is faster."""
        if not self.seconds:
            return {}
        return {peer: timing.median / self.seconds for peer, timing in self.timings.items() if peer != OURS}

    @property
    def ratio_to_best(self) -> float | None:
        return min(self.ratios.values(), default=None)
