"""Emits what sums over all steps and samples: outer products for matrices, column sums for vectors, sums for scalars. Sums of
outer products are made where the caller wants the gradient, the others in a place of their own.

The sum is made of blocks of steps, the latest first; where a step has many rows, a block is a part of them. Within a block it
goes through the rows in order, in registers; each block's sum is then added to the whole. What no product needs is added up over
`SUM_STEPS` steps of `SUM_ROWS` samples by the kernels that make it. Blocks depend on the number of rows alone, or on nothing, so
neither threads nor chunks change a bit. Where a gradient has several terms, each is added for a chunk before the next: there
chunks, which depend on the number of samples alone, fix the order.
"""

from __future__ import annotations

from dataclasses import dataclass

from anyrnn.backends.llvm.block import Layout
from anyrnn.backends.llvm.builder import Module, Value, const, i64
from anyrnn.backends.llvm.element import SUM_ROWS, SUM_STEPS, Element
from anyrnn.backends.llvm.extent import BLOCK_ROWS
from anyrnn.backends.llvm.lanes import added_to, first_lanes
from anyrnn.backends.llvm.outer import Outer
from anyrnn.backends.llvm.target import Machine
from anyrnn.backends.llvm.walk import Source, Walk
from anyrnn.ir.dims import Dim
from anyrnn.passes.plan import Program

Access = tuple[str, int]


@dataclass(frozen=True)
class GradientSums:
    """A value whose sum is the gradient of several weights; `size` is None for a scalar. The sums stand in `name`."""

    name: str
    weights: tuple[str, ...]
    value: Access
    size: Dim | None


def group_sums(program: Program, sizes: dict[str, tuple[Dim, ...]]) -> tuple[GradientSums, ...]:
    """Which sums are made together. `sizes` gives the weights' shapes."""
    values: dict[Access, list[str]] = {}
    for term in program.sums:
        values.setdefault(term.value, []).append(term.weight)
    return tuple(
        GradientSums(f"sum{k}", tuple(weights), value, sizes[weights[0]][0] if sizes[weights[0]] else None)
        for k, (value, weights) in enumerate(values.items())
    )


class Gradients:
    """Emits the functions of a program's gradients."""

    def __init__(self, module: Module, layout: Layout, program: Program, element: Element, machine: Machine) -> None:
        self.module, self.layout, self.program, self.element, self.machine = module, layout, program, element, machine
        self.made: set[str] = set()

    def outer(self, of_block: bool) -> str:
        """The function of outer products, see `Outer` and its `PARAMETERS`. `of_block`: of a block of features of both sides;
        else of all.
        """
        name = "block_outer_product" if of_block else "outer_product"
        if name not in self.made:
            self.made.add(name)
            Outer(self.module, self.layout, self.element, self.machine, name, of_block)
        return name

    def times_zero(self) -> str:
        """`void(ptr block, ptr words, i64 later, i64 size, ptr begin)`: whether a buffer's vectors of the first step are zero
        when multiplied by zero: then 1, the second step, is stored, else 0. Infinite ones and NaN give NaN.
        """
        name = "times_zero"
        if name in self.made:
            return name
        self.made.add(name)
        e, parameters = self.element, [("ptr readonly", "words"), ("i64", "later"), ("i64", "size"), ("ptr", "begin")]
        b = self.module.function(name, [("ptr readonly", "block"), *parameters])
        block, words, later, size, begin = b.arguments
        walk = Walk(b, block, self.layout, i64(0), i64(1))
        source, rows = Source(walk, words, later, e.panel_row, "value"), walk.most(i64(0), i64(1))
        zero = const(e.vector, 0.0)
        panel = b.loop("panel", 0, b.ceil_div(size, e.lanes, "panels"), 1, [("of_zeros", zero)])
        there = first_lanes(b, b.sub(size, b.mul(panel.index, e.lanes)), e.lanes)
        first = source.at_step(i64(0), b.mul(panel.index, source.panel_bytes))
        row = b.loop("row", 0, rows, 1, [("at", first), ("of_zeros", panel.values[0])])
        value = b.masked_load(e.vector, row.values[0], there, "value")
        following = [b.at(row.values[0], source.row_bytes, "i8", "at"), b.fma(value, zero, row.values[1], "of_zeros")]
        (total,) = b.end(panel, b.end(row, following)[1:])
        are_zero = b.compare("oeq", total, zero, "are_zero")
        bits = f"i{e.lanes}"
        all_zero = b.compare("eq", b.value(bits, f"bitcast {are_zero.typed} to {bits}", "bits"), Value("-1", bits), "all_zero")
        b.store(b.select(all_zero, i64(1), i64(0), "begin"), begin)
        b.ret()
        return name

    def column_sums(self, sums: GradientSums) -> str:
        """`void(ptr block, i64 t0, i64 t1, ptr words, i64 later, ptr sums, i64 panel0, i64 panel1)`; one function for all
        values of a kind.
        """
        e, is_vector, is_sum = self.element, sums.size is not None, self.program.is_sum(sums.value[0])
        name = f"column_sums{'_of_sums' * is_sum}" if is_vector else "scalar_sums"
        if name in self.made:
            return name
        self.made.add(name)
        parameters = [("ptr readonly", "block"), ("i64", "t0"), ("i64", "t1"), ("ptr readonly", "words"), ("i64", "later")]
        b = self.module.function(name, [*parameters, ("ptr", "sums"), ("i64", "panel0"), ("i64", "panel1")])
        block, t0, t1, words, later, target, panel0, panel1 = b.arguments
        type, stride = (e.vector, e.panel_row) if is_vector else (e.type, e.bytes)
        walk = Walk(b, block, self.layout, t0, t1)
        source = Source(walk, words, later, stride, "value")
        zero = const(type, 0.0)
        panel = b.loop("panel", panel0, panel1)
        offset = b.mul(panel.index, source.panel_bytes) if is_vector else i64(0)
        place = b.at(target, b.mul(panel.index, stride), "i8", "place")
        if is_sum:
            loop, first_slot, newest = walk.added_up()
            begin = b.mul(first_slot, SUM_STEPS, "begin")
            most = walk.most(begin, b.minimum(b.add(begin, SUM_STEPS), walk.steps))
            runs, rows = i64(1), b.ceil_div(most, SUM_ROWS, "rows")
        else:
            loop, first_slot, stop, newest = walk.blocks()
            runs, rows = walk.rows_of(first_slot, stop)
        part = b.loop("part", 0, rows, BLOCK_ROWS, once=True)
        part_rows = b.minimum(b.sub(rows, part.index), BLOCK_ROWS, "part_rows")
        fresh = b.binary("and", newest, b.compare("eq", part.index, i64(0), "first_part"), "fresh")
        fresh = b.binary("and", fresh, b.compare("eq", b.word(block, self.layout.header("adds"), "adds"), i64(0)), "fresh")
        run = b.loop("run", 0, runs, 1, [("sum", zero)])
        slot = b.add(first_slot, run.index, "slot")
        here = part_rows if is_sum else walk.part_of_run(slot, part.index, part_rows)
        at = source.at_step(slot, b.add(offset, b.mul(source.row_bytes, part.index)))
        row = b.loop("row", 0, here, 1, [("at", at), ("sum", run.values[0])])
        value = b.load(type, row.values[0], "value", stride)
        done = b.end(row, [b.at(row.values[0], source.row_bytes, "i8", "at"), b.fadd(row.values[1], value, "sum")])
        (done_sum,) = b.end(run, done[1:])
        b.store(added_to(b, b.load(type, place, "before", stride), done_sum, fresh, "total"), place, stride)
        b.end(part)
        b.end(loop)
        b.end(panel)
        b.ret()
        return name
