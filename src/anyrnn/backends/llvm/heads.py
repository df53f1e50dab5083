"""Block-diagonal weights: what a group of features multiplies of them, and how they are packed. Of the results, and of what is
multiplied, each block has as many features as every other.
"""

from __future__ import annotations

from collections.abc import Callable

from anyrnn.backends.llvm import int8
from anyrnn.backends.llvm.builder import Function, Value, const, i64
from anyrnn.backends.llvm.element import Element
from anyrnn.backends.llvm.factors import NARROW, packed_steps


def blocks_between(
    b: Function, first: Value, last: Value, sizes: tuple[Value, Value], heads: int, lanes: int
) -> tuple[Value, Value]:
    """The features that the blocks of some results multiply, the first and the last of which are given: from where, rounded down
    to a whole panel, and up to where. `sizes` are those of the results and of what is multiplied.
    """
    rows, columns = (b.binary("sdiv", size, i64(heads), "block") for size in sizes)
    begin = b.mul(b.binary("sdiv", first, rows), columns, "begin")
    end = b.mul(b.add(b.binary("sdiv", last, rows), 1), columns, "end")
    return b.sub(begin, b.binary("srem", begin, i64(lanes)), "whole_panels"), end


class _Weights:
    """A block-diagonal matrix, of which the blocks stand one below the other."""

    def __init__(self, b: Function, e: Element, transposed: bool, heads: int) -> None:
        """Of the function that `Copies.pack_blocks` begins."""
        self.b, self.e, self.transposed = b, e, transposed
        _, self.matrix, self.row_bytes, self.size, depth, *_ = b.arguments
        self.rows, self.columns = (b.binary("sdiv", n, i64(heads), "block") for n in (self.size, depth))
        self.last = b.sub(self.size, 1, "last")

    def of_feature(self, feature: Value) -> Callable[[Value], Value]:
        """What emits a feature's weight for a k: zero where its block has none, or where there is no such feature."""
        b, e = self.b, self.e
        there = b.compare("slt", feature, self.size, "there")
        feature = b.minimum(feature, self.last, "feature")
        block = b.binary("sdiv", feature, self.rows, "block")
        from_k, to_k = b.mul(block, self.columns, "from_k"), b.mul(b.add(block, 1), self.columns, "to_k")

        def weight(k: Value) -> Value:
            inside = b.binary("and", b.compare("sge", k, from_k), b.compare("slt", k, to_k), "inside")
            inside = b.binary("and", inside, there, "inside")
            near = b.minimum(b.maximum(k, from_k, "near"), b.sub(to_k, 1), "near")
            if self.transposed:  # rows go along k, and have the features of one block
                row, column = near, b.sub(feature, b.mul(block, self.rows), "column")
            else:
                row, column = feature, b.sub(near, from_k, "column")
            source = b.at(b.at(self.matrix, b.mul(row, self.row_bytes), "i8", "row"), column, e.type, "source")
            return b.select(inside, b.load(e.type, source, "weight"), const(e.type, 0.0), "weight")

        return weight


def pack_blocks(b: Function, e: Element, transposed: bool, heads: int) -> None:
    """The body of `Copies.pack_blocks`: feature by feature of a group, for every k that one of the group's blocks has. Each
    number is written once, as other calls may read those that are there.
    """
    pack, _, _, size, depth, k_bytes, width, group0, group1 = b.arguments
    weights = _Weights(b, e, transposed, heads)
    group = b.loop("group", group0, group1)
    target = b.at(pack, b.mul(b.mul(group.index, packed_steps(b, e, depth)), k_bytes), "i8", "target")
    features = b.mul(width, e.lanes)
    first = b.mul(group.index, features, "first")
    end_of_group = b.minimum(b.sub(b.add(first, features), 1), weights.last, "last_of_group")
    begin, end = blocks_between(b, first, end_of_group, (size, depth), heads, e.lanes)
    lane = b.loop("lane", 0, features)
    weight_at = weights.of_feature(b.add(first, lane.index, "feature"))
    k = b.loop("k", begin, b.add(end, b.binary("srem", end, i64(2)), "whole_pairs") if e.pairs else end)
    value = weight_at(k.index)
    if e.pairs:
        to = b.at(target, b.mul(b.binary("sdiv", k.index, i64(2)), k_bytes), "i8", "pair")
        to = b.at(to, b.add(b.mul(lane.index, 2), b.binary("srem", k.index, i64(2))), NARROW, "to")
        b.store(b.cast("fptrunc", value, NARROW, "rounded"), to)
    else:
        b.store(value, b.at(b.at(target, b.mul(k.index, k_bytes), "i8"), lane.index, e.type, "to"))
    for opened in (k, lane, group):
        b.end(opened)
    b.ret()


def pack_int8_blocks(b: Function, e: Element, transposed: bool, heads: int) -> None:
    """The same for `int8`, whose blocks of features are not those of the weights: all k, with the zeros."""
    pack, _, _, _, depth, k_bytes, width, group0, group1 = b.arguments
    weights = _Weights(b, e, transposed, heads)
    group = b.loop("group", group0, group1)
    target = b.at(pack, b.mul(b.mul(group.index, packed_steps(b, e, depth)), k_bytes), "i8", "target")
    column = b.loop("column", 0, width)
    first = b.mul(b.add(b.mul(group.index, width), column.index), e.lanes, "first")
    of_lanes = [weights.of_feature(b.add(first, lane, "feature")) for lane in range(e.lanes)]

    def numbers(k: Value) -> Value:
        found = Value("poison", e.vector)
        for lane, weight_at in enumerate(of_lanes):
            found = b.value(e.vector, f"insertelement {found.typed}, {weight_at(k).typed}, i64 {lane}", "weights")
        return found

    int8.pack(b, e, numbers, b.at(target, b.mul(column.index, e.panel_row), "i8"), depth, k_bytes)
    for opened in (column, group):
        b.end(opened)
    b.ret()
