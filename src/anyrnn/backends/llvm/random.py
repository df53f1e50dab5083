"""Emits Philox4x32-10 (see `anyrnn.ir.philox`): one counter for four neighbouring features, so a vector of lanes needs a
quarter as many.
"""

from __future__ import annotations

from anyrnn.backends.llvm.builder import I64, Function, Value, const, vector
from anyrnn.ir.philox import MULTIPLIERS, ROUNDS, WEYL, WORD


def random_words(b: Function, seed: Value, feature: Value, sample: Value, step: Value, stream: Value, lanes: int) -> Value:
    """A 32-bit random word (as i64) for each of `lanes` features from `feature` on, which is a multiple of `lanes`."""
    count = max(1, lanes // 4)
    type = vector(I64, count)

    def spread(value: Value, name: str) -> Value:
        return b.splat(value, count, name)

    numbers = Value("<" + ", ".join(f"i64 {k}" for k in range(count)) + ">", type)
    group = b.binary("lshr", feature, const(I64, 2), "group")
    word = const(type, WORD)
    c0, c1 = b.add(spread(group, "group"), numbers, "counter"), spread(sample, "sample")
    c2, c3 = spread(step, "step"), spread(stream, "stream")
    k0 = spread(b.binary("and", seed, const(I64, WORD), "key.0"), "key.0")
    k1 = spread(b.binary("lshr", seed, const(I64, 32), "key.1"), "key.1")
    for _ in range(ROUNDS):
        p0, p1 = b.mul(c0, MULTIPLIERS[0], "product.0"), b.mul(c2, MULTIPLIERS[1], "product.1")
        high0, high1 = (b.binary("lshr", p, const(type, 32), "high") for p in (p0, p1))
        low0, low1 = (b.binary("and", p, word, "low") for p in (p0, p1))
        c0, c2 = (
            b.binary("xor", b.binary("xor", high1, c1), k0, "word.0"),
            b.binary("xor", b.binary("xor", high0, c3), k1, "word.2"),
        )
        c1, c3 = low1, low0
        k0 = b.binary("and", b.add(k0, WEYL[0]), word, "key.0")
        k1 = b.binary("and", b.add(k1, WEYL[1]), word, "key.1")
    return _interleaved(b, [c0, c1, c2, c3], count, lanes, feature)


def _interleaved(b: Function, words: list[Value], count: int, lanes: int, feature: Value) -> Value:
    """Lane l takes word l % 4 of counter l // 4; fewer lanes than four take the words that their feature says."""

    def join(x: Value, y: Value, size: int) -> Value:
        indices = ", ".join(f"i32 {k}" for k in range(2 * size))
        text = f"shufflevector {x.typed}, {y.typed}, <{2 * size} x i32> <{indices}>"
        return b.value(vector(I64, 2 * size), text, "words")

    both = join(join(words[0], words[1], count), join(words[2], words[3], count), 2 * count)
    poison = Value("poison", both.type)

    def pick(places: list[int]) -> Value:
        indices = ", ".join(f"i32 {k}" for k in places)
        return b.value(vector(I64, lanes), f"shufflevector {both.typed}, {poison.typed}, <{lanes} x i32> <{indices}>", "random")

    if lanes >= 4:
        return pick([(lane % 4) * count + lane // 4 for lane in range(lanes)])
    result = pick(list(range(lanes)))
    for start in range(lanes, 4, lanes):
        here = b.compare("eq", b.binary("and", feature, const(I64, 3)), const(I64, start), "here")
        result = b.select(here, pick(list(range(start, start + lanes))), result, "random")
    return result
