"""Emits what tiles of all kinds are made of: products in registers, and the loops over as many tiles as cover some rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anyrnn.backends.llvm.builder import Function, Value, i64
from anyrnn.backends.llvm.factors import add_product
from anyrnn.backends.llvm.target import Machine


def add_products(
    b: Function,
    machine: Machine,
    factors: Sequence[Callable[[], Value]],
    vectors: Sequence[Callable[[], Value]],
    sums: Sequence[Value],
    add: Callable[[Function, Value, Value, Value], Value] = add_product,
) -> list[Value]:
    """Add every factor (a number in all lanes) times every vector to its sum, by `add`: [factor][vector]. All vectors are loaded
    first, and one factor at a time, if registers hold them beside the sums; else all factors, and one vector at a time.
    """
    count = len(vectors)
    if len(sums) + count + 1 <= machine.multiplying:
        loaded, added = [load() for load in vectors], []
        for i, load in enumerate(factors):
            factor, before = load(), sums[i * count : (i + 1) * count]
            added += [add(b, factor, value, total) for value, total in zip(loaded, before, strict=True)]
        return added
    numbers, columns = [load() for load in factors], []
    for k, load in enumerate(vectors):
        value = load()
        columns.append([add(b, factor, value, total) for factor, total in zip(numbers, sums[k::count], strict=True)])
    return [total for row in zip(*columns, strict=True) for total in row]


def covered(b: Function, count: Value, heights: tuple[int, ...]) -> list[tuple[Value, Value, int]]:
    """How tiles cover `count` things: as many of the highest as fit, then lower ones; of each height, from which thing to which.
    The last of the highest and what is left behind it are two of the next height where that is enough, which takes less time.
    """
    first, found = i64(0), []
    for height in heights:
        left = b.sub(count, first, "left")
        tiles = b.binary("sdiv", left, i64(height), "tiles")
        if height == heights[0] and len(heights) > 1:
            rest = b.add(b.binary("srem", left, i64(height)), height, "rest")
            lower = b.binary("and", two_lower(b, rest, heights), b.compare("sgt", tiles, i64(0), "any"), "lower")
            tiles = b.select(lower, b.sub(tiles, 1), tiles, "tiles")
        end = b.add(first, b.mul(tiles, height), "end")
        found.append((first, end, height))
        first = end
    return found


def cover(b: Function, count: Value, heights: tuple[int, ...], emit: Callable[[Value, int], None]) -> None:
    """Cover `count` things by tiles; `emit(first, height)` makes a tile."""
    for first, end, height in covered(b, count, heights):
        loop = b.loop("tile", first, end, height)
        emit(loop.index, height)
        b.end(loop)


def two_lower(b: Function, left: Value, heights: tuple[int, ...]) -> Value:
    """Whether what is left is more than one of the highest tiles, but two of the next height hold it too: a highest tile and a
    low one take longer.
    """
    more = b.compare("sgt", left, i64(heights[0]), "more")
    return b.binary("and", more, b.compare("sle", left, i64(2 * heights[1]), "fits_lower"), "two_lower")
