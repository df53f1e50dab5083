"""What was found for a row, and the figures that follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from benchmarks.measure import Timing
from benchmarks.suite import Row

OURS = "anyrnn"
FEW_SAMPLES = 4
"""Up to this many samples a step is bound by reading the weights, and is held against the memory's rate."""


@dataclass(frozen=True)
class Ceilings:
    """What the machine allows: flops a second in registers, bytes a second read of an array that no cache holds, and the seconds
    of each costly op, of an element.
    """

    arithmetic: float | None
    memory: float | None
    ops: Mapping[str, float] = field(default_factory=dict)

    def pointwise(self, elements: Mapping[str, int]) -> float:
        """Seconds of the ops of so many elements. One that is not costly is one instruction, as a multiplication and an addition
        together are.
        """
        instruction = 2 / self.arithmetic if self.arithmetic else 0.0
        return sum(count * self.ops.get(op, instruction) for op, count in elements.items())


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
    """Of the sequences that are read and written at least once, and in training of the states of all steps."""
    input_flops: int = 0
    """Of the products with the input, which are made for many steps at once."""
    elements: Mapping[str, int] = field(default_factory=dict)
    """Of the ops that are no products, by name."""
    product_rates: tuple[float, ...] = ()
    """Flops a second of a library's large product in each round, as all rates timed in turn with the row."""
    read_rates: tuple[float, ...] = ()
    """Bytes a second of reading `weight_bytes` as the row does, those of the input once and `step_bytes` again and again."""
    lstm_rates: tuple[float, ...] = ()
    """Flops a second of an LSTM of the row's sizes, for cells that torch.nn does not have."""
    input_rates: tuple[float, ...] = ()
    """Flops a second of the products with the input by a library, for the same cells."""
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

    @property
    def once_bytes(self) -> int:
        """Of the weights that are read once, in inference."""
        return self.weight_bytes - (self.row.steps - 1) * self.step_bytes

    @property
    def seconds_of_rounds(self) -> list[float]:
        return self.timings[OURS].block_medians if self.status == "ok" else []

    @property
    def peak_fraction(self) -> float | None:
        """Of the rate of a large product."""
        rounds = zip(self.seconds_of_rounds, self.product_rates, strict=True) if self.product_rates else ()
        return middle(self.flops / seconds / rate for seconds, rate in rounds)

    def arithmetic_fraction(self, ceilings: Ceilings) -> float | None:
        """Of what the machine's registers allow."""
        return self.rate / ceilings.arithmetic if self.rate and ceilings.arithmetic else None

    @property
    def bandwidth_fraction(self) -> float | None:
        """The time of reading the recurrent weights in every step but the first, which begins with zeros, and those of the input
        once, over ours. Of both, multiplying at the rate of a large product counts instead where it takes longer. None where many
        samples share the weights.
        """
        if not self.read_rates or not self.product_rates:
            return None
        later = self.row.steps - 1
        multiplied = (self.flops - self.input_flops) * later / self.row.steps

        def fraction(seconds: float, read_rate: float, product_rate: float) -> float:
            of_steps = max(later * self.step_bytes / read_rate, multiplied / product_rate)
            return (of_steps + max(self.once_bytes / read_rate, self.input_flops / product_rate)) / seconds

        return middle(map(fraction, self.seconds_of_rounds, self.read_rates, self.product_rates))

    @property
    def ratios(self) -> dict[str, float]:
        """Each peer's time over ours: above 1, anyrnn is faster. The middle one of the rounds' ratios, as neighbours come and go
        between rounds, and slow down both of a round.
        """
        ours = self.seconds_of_rounds
        pairs = {peer: zip(timing.block_medians, ours, strict=True) for peer, timing in self.timings.items() if peer != OURS}
        return {peer: median(theirs / seconds for theirs, seconds in rounds) for peer, rounds in pairs.items()} if ours else {}

    @property
    def ratio_to_best(self) -> float | None:
        return min(self.ratios.values(), default=None)


def middle(values: Iterable[float]) -> float | None:
    """The median; None of no values."""
    return median(found) if (found := list(values)) else None
