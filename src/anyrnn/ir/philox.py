"""Philox4x32-10, the counter-based random number generator: the same bits wherever and in whatever order they are drawn.

Source: Salmon et al. 2011, Parallel Random Numbers: As Easy as 1, 2, 3. Key: the seed. Counter: (feature / 4, sample, step,
stream); the four results are for four neighbouring features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
WORD = 0xFFFFFFFF

KINDS = ("between_layers",)
"""What random choices are for; a kind's position is part of its stream."""


def stream_of(layer: int, kind: str) -> int:
    """The fourth word of the counter."""
    return layer * 256 + KINDS.index(kind)


def philox(counter: Sequence[Any], key: tuple[int, int]) -> list[Any]:
    """Four words from four, as integer arrays (of at least 64 bits) of any namespace or Python integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> 32 & WORD) ^ c1 ^ k0, p1 & WORD, (p0 >> 32 & WORD) ^ c3 ^ k1, p0 & WORD
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return [c0, c1, c2, c3]


def threshold(probability: float) -> int:
    """Words below it are dropped."""
    return min(round(probability * 2**32), 2**32)


@dataclass(frozen=True)
class Randomness:
    """What a call's random choices depend on: the seed, for each layer the probability with which features of its input
    are dropped, and in a packed batch the caller's sample and step of each packed row.
    """

    seed: int
    probabilities: tuple[float, ...]
    places: tuple[Any, Any] | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.seed & WORD, self.seed >> 32 & WORD

    def scale(self, layer: int) -> float:
        """What the features that are kept are multiplied by."""
        p = self.probabilities[layer]
        return 1 / (1 - p) if p < 1 else 0.0

    def kept(self, xp: Any, integers: Any, layer: int, kind: str, step: int, rows: int, features: int, before: int = 0) -> Any:
        """A mask [rows, features]. `integers(n)` makes the 64-bit integers below n in the namespace xp. In a packed batch so many
        rows are `before` those of the step.
        """
        groups, samples, steps = integers((features + 3) // 4)[None, :], integers(rows)[:, None], step
        if self.places is not None:
            here = [place[before : before + rows].tolist() for place in self.places]
            samples, steps = (integers(1 + max(numbers))[numbers][:, None] for numbers in here)
        zero = samples * 0 + groups * 0
        words = philox([zero + groups, zero + samples, zero + steps, zero + stream_of(layer, kind)], self.key)
        interleaved = xp.stack(words, -1).reshape(rows, -1)[:, :features]
        return interleaved >= threshold(self.probabilities[layer])
