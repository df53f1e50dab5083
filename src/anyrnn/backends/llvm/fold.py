"""Emits the sum of what two directions give for the gradient of their input, where they run at once.

Each goes through the steps from another end, so neither can add to what the other has written. The second has memory of its own,
in the order of the caller's steps, and when both are done it is added to the first one's.
"""

from __future__ import annotations

from anyrnn.backends.llvm.block import Layout
from anyrnn.backends.llvm.builder import I64, PTR, Module, Value, i64
from anyrnn.backends.llvm.element import Element
from anyrnn.backends.llvm.lanes import lanes_left, load_lanes, store_lanes
from anyrnn.ir.dims import Dim
from anyrnn.passes.plan import Program


def folded(program: Program) -> tuple[str, Dim] | None:
    """The buffer that both directions of a layer give, and its size: the gradient of the cell's first input; or None."""
    found = [b for b in program.buffers if program.reverse and b.role == "output" and b.name in program.outputs[:1]]
    return next(((b.name, b.dim) for b in found if b.dim is not None), None)


def emit_fold(module: Module, layout: Layout, element: Element, buffer: str, dim: Dim) -> None:
    """`fold(ptr block, ptr other, i64 id, i64 count)`: add the `buffer` of the other block to that of the first; one of `count`
    threads does its part of the steps, none where the caller wants no such gradient.
    """
    b = module.function("fold", [("ptr", "block"), ("ptr", "other"), ("i64", "id"), ("i64", "count")])
    block, other, id, count = b.arguments

    def word(words: Value, k: int, name: str, type: str = I64) -> Value:
        return b.word(words, layout.buffer(buffer) + k, f"{buffer}.{name}", type)

    steps = b.word(block, layout.header("steps"), "steps")
    steps = b.select(b.compare("ne", word(block, 0, "wanted"), i64(0)), steps, i64(0), "steps")
    first, last = (b.binary("sdiv", b.mul(steps, k), count, "step") for k in (id, b.add(id, 1)))
    features = b.word(block, layout.size(str(dim)), "features")
    counts, table = b.word(block, layout.header("counts"), "counts", PTR), word(block, 5, "table", PTR)
    step = b.loop("step", first, last)
    place = b.load(I64, b.at(table, step.index, I64), "place")
    row = b.loop("row", 0, b.load(I64, b.at(counts, step.index, I64), "rows"))
    target, source = (
        b.at(
            word(words, 0, "address", PTR),
            b.add(b.mul(place, word(words, 2, "step_bytes")), b.mul(row.index, word(words, 3, "row_bytes"))),
            "i8",
            name,
        )
        for words, name in ((block, "target"), (other, "source"))
    )
    feature = b.loop("feature", 0, features, element.lanes)
    lanes = lanes_left(b, b.sub(features, feature.index, "left"), element.lanes)
    at, of_other = (b.at(pointer, feature.index, element.type) for pointer in (target, source))
    total = b.fadd(load_lanes(b, element, at, lanes, "first"), load_lanes(b, element, of_other, lanes, "second"))
    store_lanes(b, total, at, lanes)
    b.end(feature)
    b.end(row)
    b.end(step)
    b.ret()
