"""Philox4x32-10, the counter-based random number generator: the same bits wherever and in whatever order they are drawn.

Source: Salmon et al. 2011, Parallel Random Numbers: As Easy as 1, 2, 3. Key: the seed. Counter: (feature / 4, sample, step,
stream); the four results are for four neighbouring features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class Kind:
    """What random choices are for. Those of one sequence are alike in all its steps unless made anew in `each_step`, and in both
    directions unless `each_direction` has its own. Those `of_weights` are of rows and columns instead of samples and features.
    """

    number: int
    each_step: bool
    each_direction: bool
    of_weights: bool = False


KINDS = {
    "between_layers": Kind(0, each_step=True, each_direction=False),
    "input": Kind(1, each_step=False, each_direction=True),
    "output": Kind(2, each_step=False, each_direction=True),
    "recurrent": Kind(3, each_step=False, each_direction=True),
    "zoneout": Kind(4, each_step=True, each_direction=True),
    "weights": Kind(5, each_step=False, each_direction=True, of_weights=True),
}
"""By name. A choice is called by its kind, or `kind.k` if it is for state or matrix number k."""
MOST = 256
"""States or matrices that choices of a kind can be for."""


def kind_of(choice: str) -> Kind:
    return KINDS[choice.partition(".")[0]]


def stream_of(layer: int, direction: int, choice: str) -> int:
    """The fourth word of the counter."""
    kind, state = kind_of(choice), int(choice.partition(".")[2] or 0)
    return (2 * layer + direction * kind.each_direction) << 16 | state << 8 | kind.number


def product(word: Any, multiplier: int) -> tuple[Any, Any]:
    """The upper and the lower word of a product of two. In one piece it would overflow signed integers of 64 bits, of which C's
    compilers, and so torch's, assume that they never do.
    """
    lower = (word & 0xFFFF) * multiplier
    upper = (word >> 16) * multiplier + (lower >> 16)
    return upper >> 16, (upper & 0xFFFF) << 16 | lower & 0xFFFF


@dataclass(frozen=True)
class Words:
    """What words of 32 bits are: by default integers of at least 64 bits, arrays of any namespace or Python's.

    Args:
        of: makes one of a Python integer.
        product: gives the upper and the lower word of a product of two.
    """

    of: Callable[[int], Any] = int
    product: Callable[[Any, int], tuple[Any, Any]] = product


IN_64_BITS = Words()


def philox(counter: Sequence[Any], key: tuple[Any, Any], words: Words = IN_64_BITS) -> list[Any]:
    """Four words from four."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        (high0, low0), (high1, low1) = words.product(c0, MULTIPLIERS[0]), words.product(c2, MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + words.of(WEYL[0])) & words.of(WORD), (k1 + words.of(WEYL[1])) & words.of(WORD)
    return [c0, c1, c2, c3]


def threshold(probability: float) -> int:
    """Words below it are dropped."""
    return min(round(probability * 2**32), 2**32)


@dataclass(frozen=True)
class Randomness:
    """What a call's random choices depend on: the seed, the probability in each layer of each choice (with which features are
    dropped, or states stay as they are), and in a packed batch the caller's sample and step of each packed row.
    """

    seed: Any
    """An integer; or torch's, on a device that alone knows its number."""
    probabilities: Mapping[str, Sequence[float]]
    places: tuple[Any, Any] | None = None
    first_layer: int = 0
    """The number of the network's first layer, which counts in streams."""
    draw: Callable[..., Any] | None = field(default=None, compare=False)
    """What gives the masks of weights, if not NumPy: of the seed, the stream, the threshold, rows and columns."""

    @property
    def key(self) -> tuple[Any, Any]:
        return self.seed & WORD, self.seed >> 32 & WORD

    @property
    def words(self) -> Words:
        """What integers are made of."""
        return IN_64_BITS

    def at(self, layer: int, direction: int, step: int, before: int = 0) -> Chances:
        """The choices of one step of a layer in one direction. In a packed batch so many rows are `before` those of the step."""
        return Chances(self, layer, direction, step, before)


@dataclass(frozen=True)
class Chances:
    """The random choices of one step, see `Randomness.at`."""

    randomness: Randomness
    layer: int
    direction: int
    step: int
    before: int

    def stream(self, choice: str) -> int:
        return stream_of(self.randomness.first_layer + self.layer, self.direction, choice)

    def probability(self, choice: str) -> float:
        return self.randomness.probabilities[choice][self.layer]

    def scale(self, choice: str) -> float:
        """What the features that are kept are multiplied by."""
        p = self.probability(choice)
        return 1 / (1 - p) if p < 1 else 0.0

    def kept(self, xp: Any, integers: Any, choice: str, rows: int, features: int) -> Any:
        """A mask [rows, features]: False with the choice's probability. `integers(n)` makes the 64-bit integers below n in the
        namespace xp.
        """
        kind, draw = kind_of(choice), self.randomness.draw
        if kind.of_weights and draw is not None:
            return draw(self.randomness.seed, self.stream(choice), threshold(self.probability(choice)), rows, features)
        groups, samples, steps = integers((features + 3) // 4)[None, :], integers(rows)[:, None], self.step
        if self.randomness.places is not None and not kind.of_weights:
            here = [place[self.before : self.before + rows].tolist() for place in self.randomness.places]
            samples, steps = (integers(1 + max(numbers))[numbers][:, None] for numbers in here)
        zero, stream, words = samples * 0 + groups * 0, self.stream(choice), self.randomness.words
        if not kind.each_step:
            steps = 0
        drawn = philox([zero + groups, zero + samples, zero + steps, zero + stream], self.randomness.key, words)
        interleaved = xp.stack(drawn, -1).reshape(rows, 4 * groups.shape[1])[:, :features]
        limit = threshold(self.probability(choice))
        return interleaved > words.of(limit - 1) if limit else interleaved >= 0  # the highest limit has 33 bits
