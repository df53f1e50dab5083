"""Features that come from elsewhere in a row: slices of vectors, and vectors that are joined of several.

A vector of the result has lanes of two panels of an operand, which lie next to each other in the caller's arrays and far apart in
ours: each is read with a mask, from where its lanes would be if they were the result's.
"""

from __future__ import annotations

from collections.abc import Mapping

from anyrnn.backends.llvm.builder import Value, i64
from anyrnn.backends.llvm.emitter import Emitter, Key
from anyrnn.backends.llvm.lanes import lane_numbers
from anyrnn.passes.plan import joined_at


def moved(kernel: Emitter, i: int, first: Value, there: Value, values: Mapping[int, Value], rows: Mapping[Key, Value]) -> Value:
    """The features of a value from `first` on in a row, in lanes that are `there`; what other lanes hold nobody may use. `values`
    has those that are the same for all features, `rows` says where the row stands in the first panel of buffers.
    """
    b, node = kernel.b, kernel.nodes[i]
    if node.op == "fill":
        return values[i]
    if node.op == "slice":
        start, _ = node.attributes
        return moved(kernel, node.inputs[0], b.add(first, kernel.size(start), "of_whole"), there, values, rows)
    if node.op == "concat":
        found = None
        for operand, start in zip(node.inputs, joined_at(kernel.nodes, node), strict=False):
            (size,) = kernel.nodes[operand].shape
            at = b.sub(first, kernel.size(start), "of_part")
            inside = b.binary("and", there, _between(kernel, at, kernel.size(size)), "inside")
            value = moved(kernel, operand, at, inside, values, rows)
            found = value if found is None else b.select(inside, value, found, kernel.label(i))
        assert found is not None
        return found
    return _read(kernel, i, first, there, rows)


def _between(kernel: Emitter, first: Value, end: Value) -> Value:
    """Which lanes have features, of those from `first` on, which may be below zero, up to `end`."""
    b, lanes = kernel.b, kernel.element.lanes
    numbers = b.binary("add", b.splat(first, lanes, "first"), lane_numbers(lanes), "numbers")
    begun = b.compare("sge", numbers, b.splat(i64(0), lanes, "zero"), "begun")
    return b.binary("and", begun, b.compare("slt", numbers, b.splat(end, lanes, "end"), "unended"), "between")


def _read(kernel: Emitter, i: int, first: Value, there: Value, rows: Mapping[Key, Value]) -> Value:
    """Features from `first` on of what stands in memory, in lanes that are `there`; nothing else is read."""
    b, e, node, name = kernel.b, kernel.element, kernel.nodes[i], kernel.label(i)
    if not node.per_sample:
        weight = kernel.pointer(kernel.layout.weight(node.attributes[0]), name)
        return b.masked_load(e.vector, b.at(weight, first, e.type), there, name)
    key = node.attributes
    panel = b.binary("ashr", first, i64(e.lanes.bit_length() - 1), "panel")  # rounds down
    lane = b.binary("and", first, i64(e.lanes - 1), "lane")
    panel_bytes = kernel.panel_bytes[key[0]]
    at = b.at(kernel.advance(rows[key], b.mul(panel_bytes, panel), f"{name}.panel"), lane, e.type)
    left = b.splat(b.sub(i64(e.lanes), lane), e.lanes, "left")
    here = b.binary("and", there, b.compare("slt", lane_numbers(e.lanes), left, "before"), "here")
    behind = b.binary("and", there, b.compare("sge", lane_numbers(e.lanes), left, "after"), "behind")
    of_next = kernel.advance(at, b.sub(panel_bytes, e.panel_row), f"{name}.next")
    return b.select(here, b.masked_load(e.vector, at, here, name), b.masked_load(e.vector, of_next, behind, name), name)
