"""Emits tiles of products of integers of eight bits, see `int8`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from anyrnn.backends.llvm.builder import Function, Value, const, vector
from anyrnn.backends.llvm.covering import add_products
from anyrnn.backends.llvm.element import Element
from anyrnn.backends.llvm.fetch import fetch_weights
from anyrnn.backends.llvm.int8 import add_four, offset
from anyrnn.backends.llvm.target import Machine
from anyrnn.backends.llvm.tile_kinds import FeatureBlock


def int8_sums(
    b: Function,
    e: Element,
    machine: Machine,
    block: FeatureBlock,
    first: Value,
    height: int,
    vectors: Sequence[int],
    before: Callable[[int], Value],
    ahead: Value,
    is_far: Value | None,
) -> Iterator[Value]:
    """The sums of a tile with a block's products, [row][vector], each emitted when it is asked for. `first` is where the first
    row's block stands in a room, and `before` gives the sums before by number. Weights are fetched so many bytes `ahead` where
    `is_far`, if they ever are.
    """
    bits = vector("i32", e.lanes)
    k_bytes = b.mul(block.weight_bytes, e.together, "k_bytes")
    corrections_at = b.at(block.weights, k_bytes, "i8", "corrections_at")
    corrections = [const(bits, 0)] * len(vectors)
    if offset(machine):
        corrections = [b.load(bits, b.at(corrections_at, v * e.panel_row, "i8"), "correction", e.panel_row) for v in vectors]
    rows = [b.at(first, b.mul(block.row_bytes, i), "i8", f"row.{i}") for i in range(height)]
    sums = [(f"sum{v}.{i}", start) for i in range(height) for v, start in zip(vectors, corrections, strict=True)]
    steps = b.ceil_div(block.features, e.together, "steps")

    def factor(row: Value, k: Value) -> Value:
        return b.splat(b.load("i32", b.at(b.at(row, e.panel_row, "i8"), k, "i32"), "factor"), e.lanes, "factor")

    def words(here: Value, v: int) -> Value:
        return b.load(bits, b.at(here, v * e.panel_row, "i8"), "weight", e.panel_row)

    def products(fetches: bool) -> list[Value]:
        loop = b.loop("k", 0, steps, 1, [("words", b.at(corrections_at, k_bytes, "i8", "words")), *sums], once=True)
        here, *totals = loop.values
        if fetches:
            fetch_weights(b, e, here, vectors, ahead)
        factors, weights = [partial(factor, row, loop.index) for row in rows], [partial(words, here, v) for v in vectors]
        added = add_products(b, machine, factors, weights, totals, partial(add_four, machine=machine))
        return b.end(loop, [b.at(here, k_bytes, "i8", "words"), *added])[1:]

    totals = b.either(is_far, partial(products, True), partial(products, False)) if is_far is not None else products(False)
    scales = [b.load(e.vector, b.at(block.weights, v * e.panel_row, "i8"), "scale", e.panel_row) for v in vectors]
    for i, row in enumerate(rows):
        scale = b.splat(b.load(e.type, row, "scale"), e.lanes, "scale")
        for v, of_weights in enumerate(scales, i * len(vectors)):
            scaled = b.fmul(b.cast("sitofp", totals[v], e.vector, "total"), of_weights, "scaled")
            yield b.fma(scaled, scale, before(v), "sum")
