"""Emits what products are made of: numbers of an operand in all lanes, vectors of weights, and adding their products to sums.

Where an element says `pairs`, two features are multiplied by one instruction (`vdpbf16ps`): each lane has two numbers of an
operand and two weights, all rounded to bfloat16, whose products are added in float32. Weights are packed so; rows of an operand
are rounded into a place on the stack before they are multiplied, where a pair is read as one number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anyrnn.backends.llvm.builder import PTR, Function, Value, const, i64, vector
from anyrnn.backends.llvm.element import Element
from anyrnn.backends.llvm.lanes import first_lanes
from anyrnn.backends.llvm.shapes import OF_ZEROS

PAIR, NARROW = "i32", "bfloat"
"""Two numbers side by side, and each of them."""


class Factors:
    """Of some rows, the numbers that products want in all lanes."""

    def __init__(self, b: Function, e: Element, rows: int, features: int) -> None:
        """With room for so many rows and features of each, of whole panels."""
        self.b, self.e, self.features = b, e, features
        self.rows: list[Value] = []
        if e.pairs:
            self.room = b.value(PTR, f"alloca [{rows * features} x {NARROW}], align {e.panel_row}", "rounded")

    def round(self, rows: Sequence[Value], features: Value, panel_bytes: Value) -> None:
        """Round so many features of rows at some addresses, whose panels are so many bytes apart; nothing without pairs."""
        b, e = self.b, self.e
        if not e.pairs:
            return
        panel = b.loop("rounding", 0, features, e.lanes, [("from", i64(0))], once=True)
        mask = first_lanes(b, b.sub(features, panel.index), e.lanes)
        to = b.at(self.room, panel.index, NARROW, "to")
        for i, row in enumerate(rows):
            value = b.masked_load(e.vector, b.at(row, panel.values[0], "i8", "from"), mask, "row")
            b.store(rounded(b, e, value), b.at(to, i * self.features, NARROW), e.panel_row // 2)
        b.end(panel, [b.add(panel.values[0], panel_bytes)])

    def of_panel(self, rows: Sequence[Value], first: Value, features: Value) -> Value:
        """Next so many features from a first one on are multiplied; in how many steps."""
        b, e = self.b, self.e
        if not e.pairs:
            self.rows = list(rows)
            return features
        self.rows = [b.at(self.room, b.add(first, i * self.features), NARROW, f"rounded.{i}") for i in range(len(rows))]
        return steps_of(b, e, features)

    def at(self, row: int, step: Value | int) -> Value:
        """What a step multiplies of a row, in all lanes."""
        return factor_at(self.b, self.e, self.rows[row], step)


def factor_at(b: Function, e: Element, at: Value, number: Value | int) -> Value:
    """One of the numbers, or pairs, at an address in all lanes."""
    type = PAIR if e.pairs else e.type
    return b.splat(b.load(type, b.at(at, number, type), "factor"), e.lanes, "factor")


def weight_at(b: Function, e: Element, at: Value, number: int, aligned: int) -> Value:
    """One of the vectors of weights at an address."""
    type = vector(PAIR, e.lanes) if e.pairs else e.vector
    return b.load(type, b.at(at, number * e.panel_row, "i8"), "weight", aligned)


def add_product(b: Function, factor: Value, weight: Value, total: Value) -> Value:
    """A sum, and a factor times weights."""
    if factor.type == total.type:
        return b.fma(factor, weight, total, "sum")
    name, both = "llvm.x86.avx512bf16.dpbf16ps.512", vector(NARROW, 32)
    b.module.declare(name, total.type, [total.type, both, both])
    pairs = [b.cast("bitcast", value, both, "pairs").typed for value in (factor, weight)]
    return b.value(total.type, f"call {total.type} @{name}({total.typed}, {', '.join(pairs)})", "sum")


def rounded(b: Function, e: Element, value: Value) -> Value:
    """A vector's numbers in bfloat16."""
    return b.cast("fptrunc", value, vector(NARROW, e.lanes), "rounded")


def paired(b: Function, e: Element, low: Value, high: Value) -> Value:
    """Two vectors' numbers in bfloat16, lane by lane side by side."""
    return _joined(b, e, low, high, [k // 2 + k % 2 * e.lanes for k in range(2 * e.lanes)])


def load_weights(b: Function, e: Element, at: Value) -> Value:
    """As many weights that follow each other as a vector holds."""
    first = b.load(e.vector, at, "weights")
    if not e.pairs:
        return first
    return _joined(b, e, first, b.load(e.vector, b.at(at, e.lanes, e.type), "weights"), range(2 * e.lanes))


def no_weights(e: Element) -> Value:
    """A vector of weights that are zero."""
    return const(vector(PAIR, e.lanes), 0) if e.pairs else const(e.vector, 0.0)


def times_zeros(b: Function, e: Element, weights: Value, total: Value) -> Value:
    """A sum, and weights times zeros: NaN where one is infinite or NaN."""
    parts = [weights]
    if e.pairs:  # a number of bfloat16 is the upper half of one of float32
        bits, upper = (const(vector(PAIR, e.lanes), n) for n in (16, -(2**16)))
        halves = b.binary("shl", weights, bits, "low"), b.binary("and", weights, upper, "high")
        parts = [b.cast("bitcast", half, e.vector, "weights") for half in halves]
    for part in parts:
        total = b.fma(part, const(e.vector, 0.0), total, "of_zeros")
    return total


def steps_of(b: Function, e: Element, features: Value) -> Value:
    """In how many steps so many features are multiplied."""
    return b.ceil_div(features, e.together, "steps")


def weight_steps(b: Function, e: Element, depth: Value) -> Value:
    """Of a group's weights in a pack."""
    steps = steps_of(b, e, depth)
    return b.add(steps, b.mul(b.ceil_div(depth, e.block), e.scale_steps), "weight_steps") if e.scale_steps else steps


def packed_steps(b: Function, e: Element, depth: Value) -> Value:
    """Of a group in a pack: those of its weights, and of their product with zeros."""
    return b.add(weight_steps(b, e, depth), OF_ZEROS, "packed_steps")


def _joined(b: Function, e: Element, first: Value, second: Value, order: Iterable[int]) -> Value:
    places = ", ".join(f"i32 {k}" for k in order)
    halves = rounded(b, e, first).typed, rounded(b, e, second).typed
    both = vector(NARROW, 2 * e.lanes)
    joined = b.value(both, f"shufflevector {', '.join(halves)}, <{2 * e.lanes} x i32> <{places}>", "joined")
    return b.cast("bitcast", joined, vector(PAIR, e.lanes), "pairs")
