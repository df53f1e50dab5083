"""Emits products of integers of eight bits, four features by one instruction.

An operand, and the weights of each feature of its product, are rounded as `anyrnn.ir.int8` says. A block's integers are
multiplied and added up exactly, and their sum times both scales is added to the other blocks' in float32.

Weights are packed so: [group][block][scales, corrections, words][vector][lane], where a word has a feature's weights for four of
the operand's. Rows of an operand are rounded before a kernel's products, into a room on the stack, [row][block]: a block's scale
and its numbers. Most processors multiply unsigned numbers by signed ones: then what stands there is 128 more than a number, and
sums begin with corrections, -128 times the sum of a feature's weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anyrnn.backends.llvm.builder import Function, Module, Value, const, i64, lanes_of, vector
from anyrnn.backends.llvm.element import Element
from anyrnn.backends.llvm.lanes import first_lanes
from anyrnn.backends.llvm.math import FORMATS
from anyrnn.backends.llvm.target import Machine
from anyrnn.ir.int8 import LEAST, MOST

OFFSET = 128
TO_INTEGER = FORMATS["float"].magic
MAGNITUDE = 2**31 - 1
"""The bits of a float32 without its sign; as integers they are ordered as the magnitudes are, infinity and NaN above all."""
ROUND_ROWS = "round_rows"
"""The function that rounds rows of an operand."""


def block_bytes(e: Element) -> int:
    """Of a whole block of a rounded row: its scale, in as much room as a vector takes, and its numbers."""
    return e.panel_row + e.block


def row_bytes(b: Function, e: Element, features: Value) -> Value:
    """Of a rounded row of so many features."""
    numbers = b.mul(b.ceil_div(features, e.lanes), e.lanes, "numbers")
    return b.add(b.mul(b.ceil_div(features, e.block), e.panel_row), numbers, "row_bytes")


def offset(machine: Machine) -> int:
    """What a rounded row's numbers are increased by: 0 where they are multiplied as signed ones."""
    return 0 if machine.signed_fours else OFFSET


def round_rows(module: Module, e: Element, machine: Machine) -> None:
    """`void(ptr room, i64 room bytes, ptr rows, i64 row bytes, i64 panel bytes, i64 features, i64 count)`: rounds `count` rows of
    so many features each into a room, where they are so many bytes apart.
    """
    names = ("row_bytes", "panel_bytes", "features", "count")
    parameters = [("ptr", "room"), ("i64", "room_bytes"), ("ptr", "rows"), *(("i64", name) for name in names)]
    b = module.function(ROUND_ROWS, parameters)
    room, apart, rows, distance, panel_bytes, features, count = b.arguments
    row = b.loop("row", 0, count)
    begin = b.at(rows, b.mul(row.index, distance), "i8", "from"), b.at(room, b.mul(row.index, apart), "i8", "to")
    block = b.loop("block", 0, features, e.block, list(zip(("from", "to"), begin, strict=True)), once=True)
    source, to = block.values
    length = b.minimum(b.sub(features, block.index), e.block, "length")
    whole, bits = b.binary("and", length, i64(-e.lanes), "whole"), vector("i32", e.lanes)
    tail, mask = b.compare("slt", whole, length, "tail"), first_lanes(b, b.sub(length, whole), e.lanes)
    panel = b.loop("panel", 0, whole, e.lanes, [("at", source), ("most", const(bits, 0))])
    most = larger(b, e, panel.values[1], b.load(e.vector, panel.values[0], "value"))
    last, most = b.end(panel, [b.at(panel.values[0], panel_bytes, "i8"), most])
    rest = lambda: [larger(b, e, most, b.masked_load(e.vector, last, mask, "value"))], lambda: [most]
    (most,) = b.either(tail, *rest, names=("tail", "no_tail"), name="most")
    b.module.declare(f"llvm.vector.reduce.umax.v{e.lanes}i32", "i32", [bits])
    largest = b.value("i32", f"call i32 @llvm.vector.reduce.umax.v{e.lanes}i32({most.typed})", "largest")
    scale, reciprocal = scaled(b, b.cast("bitcast", largest, e.type, "largest"))
    b.store(scale, to)
    factor, magic = b.splat(reciprocal, e.lanes, "reciprocal"), const(e.vector, TO_INTEGER + offset(machine))

    numbers = b.at(to, e.panel_row, "i8", "numbers")

    def put(value: Value, feature: Value) -> None:
        number = b.cast("bitcast", b.fma(value, factor, magic, "number"), bits, "number")
        b.store(b.cast("trunc", number, vector("i8", e.lanes), "rounded"), b.at(numbers, feature, "i8"), e.lanes)

    panel = b.loop("panel", 0, whole, e.lanes, [("at", source)])
    put(b.load(e.vector, panel.values[0], "value"), panel.index)
    b.end(panel, [b.at(panel.values[0], panel_bytes, "i8")])
    with b.only_if(tail, "tail"):
        put(b.masked_load(e.vector, last, mask, "value"), whole)
    b.end(block, [b.at(last, b.select(tail, panel_bytes, i64(0)), "i8", "from"), b.at(to, block_bytes(e), "i8", "to")])
    b.end(row)
    b.ret()


def larger(b: Function, e: Element, most: Value, value: Value) -> Value:
    """The larger magnitudes, lane by lane, as bits."""
    bits = b.cast("bitcast", value, most.type, "bits")
    return b.intrinsic("llvm.umax", most.type, [most, b.binary("and", bits, const(most.type, MAGNITUDE))], "most")


def scaled(b: Function, most: Value) -> tuple[Value, Value]:
    """The scale of a block with such a largest magnitude, and its reciprocal: both zero for next to none; the scale is NaN where
    the magnitude is infinite or NaN.
    """
    none, full = const(most.type, 0.0), const(most.type, MOST)
    some = b.compare("uge", most, const(most.type, LEAST), "some")
    scale, reciprocal = b.fdiv(most, full, "scale"), b.fdiv(full, most, "reciprocal")
    scale = b.fadd(scale, b.fsub(most, most, "zero"), "scale")
    return b.select(some, scale, none, "scale"), b.select(some, reciprocal, none, "reciprocal")


def pack(b: Function, e: Element, numbers: Callable[[Value], Value], target: Value, depth: Value, k_bytes: Value) -> None:
    """Pack a vector of weights for each of so many k, which `numbers` gives, to where a group's first block begins."""
    bits = vector("i32", e.lanes)
    block = b.loop("block", 0, depth, e.block, [("to", target)], once=True)
    to, end = block.values[0], b.minimum(b.add(block.index, e.block), depth, "end")
    k = b.loop("k", block.index, end, 1, [("most", const(bits, 0))], once=True)
    (most,) = b.end(k, [larger(b, e, k.values[0], numbers(k.index))])
    scale, reciprocal = scaled(b, b.cast("bitcast", most, e.vector, "most"))
    begin = b.at(to, b.mul(k_bytes, e.scale_steps), "i8", "words")
    word = b.loop("word", block.index, end, e.together, [("to", begin), ("total", const(bits, 0))], once=True)
    words, total = const(bits, 0), word.values[1]
    for place in range(e.together):
        k_here = b.add(word.index, place, "k")
        there = b.compare("slt", k_here, end, "there")
        value = b.select(there, numbers(b.minimum(k_here, b.sub(end, 1))), const(e.vector, 0.0), "value")
        number = b.cast("bitcast", b.fma(value, reciprocal, const(e.vector, TO_INTEGER), "number"), bits, "number")
        high = b.binary("shl", number, const(bits, 24), "high")
        words = b.binary("or", words, b.binary("lshr", high, const(bits, 24 - 8 * place)), "words")
        total = b.add(total, b.binary("ashr", high, const(bits, 24)), "total")
    b.store(words, word.values[0], e.panel_row)
    after, total = b.end(word, [b.at(word.values[0], k_bytes, "i8"), total])
    b.store(scale, to, e.panel_row)
    b.store(b.mul(total, -OFFSET), b.at(to, k_bytes, "i8", "corrections"), e.panel_row)
    b.end(block, [after])


def add_four(b: Function, factor: Value, weight: Value, total: Value, machine: Machine) -> Value:
    """In each lane a sum, and four numbers of a rounded row times four weights."""
    lanes = lanes_of(total.type)
    if machine.signed_fours:
        bytes = vector("i8", 4 * lanes)
        given = [total, *(b.cast("bitcast", value, bytes, "bytes") for value in (factor, weight))]
        return _instruction(b, "llvm.aarch64.neon.sdot.v4i32.v16i8", given)
    if machine.unsigned_fours:  # words, as LLVM 20 has it: newer ones, which have bytes, take it too
        return _instruction(b, f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", [total, factor, weight])
    if "dsp" in machine.features:
        return _two_by_two(b, factor, weight, total)
    if machine.single:
        return _one_by_one(b, factor, weight, total)
    halves = vector("i16", 2 * lanes)
    factor, weight = (b.cast("bitcast", value, halves, "halves") for value in (factor, weight))
    eight = const(halves, 8)
    even = b.binary("and", factor, const(halves, 255)), b.binary("ashr", b.binary("shl", weight, eight), eight)
    odd = b.binary("lshr", factor, eight), b.binary("ashr", weight, eight)
    for left, right in (even, odd):
        total = b.add(total, _pairs_added(b, left, right, lanes), "sum")
    return total


def _instruction(b: Function, name: str, given: Sequence[Value]) -> Value:
    """One that gives what the first operand is of."""
    b.module.declare(name, given[0].type, [value.type for value in given])
    return b.value(given[0].type, f"call {given[0].type} @{name}({', '.join(value.typed for value in given)})", "sum")


def _two_by_two(b: Function, factor: Value, weight: Value, total: Value) -> Value:
    """The same by an instruction of 32-bit ARM for two numbers of 16 bits, lane by lane."""
    found = Value("poison", total.type)
    for lane in range(lanes_of(total.type)):
        one, of_weights, added = (b.value("i32", f"extractelement {v.typed}, i64 {lane}") for v in (factor, weight, total))
        for turned in (0, 8):
            sides = []
            for value, sign in ((one, "u"), (of_weights, "s")):
                around = b.intrinsic("llvm.fshr", "i32", [value, value, const("i32", turned)], "around") if turned else value
                sides.append(_arm(b, f"{sign}xtb16", around))
            added = _arm(b, "smlad", *sides, added)
        found = b.value(total.type, f"insertelement {found.typed}, {added.typed}, i64 {lane}", "sum")
    return found


def _arm(b: Function, name: str, *given: Value) -> Value:
    """An instruction of its own, of numbers of 32 bits."""
    b.module.declare(f"llvm.arm.{name}", "i32", ["i32"] * len(given))
    return b.value("i32", f"call i32 @llvm.arm.{name}({', '.join(value.typed for value in given)})", name)


def _one_by_one(b: Function, factor: Value, weight: Value, total: Value) -> Value:
    """The same by an instruction for each number, as there are no vectors."""
    for place in range(4):
        unsigned = b.binary("and", b.binary("lshr", factor, const(total.type, 8 * place)), const(total.type, 255), "factor")
        high = b.binary("shl", weight, const(total.type, 24 - 8 * place), "high")
        signed = b.binary("ashr", high, const(total.type, 24), "weight")
        total = b.add(total, b.mul(unsigned, signed), "sum")
    return total


def _pairs_added(b: Function, left: Value, right: Value, lanes: int) -> Value:
    """Products of numbers of 16 bits, of neighbours added up; one instruction on many processors, in this form."""
    wide = vector("i32", 2 * lanes)
    products = b.mul(b.cast("sext", left, wide, "left"), b.cast("sext", right, wide, "right"), "products")
    parts = []
    for first in (0, 1):
        places = ", ".join(f"i32 {2 * k + first}" for k in range(lanes))
        text = f"shufflevector {products.typed}, {wide} poison, <{lanes} x i32> <{places}>"
        parts.append(b.value(vector("i32", lanes), text, "part"))
    return b.add(parts[0], parts[1], "added")
