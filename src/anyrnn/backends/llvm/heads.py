"""Block-diagonal weights: what a group of features multiplies of them, and how they are packed. Of the results, and of what is
multiplied, each block has as many features as every other.
"""

from __future__ import annotations

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


def pack_blocks(b: Function, e: Element, transposed: bool, heads: int) -> None:
    """The body of `Copies.pack_blocks`: feature by feature of a group, for every k that one of the group's blocks has. Each
    number is written once, as other calls may read those that are there.
    """
    pack, matrix, row_bytes, size, depth, k_bytes, width, group0, group1 = b.arguments
    last = b.sub(size, 1, "last")
    group = b.loop("group", group0, group1)
    target = b.at(pack, b.mul(b.mul(group.index, packed_steps(b, e, depth)), k_bytes), "i8", "target")
    features = b.mul(width, e.lanes)
    first = b.mul(group.index, features, "first")
    if e.int8:
        column = b.loop("column", 0, width)
        feature = b.add(first, b.mul(column.index, e.lanes), "feature")

        def numbers(k: Value) -> Value:
            found = Value("poison", e.vector)
            for lane in range(e.lanes):
                one = _weight(b, e, matrix, row_bytes, (size, depth), heads, transposed, b.add(feature, lane), k)
                found = b.value(e.vector, f"insertelement {found.typed}, {one.typed}, i64 {lane}", "weights")
            return found

        int8.pack(b, e, numbers, b.at(target, b.mul(column.index, e.panel_row), "i8"), depth, k_bytes)
        for opened in (column, group):
            b.end(opened)
        b.ret()
        return
    end_of_group = b.minimum(b.sub(b.add(first, features), 1), last, "last_of_group")
    begin, end = blocks_between(b, first, end_of_group, (size, depth), heads, e.lanes)
    lane = b.loop("lane", 0, features)
    feature = b.add(first, lane.index, "feature")
    k = b.loop("k", begin, b.add(end, b.binary("srem", end, i64(2)), "whole_pairs") if e.pairs else end)
    value = _weight(b, e, matrix, row_bytes, (size, depth), heads, transposed, feature, k.index)
    if e.pairs:
        to = b.at(target, b.mul(b.binary("sdiv", k.index, i64(2)), k_bytes), "i8", "pair")
        to = b.at(to, b.add(b.mul(lane.index, 2), b.binary("srem", k.index, i64(2))), NARROW, "to")
        b.store(b.cast("fptrunc", value, NARROW, "rounded"), to)
    else:
        b.store(value, b.at(b.at(target, b.mul(k.index, k_bytes), "i8"), lane.index, e.type, "to"))
    for opened in (k, lane, group):
        b.end(opened)
    b.ret()


def _weight(
    b: Function, e: Element, matrix: Value, row_bytes: Value, sizes: tuple[Value, Value], heads: int, transposed: bool,
    feature: Value, k: Value,
) -> Value:  # fmt: skip
    """That of a feature for k, zero where its block has none, or where there is no such feature."""
    rows, columns = (b.binary("sdiv", n, i64(heads), "block") for n in sizes)
    there = b.compare("slt", feature, sizes[0], "there")
    feature = b.minimum(feature, b.sub(sizes[0], 1), "feature")
    block = b.binary("sdiv", feature, rows, "block")
    from_k, to_k = b.mul(block, columns, "from_k"), b.mul(b.add(block, 1), columns, "to_k")
    inside = b.binary("and", b.compare("sge", k, from_k), b.compare("slt", k, to_k), "inside")
    inside = b.binary("and", inside, there, "inside")
    near = b.minimum(b.maximum(k, from_k, "near"), b.sub(to_k, 1), "near")
    if transposed:  # rows go along k, and have the features of one block
        row, column = near, b.sub(feature, b.mul(block, rows), "column")
    else:
        row, column = feature, b.sub(near, from_k, "column")
    source = b.at(b.at(matrix, b.mul(row, row_bytes), "i8", "row"), column, e.type, "source")
    return b.select(inside, b.load(e.type, source, "weight"), const(e.type, 0.0), "weight")
