"""Emits what vectors need of which some lanes are features."""

from __future__ import annotations

from typing import NamedTuple

from anyrnn.backends.llvm.builder import I64, Function, Value, const, i64, vector
from anyrnn.backends.llvm.element import Element


class Lanes(NamedTuple):
    """Which lanes of a vector there are: a mask, and whether they are all."""

    mask: Value
    are_all: Value


def lanes_left(b: Function, left: Value, lanes: int) -> Lanes:
    """Of a vector at whose first lane `left` features are left."""
    return Lanes(first_lanes(b, left, lanes), b.compare("sge", left, i64(lanes), "are_all"))


def load_lanes(b: Function, e: Element, at: Value, lanes: Lanes, name: str) -> Value:
    """Some lanes, the others zero. A full vector is read without a mask: a load with a mask waits for stores."""
    ways = lambda: [b.load(e.vector, at, name)], lambda: [b.masked_load(e.vector, at, lanes.mask, name)]
    return b.either(lanes.are_all, *ways, names=("whole", "masked"), name=name)[0]


def store_lanes(b: Function, value: Value, at: Value, lanes: Lanes) -> None:
    """Write some lanes; a full vector without a mask."""
    ways = lambda: b.store(value, at), lambda: b.masked_store(value, at, lanes.mask)
    b.either(lanes.are_all, *ways, names=("whole", "masked"))


def added_to(b: Function, before: Value, value: Value, fresh: Value, name: str) -> Value:
    """`before + value`; where `fresh` is true, what was there counts as zero. Of vectors it has a bit for each lane: with one for
    all, the code generator branches at every vector.
    """
    return b.fadd(b.select(fresh, const(before.type, 0.0), before, "before"), value, name)


def lane_numbers(lanes: int) -> Value:
    return Value("<" + ", ".join(f"i64 {k}" for k in range(lanes)) + ">", vector(I64, lanes))


def first_lanes(b: Function, count: Value, lanes: int) -> Value:
    """A mask of the first `count` lanes."""
    return b.compare("slt", lane_numbers(lanes), b.splat(count, lanes, "count"), "mask")
