"""What was found for a row, and the figures that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.measure import Timing
from benchmarks.suite import Row

OURS = "anyrnn"
MEMORY_BYTES = 2**28
"""An array of so many bytes is read from memory, whatever the caches."""
FEW_SAMPLES = 4
"""Up to this many samples a step is bound by reading the weights, and is held against the memory's rate."""


@dataclass(frozen=True)
class Ceilings:
    """What the machine allows: flops a second in registers, those of the quickest large product of a library, and the bytes a
    second that are read of an array of so many bytes.
    """

    arithmetic: float | None
    product: float | None
    reads: Mapping[int, float] = field(default_factory=dict)

    @property
    def memory(self) -> float | None:
        """Bytes a second that are read from memory."""
        return self.reads.get(MEMORY_BYTES)


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
    step_bytes: int = 0
    """Of the weights that every step reads."""
    array_bytes: int = 0
    """Of the sequences that are read and written at least once."""
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
        """Of the rate of a large product."""
        return self.rate / ceilings.product if self.rate and ceilings.product else None

    def arithmetic_fraction(self, ceilings: Ceilings) -> float | None:
        """Of what the machine's registers allow."""
        return self.rate / ceilings.arithmetic if self.rate and ceilings.arithmetic else None

    def bandwidth_fraction(self, ceilings: Ceilings) -> float | None:
        """Of the rate of reading an array of the weights' size, what reading them in every step takes; None where many samples
        share them.
        """
        read = ceilings.reads.get(self.step_bytes)
        return self.weight_bytes / self.seconds / read if self.seconds and read and self.row.samples <= FEW_SAMPLES else None

    @property
    def ratios(self) -> dict[str, float]:
        """Each peer's time over ours: above 1, anyrnn is faster."""
        if not self.seconds:
            return {}
        return {peer: timing.median / self.seconds for peer, timing in self.timings.items() if peer != OURS}

    @property
    def ratio_to_best(self) -> float | None:
        return min(self.ratios.values(), default=None)
