"""Emits Philox4x32-10 (see `anyrnn.ir.philox`): one counter for four neighbouring features, so a vector of lanes needs a
quarter as many.
"""

from __future__ import annotations

from anyrnn.backends.llvm.builder import I64, Function, Value, const, vector
from anyrnn.ir.philox import MULTIPLIERS, ROUNDS, WEYL, WORD

Keys = list[tuple[Value, Value]]
"""Of each round, for all counters of a vector."""


def keys_of(b: Function, seed: Value, lanes: int) -> Keys:
    """They are the same for all vectors of a call."""
    count = _counters(lanes)
    first, second = b.splat(seed, count, "key.0"), b.splat(b.binary("lshr", seed, const(I64, 32), "key.1"), count, "key.1")
    keys = [(first, second)]
    for _ in range(ROUNDS - 1):
        first, second = b.add(first, WEYL[0], "key.0"), b.add(second, WEYL[1], "key.1")
        keys.append((first, second))
    return keys


def _counters(lanes: int) -> int:
    return max(1, lanes // 4)


def random_words(b: Function, keys: Keys, feature: Value, sample: Value, step: Value, stream: Value, lanes: int) -> Value:
    """A 32-bit random word for each of `lanes` features from `feature` on, which is a multiple of `lanes`.

    Words stand in 64 bits meanwhile, of which no multiplication looks at the upper half.
    """
    count = _counters(lanes)
    type = vector(I64, count)

    def spread(value: Value, name: str) -> Value:
        return b.splat(value, count, name)

    def low(value: Value) -> Value:
        return b.binary("and", value, const(type, WORD), "word")

    half = const(type, 32)
    numbers = Value("<" + ", ".join(f"i64 {k}" for k in range(count)) + ">", type)
    group = b.binary("lshr", feature, const(I64, 2), "group")
    c0, c1 = b.add(spread(group, "group"), numbers, "counter"), spread(sample, "sample")
    c2, c3 = spread(step, "step"), spread(stream, "stream")
    for k0, k1 in keys:
        p0, p1 = b.mul(low(c0), MULTIPLIERS[0], "product.0"), b.mul(low(c2), MULTIPLIERS[1], "product.1")
        high0, high1 = (b.binary("lshr", p, half, "high") for p in (p0, p1))
        c0, c2 = (
            b.binary("xor", b.binary("xor", high1, c1), k0, "word.0"),
            b.binary("xor", b.binary("xor", high0, c3), k1, "word.2"),
        )
        c1, c3 = p1, p0
    pairs = [b.binary("or", low(first), b.binary("shl", second, half, "upper"), "pair") for first, second in ((c0, c1), (c2, c3))]
    return _in_order(b, (pairs[0], pairs[1]), count, lanes, feature)


def are_kept(b: Function, words: Value, threshold: Value, lanes: int) -> Value:
    """A mask: whether words are not below a threshold from 0 to 2 ** 32, an i64."""
    low = b.splat(b.cast("trunc", threshold, "i32", "threshold"), lanes, "threshold")
    possible = b.splat(b.compare("ule", threshold, const(I64, WORD), "possible"), lanes, "possible")
    return b.binary("and", b.compare("uge", words, low, "kept"), possible, "kept")


def _in_order(b: Function, pairs: tuple[Value, Value], count: int, lanes: int, feature: Value) -> Value:
    """Lane l takes word l % 4 of counter l // 4, of which the pairs hold two each; fewer lanes than four take the words that
    their feature says.
    """

    def pick(x: Value, y: Value, places: list[int], type: str) -> Value:
        indices = ", ".join(f"i32 {k}" for k in places)
        return b.value(type, f"shufflevector {x.typed}, {y.typed}, <{len(places)} x i32> <{indices}>", "words")

    in_turn = pick(*pairs, [k + count * which for k in range(count) for which in (0, 1)], vector(I64, 2 * count))
    words = b.cast("bitcast", in_turn, vector("i32", 4 * count), "words")
    if lanes >= 4:
        return words
    parts = [pick(words, words, list(range(start, start + lanes)), vector("i32", lanes)) for start in range(0, 4, lanes)]
    result = parts[0]
    for start, part in zip(range(lanes, 4, lanes), parts[1:], strict=True):
        here = b.compare("eq", b.binary("and", feature, const(I64, 3)), const(I64, start), "here")
        result = b.select(here, part, result, "random")
    return result
