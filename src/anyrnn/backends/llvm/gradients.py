"""Emits what sums over all steps and samples: outer products for matrices, column sums for vectors, sums for scalars.

The sum is made of blocks of steps, the latest first; where a step has many rows, a block is a part of them. Within a block it
goes through the rows in order, in registers; each block's sum is then added to the whole. What no product needs is added up over
`SUM_STEPS` steps of `SUM_ROWS` samples by the kernels that make it. Blocks depend on the number of rows alone, or on nothing, so
neither threads nor chunks change a bit.
"""

from __future__ import annotations

from dataclasses import dataclass

from anyrnn.backends.llvm.block import Layout
from anyrnn.backends.llvm.builder import I64, PTR, Function, Loop, Module, Value, const, i64
from anyrnn.backends.llvm.emitter import SUM_ROWS, SUM_STEPS, Element, added_to, cover, is_callers
from anyrnn.backends.llvm.memory import BLOCK_ROWS
from anyrnn.backends.llvm.shapes import tile_heights
from anyrnn.backends.llvm.target import Machine
from anyrnn.ir.dims import Dim
from anyrnn.passes.plan import Program

Access = tuple[str, int]


@dataclass(frozen=True)
class Outer:
    """Products that share their right side: weights[i] gets left[i] (x) right. The sums stand in `name`, as [group][right
    feature][left][width * lanes].
    """

    name: str
    weights: tuple[str, ...]
    lefts: tuple[Access, ...]
    right: Access
    size: Dim
    depth: Dim
    width: int


@dataclass(frozen=True)
class Sums:
    """A value whose sum is the gradient of several weights; `size` is None for a scalar. The sums stand in `name`."""

    name: str
    weights: tuple[str, ...]
    value: Access
    size: Dim | None


def group_gradients(program: Program, sizes: dict[str, tuple[Dim, ...]]) -> tuple[tuple[Outer, ...], tuple[Sums, ...]]:
    """Which products and sums are made together. `sizes` gives the weights' shapes."""
    shared: dict[tuple[Access, Dim], list[tuple[str, Access]]] = {}
    for product in program.products:
        rows, _ = sizes[product.weight]
        shared.setdefault((product.right, rows), []).append((product.weight, product.left))
    outers: list[Outer] = []
    for (right, rows), pairs in shared.items():
        for start in range(0, len(pairs), 4):
            some = pairs[start : start + 4]
            depth = sizes[some[0][0]][1]
            outers.append(
                Outer(
                    f"outer{len(outers)}",
                    tuple(w for w, _ in some),
                    tuple(a for _, a in some),
                    right,
                    rows,
                    depth,
                    max(1, 4 // len(some)),
                )
            )
    values: dict[Access, list[str]] = {}
    for term in program.sums:
        values.setdefault(term.value, []).append(term.weight)
    sums = tuple(
        Sums(f"sum{k}", tuple(weights), value, sizes[weights[0]][0] if sizes[weights[0]] else None)
        for k, (value, weights) in enumerate(values.items())
    )
    return tuple(outers), sums


class Walk:
    """Emits the walk over the rows of a chunk, block by block, latest first."""

    def __init__(self, b: Function, block: Value, layout: Layout, t0: Value, t1: Value) -> None:
        self.b = b
        self.t0, self.t1 = t0, t1

        def word(index: int, name: str) -> Value:
            return b.load(I64, b.at(block, index, I64, f"{name}.word"), name)

        self.word = word
        self.rows = word(layout.header("rows"), "rows")
        self.flat = b.compare("ne", word(layout.header("flat_after"), "flat"), i64(0), "flat")
        self.block_steps = word(layout.header("block_steps"), "block_steps")
        self.steps = word(layout.header("steps"), "steps")

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
        """How many runs of rows follow each other, and the rows of a run."""
        b = self.b
        steps = b.sub(stop, start, "steps")
        return b.select(self.flat, i64(1), steps, "runs"), b.select(self.flat, b.mul(steps, self.rows), self.rows, "run_rows")


class Source:
    """A buffer's words, loaded once; gives the address of a step's first row."""

    def __init__(self, walk: Walk, words: Value, later: Value | int, fixed_row: int | None, name: str) -> None:
        b = walk.b

        def word(index: int, label: str, type: str = I64) -> Value:
            return b.load(type, b.at(words, index, I64, f"{name}.word"), f"{name}.{label}")

        self.b, self.name, self.later = b, name, later
        self.address = word(0, "address", PTR)
        self.mask, self.slot_bytes = word(1, "mask"), word(2, "slot_bytes")
        self.row_bytes = i64(fixed_row) if fixed_row is not None else word(3, "row_bytes")
        self.panel_bytes = word(4, "panel_bytes")

    def at_step(self, t: Value, offset: Value) -> Value:
        b = self.b
        slot = b.binary("and", b.add(t, self.later), self.mask, f"{self.name}.slot")
        return b.at(self.address, b.add(b.mul(slot, self.slot_bytes), offset), "i8", self.name)


class Gradients:
    """Emits the functions of a program's gradients."""

    def __init__(self, module: Module, layout: Layout, program: Program, element: Element, machine: Machine) -> None:
        self.module, self.layout, self.program, self.element, self.machine = module, layout, program, element, machine
        self.made: dict[tuple[tuple[Access, ...], int, bool], str] = {}

    def source(self, walk: Walk, block: Value, access: Access) -> Source:
        words = walk.b.at(block, self.layout.buffer(access[0]), I64, f"{access[0]}.words")
        is_vector = self.program.buffer(access[0]).dim is not None
        fixed = None if is_callers(self.program, access[0]) else self.element.panel_row if is_vector else self.element.bytes
        return Source(walk, words, access[1], fixed, access[0])

    def outer(self, outer: Outer) -> str:
        """`void(ptr block, i64 t0, i64 t1, ptr right words, i64 right later, ptr sums, i64 depth, i64 task0, i64 task1)`: adds
        the products of a chunk
        to the sums, for a range of tasks (group, panel of the right side). Functions are shared by right sides.
        """
        ours = not is_callers(self.program, outer.right[0])
        key = (outer.lefts, outer.width, ours)
        if key in self.made:
            return self.made[key]
        name = self.made[key] = f"outer_product{len(self.made)}"
        parameters = [
            ("ptr readonly", "block"),
            ("i64", "t0"),
            ("i64", "t1"),
            ("ptr readonly", "right_words"),
            ("i64", "right_later"),
            ("ptr", "sums"),
        ]
        b = self.module.function(name, [*parameters, ("i64", "depth"), ("i64", "task0"), ("i64", "task1")])
        block, t0, t1, right_words, right_later, sums, depth, task0, task1 = b.arguments
        e, vectors = self.element, len(outer.lefts) * outer.width
        zero = const(e.vector, 0.0)
        walk = Walk(b, block, self.layout, t0, t1)
        lefts = [self.source(walk, block, access) for access in outer.lefts]
        right = Source(walk, right_words, right_later, e.panel_row if ours else None, "right")
        panels = b.binary("sdiv", b.add(depth, e.lanes - 1), i64(e.lanes), "panels")
        loop, start, stop, newest = walk.blocks("block_of_steps")
        runs, rows = walk.rows_of(start, stop)
        part = b.loop("part", 0, rows, BLOCK_ROWS, once=True)
        part_rows = b.minimum(b.sub(rows, part.index), BLOCK_ROWS, "part_rows")
        fresh = b.splat(b.binary("and", newest, b.compare("eq", part.index, i64(0), "first_part")), e.lanes, "fresh")
        task = b.loop("task", task0, task1)
        group = b.binary("sdiv", task.index, panels, "group")
        panel = b.binary("srem", task.index, panels, "panel")
        features = b.minimum(b.sub(depth, b.mul(panel, e.lanes)), e.lanes, "features")
        left_offsets = [
            b.add(b.mul(b.mul(group, outer.width), s.panel_bytes), b.mul(part.index, e.panel_row), "left_offset") for s in lefts
        ]
        right_offset = b.add(b.mul(panel, right.panel_bytes), b.mul(part.index, right.row_bytes), "right_offset")
        tile = b.mul(b.add(b.mul(group, depth), b.mul(panel, e.lanes)), vectors * e.panel_row, "tile_bytes")
        at = b.at(sums, tile, "i8", "tile")

        def one(j: Value, height: int) -> None:
            """The products of `height` features of the right side, from j on."""
            corner = b.at(at, b.mul(j, vectors * e.panel_row), "i8", "corner")
            places = [b.at(corner, k * e.panel_row, "i8", "place") for k in range(height * vectors)]
            for place in places:
                b.prefetch(place)
            run = b.loop("run", 0, runs, 1, [(f"sum.{i}.{v}", zero) for i in range(height) for v in range(vectors)])
            t = b.add(start, run.index, "t")
            left_at = [source.at_step(t, offset) for source, offset in zip(lefts, left_offsets, strict=True)]
            right_at = b.at(right.at_step(t, right_offset), b.mul(j, e.bytes), "i8", "right")
            done = b.end(run, self._rows(lefts, left_at, outer.width, right, right_at, part_rows, run.values))
            for place, value in zip(places, done, strict=True):
                before = b.load(e.vector, place, "before", e.panel_row)
                b.store(added_to(b, before, value, fresh, "total"), place, e.panel_row)

        cover(b, features, tile_heights(self.machine, vectors), one)
        for opened in (task, part, loop):
            b.end(opened)
        b.ret()
        return name

    def _rows(
        self,
        lefts: list[Source],
        left_at: list[Value],
        width: int,
        right: Source,
        right_at: Value,
        rows: Value,
        sums: list[Value],
    ) -> list[Value]:
        """Add the products of some rows that follow each other: every vector of the left side by every number of the right."""
        b, e, vectors = right.b, self.element, len(lefts) * width
        row = b.loop("row", 0, rows, 1, [("right", right_at), *[(v[1:], v) for v in sums]])
        here = b.mul(row.index, e.panel_row, "row_bytes")
        loaded = []
        for source, address in zip(lefts, left_at, strict=True):
            for k in range(width):
                place = b.at(address, b.mul(source.panel_bytes, k), "i8", source.name) if k else address
                loaded.append(b.load(e.vector, b.at(place, here, "i8", source.name), source.name, e.panel_row))
        following: list[Value] = []
        for i in range(len(sums) // vectors):
            factor = b.splat(b.load(e.type, b.at(row.values[0], i, e.type), "right", e.bytes), e.lanes, "right")
            before = row.values[1 + i * vectors : 1 + (i + 1) * vectors]
            following += [b.fma(factor, weight, total, "sum") for weight, total in zip(loaded, before, strict=True)]
        return b.end(row, [b.at(row.values[0], right.row_bytes, "i8", "right"), *following])[1:]

    def column_sums(self, sums: Sums) -> str:
        """`void(ptr block, i64 t0, i64 t1, ptr sums, i64 panel0, i64 panel1)`."""
        b = self.module.function(
            f"{sums.name}_columns",
            [("ptr readonly", "block"), ("i64", "t0"), ("i64", "t1"), ("ptr", "sums"), ("i64", "panel0"), ("i64", "panel1")],
        )
        block, t0, t1, target, panel0, panel1 = b.arguments
        e = self.element
        is_vector = sums.size is not None
        type, stride = (e.vector, e.panel_row) if is_vector else (e.type, e.bytes)
        walk = Walk(b, block, self.layout, t0, t1)
        source = self.source(walk, block, sums.value)
        zero = const(type, 0.0)
        panel = b.loop("panel", panel0, panel1)
        offset = b.mul(panel.index, source.panel_bytes) if is_vector else i64(0)
        place = b.at(target, b.mul(panel.index, stride), "i8", "place")
        if self.program.is_sum(sums.value[0]):
            loop, first_slot, newest = walk.added_up("block_of_steps")
            runs, rows = i64(1), b.binary("sdiv", b.add(walk.rows, SUM_ROWS - 1), i64(SUM_ROWS), "rows")
        else:
            loop, first_slot, stop, newest = walk.blocks("block_of_steps")
            runs, rows = walk.rows_of(first_slot, stop)
        part = b.loop("part", 0, rows, BLOCK_ROWS, once=True)
        part_rows = b.minimum(b.sub(rows, part.index), BLOCK_ROWS, "part_rows")
        fresh = b.binary("and", newest, b.compare("eq", part.index, i64(0), "first_part"), "fresh")
        run = b.loop("run", 0, runs, 1, [("sum", zero)])
        at = source.at_step(b.add(first_slot, run.index, "slot"), b.add(offset, b.mul(source.row_bytes, part.index)))
        row = b.loop("row", 0, part_rows, 1, [("at", at), ("sum", run.values[0])])
        value = b.load(type, row.values[0], sums.value[0], stride)
        done = b.end(row, [b.at(row.values[0], source.row_bytes, "i8", "at"), b.fadd(row.values[1], value, "sum")])
        (done_sum,) = b.end(run, done[1:])
        b.store(added_to(b, b.load(type, place, "before", stride), done_sum, fresh, "total"), place, stride)
        b.end(part)
        b.end(loop)
        b.end(panel)
        b.ret()
        return b.name
