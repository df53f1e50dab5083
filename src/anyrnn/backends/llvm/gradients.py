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
from functools import partial

from anyrnn.backends.llvm.block import Layout
from anyrnn.backends.llvm.builder import I64, PTR, Function, Loop, Module, Value, const, i64
from anyrnn.backends.llvm.emitter import (
    SUM_ROWS,
    SUM_STEPS,
    Element,
    add_products,
    added_to,
    cover,
    first_lanes,
    step_at,
)
from anyrnn.backends.llvm.extent import BLOCK_ROWS
from anyrnn.backends.llvm.shapes import tile_heights
from anyrnn.backends.llvm.target import Machine
from anyrnn.ir.dims import Dim
from anyrnn.passes.plan import Program

Access = tuple[str, int]
GROUP = 4
"""Panels of the right side of an outer product that are multiplied at once."""
PAIR = 2
"""Panels that are multiplied at once where a group is not full."""
GROUPS_TOGETHER, PANELS_TOGETHER = 8, 16
"""Groups and panels of the left side whose rows of a block, and part of the gradient, stay in the second level of cache."""
BUNDLE = GROUPS_TOGETHER * PANELS_TOGETHER
"""Tasks that are done block after block."""


def left_heights(machine: Machine, lanes: int, vectors: int) -> tuple[int, ...]:
    """How many features of the left side are multiplied at once by so many vectors: as many as for any tile; those that are left
    of a panel; then one by one.
    """
    highest = min(lanes, tile_heights(machine, vectors)[0])
    return tuple(dict.fromkeys([highest, lanes % highest or highest, 1]))


@dataclass(frozen=True)
class Sums:
    """A value whose sum is the gradient of several weights; `size` is None for a scalar. The sums stand in `name`."""

    name: str
    weights: tuple[str, ...]
    value: Access
    size: Dim | None


def group_sums(program: Program, sizes: dict[str, tuple[Dim, ...]]) -> tuple[Sums, ...]:
    """Which sums are made together. `sizes` gives the weights' shapes."""
    values: dict[Access, list[str]] = {}
    for term in program.sums:
        values.setdefault(term.value, []).append(term.weight)
    return tuple(
        Sums(f"sum{k}", tuple(weights), value, sizes[weights[0]][0] if sizes[weights[0]] else None)
        for k, (value, weights) in enumerate(values.items())
    )


class Walk:
    """Emits the walk over the rows of a chunk, block by block, latest first."""

    def __init__(self, b: Function, block: Value, layout: Layout, t0: Value, t1: Value) -> None:
        self.b = b
        self.t0, self.t1 = t0, t1
        self.counts, self.packed = (b.word(block, layout.header(table), table, PTR) for table in ("counts", "packed"))
        self.flat = b.compare("ne", b.word(block, layout.header("flat_after"), "flat"), i64(0), "flat")
        self.block_steps = b.word(block, layout.header("block_steps"), "block_steps")
        self.steps = b.word(block, layout.header("steps"), "steps")

    def blocks(self, name: str) -> tuple[Loop, Value, Value, Value]:
        """Open the loop over blocks: the loop, the block's first step and its end, and whether it is the very first."""
        b = self.b
        first = b.binary("sdiv", self.t0, self.block_steps, "first_block")
        count = b.sub(b.binary("sdiv", b.add(self.t1, b.sub(self.block_steps, 1)), self.block_steps), first, "blocks")
        loop = b.loop(name, 0, count)
        index = b.sub(b.add(first, b.sub(count, 1)), loop.index, "block_index")
        start = b.mul(index, self.block_steps, "block_start")
        stop = b.minimum(b.add(start, self.block_steps), self.t1, "block_end")
        newest = b.compare("eq", stop, self.steps, "newest")
        return loop, start, stop, newest

    def added_up(self, name: str) -> tuple[Loop, Value, Value]:
        """Open the loop over the blocks of `SUM_STEPS` steps that end in this chunk, going backwards: the loop, the block's slot,
        and whether it is the very first.
        """
        b = self.b
        first, end, last = (
            b.binary("sdiv", b.add(t, SUM_STEPS - 1), i64(SUM_STEPS), "block") for t in (self.t0, self.t1, self.steps)
        )
        loop = b.loop(name, 0, b.sub(end, first, "blocks"))
        slot = b.sub(b.sub(end, 1), loop.index, "block")
        return loop, slot, b.compare("eq", b.add(slot, 1), last, "newest")

    def rows_of(self, start: Value, stop: Value) -> tuple[Value, Value]:
        """How many runs of rows follow each other from a step up to another, and the most rows of a run."""
        b = self.b
        flat_rows = b.sub(self._word(self.packed, stop), self._word(self.packed, start), "rows")
        return b.select(self.flat, i64(1), b.sub(stop, start), "runs"), b.select(
            self.flat, flat_rows, self.most(start, stop), "run_rows"
        )

    def most(self, start: Value, stop: Value) -> Value:
        """The most rows of a step from a step up to another: those of the first or of the last."""
        return self.b.maximum(self._word(self.counts, start), self._word(self.counts, self.b.sub(stop, 1)), "most_rows")

    def part_of_run(self, t: Value, part: Value, most: Value) -> Value:
        """Of a run from step t on, the rows from `part` on, `most` at the most."""
        b = self.b
        return b.select(self.flat, most, b.minimum(b.sub(self._word(self.counts, t), part), most), "rows")

    def _word(self, table: Value, t: Value) -> Value:
        return self.b.load(I64, self.b.at(table, t, I64), "word")


class Source:
    """A buffer's words, loaded once; gives the address of a step's first row."""

    def __init__(self, walk: Walk, words: Value, later: Value | int, fixed_row: int | None, name: str) -> None:
        b = walk.b
        self.b, self.name, self.later = b, name, later
        self.words = words
        self.row_bytes = i64(fixed_row) if fixed_row is not None else b.word(words, 3, f"{name}.row_bytes")
        self.panel_bytes = b.word(words, 4, f"{name}.panel_bytes")

    def at_step(self, t: Value, offset: Value) -> Value:
        b = self.b
        return b.at(step_at(b, self.words, b.add(t, self.later), self.name), offset, "i8", self.name)


class Gradients:
    """Emits the functions of a program's gradients."""

    def __init__(self, module: Module, layout: Layout, program: Program, element: Element, machine: Machine) -> None:
        self.module, self.layout, self.program, self.element, self.machine = module, layout, program, element, machine
        self.made: set[str] = set()

    def outer(self, of_block: bool) -> str:
        """`void(ptr block, i64 t0, i64 t1, ptr left words, i64 left later, ptr right words, i64 right later, ptr gradient, i64
        row bytes, i64 size, i64 depth, i64 adds, i64 task0, i64 task1, i64 left0, i64 right0)`: adds the products of a chunk to a
        gradient [size, depth], for a range of tasks (group of panels of the right side, panel of the left side). Unless `adds`,
        the first block of all takes the place of what was there. `of_block`: the features of both sides begin at `left0` and
        `right0`; else at their first.
        """
        name = "block_outer_product" if of_block else "outer_product"
        if name in self.made:
            return name
        self.made.add(name)
        words = ["left_words", "left_later", "right_words", "right_later"]
        b = self.module.function(
            name,
            [
                ("ptr readonly", "block"),
                *[("i64", n) for n in ("t0", "t1")],
                *[("ptr readonly" if n.endswith("words") else "i64", n) for n in words],
                ("ptr", "gradient"),
                *[("i64", n) for n in ("row_bytes", "size", "depth", "adds", "task0", "task1", "left0", "right0")],
            ],
        )
        block, t0, t1, left_words, left_later, right_words, right_later, gradient, *sizes = b.arguments
        row_bytes, size, depth, adds, task0, task1, left0, right0 = sizes
        e = self.element
        packed = b.value(PTR, f"alloca [{BLOCK_ROWS * GROUP} x {e.vector}], align {e.panel_row}", "packed")
        left_panel0, panels = self.panels_of(b, left0, size) if of_block else (i64(0), self.panels_of(b, i64(0), size)[1])
        right_panel0, right_panels = (
            self.panels_of(b, right0, depth) if of_block else (i64(0), self.panels_of(b, i64(0), depth)[1])
        )
        walk = Walk(b, block, self.layout, t0, t1)
        left = Source(walk, left_words, left_later, e.panel_row, "left")
        right = Source(walk, right_words, right_later, None, "right")
        replaces = b.compare("eq", adds, i64(0), "replaces")
        bundle = b.loop("bundle", task0, task1, BUNDLE)
        loop, start, stop, newest = walk.blocks("block_of_steps")
        runs, rows = walk.rows_of(start, stop)
        part = b.loop("part", 0, rows, BLOCK_ROWS, once=True)
        part_rows = b.minimum(b.sub(rows, part.index), BLOCK_ROWS, "part_rows")
        first = b.binary("and", newest, b.compare("eq", part.index, i64(0), "first_part"), "first")
        fresh = b.binary("and", first, replaces, "fresh")
        # read in place of memory that was never written, which the system would have to map twice
        zeros = b.load(PTR, b.at(block, self.layout.header("zeros"), I64), "zeros")
        task = b.loop("task", bundle.index, b.minimum(b.add(bundle.index, BUNDLE), task1))
        groups = b.binary("sdiv", b.add(right_panels, GROUP - 1), i64(GROUP), "groups")
        panel, group, is_first = self._place(b, task.index, panels, groups)
        right_panel = b.mul(group, GROUP, "right_panel")
        if of_block:
            panel, right_panel = b.add(panel, left_panel0, "panel"), b.add(right_panel, right_panel0, "right_panel")
        # where a panel's first row and column are in the gradient: before it, where a block begins within a panel
        row0, column0 = b.mul(panel, e.lanes, "row0"), b.mul(right_panel, e.lanes, "column0")
        if of_block:
            row0, column0 = b.sub(row0, left0, "row0"), b.sub(column0, right0, "column0")
        features, columns = b.minimum(b.sub(size, row0), e.lanes, "features"), b.sub(depth, column0, "columns")
        left_offset = b.add(b.mul(panel, left.panel_bytes), b.mul(part.index, e.panel_row), "left_offset")
        right_offset = b.add(b.mul(right_panel, right.panel_bytes), b.mul(part.index, right.row_bytes), "right_offset")
        corner = b.at(b.at(gradient, b.mul(row0, row_bytes), "i8"), column0, e.type, "corner")
        skipped = b.maximum(b.sub(i64(0), row0), 0, "skipped") if of_block else i64(0)
        fits = b.compare("sge", columns, i64(GROUP * e.lanes), "fits")
        if of_block:
            fits = b.binary("and", fits, b.compare("sge", column0, i64(0), "begun"), "fits")

        def lanes_of(column: Value | int, vectors: int) -> list[Value]:
            """Which lanes of so many vectors from a column of the group on there are."""
            left_over = b.sub(columns, column)
            lanes = [first_lanes(b, b.sub(left_over, v * e.lanes), e.lanes) for v in range(vectors)]
            if of_block:
                left_out = b.sub(b.sub(i64(0), column0), column)
                before_block = [first_lanes(b, b.sub(left_out, v * e.lanes), e.lanes) for v in range(vectors)]
                lanes = [without(b, mask, before) for mask, before in zip(lanes, before_block, strict=True)]
            return [kept_in_register(b, mask) for mask in lanes]

        def pack(masks: list[Value] | None) -> list[Value]:
            """Copy the group's rows side by side: far apart, as in an array of many features, they would take each other's place
            in the first level of cache.
            """
            run = b.loop("run", 0, runs, 1, [("to", packed)])
            t = b.add(start, run.index, "t")
            rows_here = walk.part_of_run(t, part.index, part_rows)
            row = b.loop("row", 0, rows_here, 1, [("right", right.at_step(t, right_offset)), ("to", run.values[0])])
            here, to = row.values
            for v in range(GROUP):
                at = b.at(here, b.mul(right.panel_bytes, v), "i8", "right") if v else here
                value = b.masked_load(e.vector, at, masks[v], "right") if masks else b.load(e.vector, at, "right", e.bytes)
                b.store(value, b.at(to, v * e.panel_row, "i8", "to") if v else to, e.panel_row)
            following = [b.at(here, right.row_bytes, "i8", "right"), b.at(to, GROUP * e.panel_row, "i8", "to")]
            b.end(run, b.end(row, following)[1:])
            return []

        def products(vectors: int, column: Value | None) -> list[Value]:
            """Products with so many vectors of the right side: all of it, or those from a column on, where lanes may be missing.
            A load with a mask takes longer, and one after a store with a mask waits for it.
            """
            masks, here, right_here = None, corner, packed
            if column is not None:
                masks = lanes_of(column, vectors)
                here = b.at(corner, column, e.type, "corner")
                right_here = b.at(packed, column, e.type, "right")

            def one(i: Value, height: int) -> None:
                """The products of `height` features of the left side, from i on (after those that are skipped)."""
                i = b.add(i, skipped, "i") if of_block else i
                lines = [b.at(here, b.mul(b.add(i, k), row_bytes), "i8", "line") for k in range(height)]
                places = [b.at(line, v * e.lanes, e.type, "place") for line in lines for v in range(vectors)]
                for place in places:
                    b.prefetch(place)
                zero = const(e.vector, 0.0)
                sums = [(f"sum.{k}.{v}", zero) for k in range(height) for v in range(vectors)]
                run = b.loop("run", 0, runs, 1, [("right", right_here), *sums])
                t = b.add(start, run.index, "t")
                left_at = b.at(left.at_step(t, left_offset), b.mul(i, e.bytes), "i8", "left")
                rows_here = walk.part_of_run(t, part.index, part_rows)
                _, *done = b.end(run, self._rows(b, left_at, run.values[0], vectors, rows_here, run.values[1:]))
                befores = []  # all before the first store
                for k, place in enumerate(places):
                    at = b.select(fresh, zeros, place, "before_at")
                    befores.append(
                        b.masked_load(e.vector, at, masks[k % vectors], "before")
                        if masks
                        else b.load(e.vector, at, "before", e.bytes)
                    )
                for k, (place, before, value) in enumerate(zip(places, befores, done, strict=True)):
                    total = b.fadd(before, value, "total")
                    if masks:
                        b.masked_store(total, place, masks[k % vectors])
                    else:
                        b.store(total, place, e.bytes)

            cover(
                b,
                b.sub(features, skipped) if of_block else features,
                left_heights(self.machine, e.lanes, vectors),
                one,
            )
            return []

        is_new = b.binary("or", is_first, b.compare("eq", task.index, bundle.index), "is_new")
        b.either(is_new, lambda: b.either(fits, lambda: pack(None), lambda: pack(lanes_of(0, GROUP))), list)

        def by_pairs() -> list[Value]:
            least = b.minimum(columns, GROUP * e.lanes, "least")
            pair = b.loop("pair", 0, b.binary("sdiv", b.add(least, PAIR * e.lanes - 1), i64(PAIR * e.lanes)))
            products(PAIR, b.mul(pair.index, PAIR * e.lanes, "column"))
            return b.end(pair)

        b.either(fits, lambda: products(GROUP, None), by_pairs)
        for opened in (task, part, loop, bundle):
            b.end(opened)
        b.ret()
        return name

    def panels_of(self, b: Function, first: Value, size: Value) -> tuple[Value, Value]:
        """The first panel of some features that follow each other, and how many panels they touch."""
        lanes = self.element.lanes
        panel = b.binary("sdiv", first, i64(lanes), "first_panel")
        end = b.binary("sdiv", b.add(b.add(first, size), lanes - 1), i64(lanes), "end_panel")
        return panel, b.sub(end, panel, "panels")

    def block_tasks(self, b: Function, left0: Value, size: Value, right0: Value, depth: Value) -> Value:
        """How many tasks `outer` has for a block."""
        left, right = self.panels_of(b, left0, size)[1], self.panels_of(b, right0, depth)[1]
        return b.mul(left, b.binary("sdiv", b.add(right, GROUP - 1), i64(GROUP), "groups"), "tasks")

    def _place(self, b: Function, task: Value, panels: Value, groups: Value) -> tuple[Value, Value, Value]:
        """The panel of the left side and the group of the right side of a task, and whether it is a group's first: some panels by
        a group, then by the next of a few groups; then other panels by those groups. So lines of the gradient are not left too
        soon for others far away, and what is read of both sides stays in the second level of cache.
        """
        of_few = b.mul(panels, GROUPS_TOGETHER, "tasks_of_few")
        first = b.mul(b.binary("sdiv", task, of_few), GROUPS_TOGETHER, "first_group")
        few = b.minimum(b.sub(groups, first), GROUPS_TOGETHER, "few")
        rest = b.binary("srem", task, of_few, "rest")
        of_some = b.mul(few, PANELS_TOGETHER, "tasks_of_some")
        first_panel = b.mul(b.binary("sdiv", rest, of_some), PANELS_TOGETHER, "first_panel")
        some = b.minimum(b.sub(panels, first_panel), PANELS_TOGETHER, "some")
        rest = b.binary("srem", rest, of_some, "rest")
        number = b.binary("srem", rest, some, "number")
        group = b.add(first, b.binary("sdiv", rest, some), "group")
        return b.add(first_panel, number, "panel"), group, b.compare("eq", number, i64(0), "is_first")

    def _rows(self, b: Function, left_at: Value, right_at: Value, vectors: int, rows: Value, sums: list[Value]) -> list[Value]:
        """Add the products of some rows that follow each other: every number of the left side by every vector of the right, which
        is packed. Returns where the right side's next row is, and the sums.
        """
        e = self.element
        row = b.loop("row", 0, rows, 1, [("left", left_at), ("right", right_at), *[(v[1:], v) for v in sums]])
        left_here, right_here, *before = row.values

        def factor(k: int) -> Value:
            return b.splat(b.load(e.type, b.at(left_here, k, e.type), "left", e.bytes), e.lanes, "left")

        def vector(v: int) -> Value:
            return b.load(e.vector, b.at(right_here, v * e.panel_row, "i8", "right") if v else right_here, "right", e.panel_row)

        factors = [partial(factor, k) for k in range(len(sums) // vectors)]
        following = add_products(b, self.machine.registers, factors, [partial(vector, v) for v in range(vectors)], before)
        to = [b.at(left_here, e.panel_row, "i8", "left"), b.at(right_here, GROUP * e.panel_row, "i8", "right")]
        return b.end(row, [*to, *following])[1:]

    def column_sums(self, sums: Sums) -> str:
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
            loop, first_slot, newest = walk.added_up("block_of_steps")
            begin = b.mul(first_slot, SUM_STEPS, "begin")
            most = walk.most(begin, b.minimum(b.add(begin, SUM_STEPS), walk.steps))
            runs, rows = i64(1), b.binary("sdiv", b.add(most, SUM_ROWS - 1), i64(SUM_ROWS), "rows")
        else:
            loop, first_slot, stop, newest = walk.blocks("block_of_steps")
            runs, rows = walk.rows_of(first_slot, stop)
        part = b.loop("part", 0, rows, BLOCK_ROWS, once=True)
        part_rows = b.minimum(b.sub(rows, part.index), BLOCK_ROWS, "part_rows")
        fresh = b.binary("and", newest, b.compare("eq", part.index, i64(0), "first_part"), "fresh")
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


def without(b: Function, mask: Value, others: Value) -> Value:
    """The lanes of a mask that are not set in another."""
    return b.select(others, Value("zeroinitializer", mask.type), mask, "within")


def kept_in_register(b: Function, mask: Value) -> Value:
    """The same mask, which LLVM would otherwise compare for again wherever it is used."""
    return b.value(mask.type, f"freeze {mask.typed}", "mask")
