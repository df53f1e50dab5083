"""Emits outer products of the rows of a chunk, the gradients of matrices:

    for each bundle of tasks, for each block of rows, the latest first:
        for each task, a panel of the left side by a group of panels of the right:
            copy the group's rows side by side, unless the task before has done so
            sum the products of the block's rows in registers, and add the sums to the gradient

The right side's features are the columns of the gradient, the left side's its rows. Of a block of features of both sides the
first panels may begin before it, and the lanes there are left out.
"""

from __future__ import annotations

from functools import partial

from anyrnn.backends.llvm.block import Layout
from anyrnn.backends.llvm.builder import I64, PTR, TRUE, Function, Module, Value, const, i64
from anyrnn.backends.llvm.covering import add_products, cover
from anyrnn.backends.llvm.element import Element
from anyrnn.backends.llvm.extent import BLOCK_ROWS
from anyrnn.backends.llvm.factors import factor_at, paired, weight_at
from anyrnn.backends.llvm.lanes import first_lanes
from anyrnn.backends.llvm.shapes import tile_heights
from anyrnn.backends.llvm.target import Machine
from anyrnn.backends.llvm.walk import Source, Walk

GROUP_BYTES = 128
"""Of a row of the right side, what is multiplied at once. A block's rows of it are 16 KB, so that they stay in the first level of
cache, beside those of a panel of the left side, while that panel's tiles are multiplied. Wide processors, whose first level holds
half as much again (but for those before Ice Lake, where nothing was timed), multiply 192 bytes.
"""
GROUPS_TOGETHER, PANELS_TOGETHER = 8, 16
"""Groups, and panels of the left side, whose tasks follow each other: their part of the gradient (with 16 lanes 256 rows by 256
columns, a quarter of a megabyte; on wide processors half as many columns again) and their rows of a block stay in the second
level of cache.
"""
BUNDLE = GROUPS_TOGETHER * PANELS_TOGETHER
"""Tasks that are done block after block."""
PARAMETERS = [
    ("ptr readonly", "block"),
    *[("i64", name) for name in ("t0", "t1")],
    ("ptr readonly", "left_words"),
    ("i64", "left_later"),
    ("ptr readonly", "right_words"),
    ("i64", "right_later"),
    ("ptr", "gradient"),
    *[("i64", name) for name in ("row_bytes", "size", "depth", "adds", "task0", "task1", "left0", "right0")],
]
"""Adds the products of the steps from t0 up to t1 to a gradient [size, depth], for a range of tasks. Unless `adds`, the first
block of all takes the place of what was there. `left0` and `right0`: the first features of a block.
"""


def left_heights(machine: Machine, lanes: int, vectors: int) -> tuple[int, ...]:
    """How many features of the left side are multiplied at once by so many vectors: those of a panel in as few tiles as there can
    be, which are as even as can be; those that are left of it; then one by one.
    """
    tiles = -(-lanes // tile_heights(machine, vectors)[0])
    highest = -(-lanes // tiles)
    return tuple(dict.fromkeys([highest, lanes % highest or highest, 1]))


def group_of(machine: Machine) -> int:
    """How many panels of the right side are multiplied at once, at the most: groups are as even as can be. Of more than four,
    registers would hold the sums of too few rows.
    """
    return 3 if machine.wide else min(4, GROUP_BYTES // machine.vector_bytes)


def panels_of(b: Function, lanes: int, first: Value, size: Value) -> tuple[Value, Value]:
    """The first panel of some features that follow each other, and how many panels they touch."""
    panel = b.binary("sdiv", first, i64(lanes), "first_panel")
    end = b.ceil_div(b.add(first, size), lanes, "end_panel")
    return panel, b.sub(end, panel, "panels")


def groups_of(b: Function, machine: Machine, panels: Value) -> Value:
    group = group_of(machine)
    return b.ceil_div(panels, group, "groups")


def block_tasks(b: Function, machine: Machine, lanes: int, left0: Value, size: Value, right0: Value, depth: Value) -> Value:
    """How many tasks there are for a block."""
    left, right = panels_of(b, lanes, left0, size)[1], panels_of(b, lanes, right0, depth)[1]
    return b.mul(left, groups_of(b, machine, right), "tasks")


class Outer:
    """Emits one function, with `PARAMETERS`."""

    def __init__(self, module: Module, layout: Layout, element: Element, machine: Machine, name: str, of_block: bool) -> None:
        """`of_block`: of a block of features of both sides; else of all."""
        self.element, self.machine, self.of_block, self.group = element, machine, of_block, group_of(machine)
        b = self.b = module.function(name, PARAMETERS)
        block, t0, t1, left_words, left_later, right_words, right_later, self.gradient, *sizes = b.arguments
        self.row_bytes, self.size, self.depth, adds, task0, task1, self.left0, self.right0 = sizes
        side_by_side = f"alloca [{BLOCK_ROWS * self.group} x {element.vector}], align {element.panel_row}"
        self.side_by_side = b.value(PTR, side_by_side, "side_by_side")
        """the group's rows, [row][panel][lane]"""
        if element.pairs:
            of_left = f"alloca [{BLOCK_ROWS} x {element.vector}], align {element.panel_row}"
            self.left_in_pairs = b.value(PTR, of_left, "left_in_pairs")
        self.panel0, self.panels = panels_of(b, element.lanes, self.left0 if of_block else i64(0), self.size)
        self.right_panel0, self.right_panels = panels_of(b, element.lanes, self.right0 if of_block else i64(0), self.depth)
        self.walk = Walk(b, block, layout, t0, t1)
        self.left = Source(self.walk, left_words, left_later, element.panel_row, "left")
        self.right = Source(self.walk, right_words, right_later, None, "right")
        replaces = b.compare("eq", adds, i64(0), "replaces")
        bundle = b.loop("bundle", task0, task1, BUNDLE)
        loop, self.start, stop, newest = self.walk.blocks()
        self.runs, rows = self.walk.rows_of(self.start, stop)
        part = b.loop("part", 0, rows, BLOCK_ROWS, once=True)
        self.part, self.part_rows = part.index, b.minimum(b.sub(rows, part.index), BLOCK_ROWS, "part_rows")
        first = b.binary("and", newest, b.compare("eq", part.index, i64(0), "first_part"), "first")
        self.fresh = b.binary("and", first, replaces, "fresh")
        if element.pairs:
            self.rows = self._count_rows()
        # read in place of memory that was never written, which the system would have to map twice
        self.zeros = b.load(PTR, b.at(block, layout.header("zeros"), I64), "zeros")
        task = b.loop("task", bundle.index, b.minimum(b.add(bundle.index, BUNDLE), task1))
        self.task(task.index, groups_of(b, machine, self.right_panels), b.compare("eq", task.index, bundle.index, "begins"))
        for opened in (task, part, loop, bundle):
            b.end(opened)
        b.ret()

    def task(self, task: Value, groups: Value, begins: Value) -> None:
        """One task; `begins`: it is the first of its bundle."""
        b, lanes = self.b, self.element.lanes
        panel, group, is_first = self._place(task, groups)
        right_panel = b.binary("sdiv", b.mul(group, self.right_panels), groups, "right_panel")
        end_panel = b.binary("sdiv", b.mul(b.add(group, 1), self.right_panels), groups, "end_panel")
        vectors = b.sub(end_panel, right_panel, "vectors")
        if self.of_block:
            panel, right_panel = b.add(panel, self.panel0, "panel"), b.add(right_panel, self.right_panel0, "right_panel")
        # where a panel's first row and column are in the gradient: before it, where a block begins within a panel
        row0, self.column0 = b.mul(panel, lanes, "row0"), b.mul(right_panel, lanes, "column0")
        if self.of_block:
            row0, self.column0 = b.sub(row0, self.left0, "row0"), b.sub(self.column0, self.right0, "column0")
        self.skipped = b.maximum(b.sub(i64(0), row0), 0, "skipped") if self.of_block else i64(0)
        self.features = b.minimum(b.sub(self.size, row0), lanes, "features")
        self.columns = b.sub(self.depth, self.column0, "columns")
        self.left_offset = b.add(b.mul(panel, self.left.panel_bytes), b.mul(self.part, self.left.row_bytes), "left_offset")
        self.right_offset = b.add(
            b.mul(right_panel, self.right.panel_bytes), b.mul(self.part, self.right.row_bytes), "right_offset"
        )
        rows = b.at(self.gradient, b.mul(row0, self.row_bytes), "i8")
        self.corner = b.at(rows, self.column0, self.element.type, "corner")
        fits = b.compare("sge", self.columns, i64(self.group * lanes), "fits")
        if self.of_block:
            fits = b.binary("and", fits, b.compare("sge", self.column0, i64(0), "begun"), "fits")
        with b.only_if(b.binary("or", is_first, begins, "is_new"), "copy"):
            b.either(fits, lambda: self.copy(None), lambda: self.copy([self._lanes(v) for v in range(self.group)]))
        if self.element.pairs:
            self._copy_pairs(self.left, self.left_offset, self.left_in_pairs, 1, None)
        self.products_of(vectors, self.group)

    def _place(self, task: Value, groups: Value) -> tuple[Value, Value, Value]:
        """The panel of the left side and the group of the right side of a task, and whether it is a group's first: some panels by
        a group, then by the next of a few groups; then other panels by those groups. So a group is copied once for some panels,
        and what is read of both sides, and the gradient, stay in the second level of cache.
        """
        b = self.b
        of_few = b.mul(self.panels, GROUPS_TOGETHER, "tasks_of_few")
        first = b.mul(b.binary("sdiv", task, of_few), GROUPS_TOGETHER, "first_group")
        few = b.minimum(b.sub(groups, first), GROUPS_TOGETHER, "few")
        rest = b.binary("srem", task, of_few, "rest")
        of_some = b.mul(few, PANELS_TOGETHER, "tasks_of_some")
        first_panel = b.mul(b.binary("sdiv", rest, of_some), PANELS_TOGETHER, "first_panel")
        some = b.minimum(b.sub(self.panels, first_panel), PANELS_TOGETHER, "some")
        rest = b.binary("srem", rest, of_some, "rest")
        number = b.binary("srem", rest, some, "number")
        group = b.add(first, b.binary("sdiv", rest, some), "group")
        return b.add(first_panel, number, "panel"), group, b.compare("eq", number, i64(0), "is_first")

    def copy(self, lanes: list[Value] | None) -> None:
        """Copy the group's rows side by side: far apart, as in an array of many features, they would take each other's place in
        the first level of cache. `lanes`: where they are not all there.
        """
        given = self.right, self.right_offset, self.side_by_side, self.group, lanes
        if self.element.pairs:
            self._copy_pairs(*given)
        else:
            self._copy_rows(*given, fetches=self.machine.wide)

    def _count_rows(self) -> Value:
        """How many rows the part of a block has, of all runs."""
        b = self.b
        run = b.loop("run", 0, self.runs, 1, [("rows", i64(0))])
        rows = self.walk.part_of_run(b.add(self.start, run.index, "t"), self.part, self.part_rows)
        return b.end(run, [b.add(run.values[0], b.maximum(rows, 0), "rows")])[0]

    def _copy_pairs(self, source: Source, offset: Value, place: Value, panels: int, lanes: list[Value] | None) -> None:
        """Copy pairs of rows of some panels side by side, rounded: [pair][panel][lane]. Which rows are a pair does not depend on
        where they stand: rows of several runs are copied as they are first.
        """
        b, e, row_bytes = self.b, self.element, i64(panels * self.element.panel_row)
        at_once = b.compare("eq", self.runs, i64(1), "at_once")
        first = source.at_step(self.start, offset)
        b.either(
            at_once,
            lambda: self._pair(first, source.row_bytes, source.panel_bytes, place, panels, lanes),
            lambda: self._copy_rows(source, offset, place, panels, lanes),
        )
        with b.only_if(b.binary("xor", at_once, TRUE, "in_place"), "pair"):
            self._pair(place, row_bytes, i64(e.panel_row), place, panels, None)

    def _pair(
        self, first: Value, row_bytes: Value, panel_bytes: Value, place: Value, panels: int, lanes: list[Value] | None
    ) -> None:
        """Pairs of rows that follow each other; in place too, as a pair is written where rows were read before."""
        b, e = self.b, self.element

        def load(at: Value, v: int) -> Value:
            at = b.at(at, b.mul(panel_bytes, v), "i8", "row")
            return b.masked_load(e.vector, at, lanes[v], "row") if lanes else b.load(e.vector, at, "row", e.bytes)

        def store(to: Value, v: int, low: Value, high: Value) -> None:
            b.store(paired(b, e, low, high), b.at(to, v * e.panel_row, "i8", "to"), e.panel_row)

        pair = b.loop("second", 1, self.rows, 2, [("from", first), ("to", place)])
        here, to = pair.values
        second = b.at(here, row_bytes, "i8", "second")
        rows = [(load(here, v), load(second, v)) for v in range(panels)]
        for v, (low, high) in enumerate(rows):
            store(to, v, low, high)
        here, to = b.end(pair, [b.at(second, row_bytes, "i8", "from"), b.at(to, panels * e.panel_row, "i8", "to")])
        with b.only_if(b.compare("ne", b.binary("and", self.rows, i64(1)), i64(0), "is_odd"), "single"):
            for v in range(panels):
                store(to, v, load(here, v), const(e.vector, 0.0))

    def _copy_rows(
        self, source: Source, offset: Value, place: Value, panels: int, lanes: list[Value] | None, fetches: bool = False
    ) -> None:
        """Copy rows of all runs side by side: [row][panel][lane]. `fetches`: those of the next panels meanwhile."""
        b, e = self.b, self.element
        run = b.loop("run", 0, self.runs, 1, [("to", place)])
        t = b.add(self.start, run.index, "t")
        rows = self.walk.part_of_run(t, self.part, self.part_rows)
        row = b.loop("row", 0, rows, 1, [("from", source.at_step(t, offset)), ("to", run.values[0])])
        here, to = row.values
        for v in range(panels):
            at = b.at(here, b.mul(source.panel_bytes, v), "i8", "from") if v else here
            value = b.masked_load(e.vector, at, lanes[v], "row") if lanes else b.load(e.vector, at, "row", e.bytes)
            b.store(value, b.at(to, v * e.panel_row, "i8", "to") if v else to, e.panel_row)
            if fetches:
                b.prefetch(b.at(at, b.mul(source.panel_bytes, panels), "i8", "group_ahead"), level=2)
        following = [b.at(here, source.row_bytes, "i8", "from"), b.at(to, panels * e.panel_row, "i8", "to")]
        b.end(run, b.end(row, following)[1:])

    def products_of(self, vectors: Value, most: int) -> None:
        """The products with a group of so many vectors, `most` at the most."""
        if most == 1:
            self.products(1)
        else:
            is_most = self.b.compare("eq", vectors, i64(most), "is_most")
            self.b.either(is_most, lambda: self.products(most), lambda: self.products_of(vectors, most - 1))

    def products(self, vectors: int) -> None:
        """The products with a group of so many vectors."""
        b, lanes = self.b, self.element.lanes
        features = b.sub(self.features, self.skipped) if self.of_block else self.features
        masks = [(self._full(v), self._lanes(v)) for v in range(vectors)]
        cover(b, features, left_heights(self.machine, lanes, vectors), lambda i, height: self.tile(i, height, masks))

    def tile(self, i: Value, height: int, masks: list[tuple[Value, Value]]) -> None:
        """The products of `height` features of the left side, from i on (after those that are skipped). `masks`: of each vector
        of the right side, whether all of its lanes are there, and which are.
        """
        b, e, vectors = self.b, self.element, len(masks)
        i = b.add(i, self.skipped, "i") if self.of_block else i
        lines = [b.at(self.corner, b.mul(b.add(i, k), self.row_bytes), "i8", "line") for k in range(height)]
        places = [b.at(line, v * e.lanes, e.type, "place") for line in lines for v in range(vectors)]
        for place in places:
            b.prefetch(place)
        sums = [(f"sum.{k}.{v}", const(e.vector, 0.0)) for k in range(height) for v in range(vectors)]
        if e.pairs:
            left, pairs = b.at(self.left_in_pairs, b.mul(i, e.bytes), "i8", "left"), b.ceil_div(self.rows, e.together, "pairs")
            _, *done = self._rows(left, self.side_by_side, vectors, pairs, sums)
        else:
            run = b.loop("run", 0, self.runs, 1, [("right", self.side_by_side), *sums])
            t = b.add(self.start, run.index, "t")
            left = b.at(self.left.at_step(t, self.left_offset), b.mul(i, e.bytes), "i8", "left")
            rows = self.walk.part_of_run(t, self.part, self.part_rows)
            carried = [(value[1:], value) for value in run.values[1:]]
            _, *done = b.end(run, self._rows(left, run.values[0], vectors, rows, carried))
        for v, (full, mask) in enumerate(masks):
            adds = partial(self._add, done[v::vectors], places[v::vectors])
            b.either(full, adds, partial(adds, mask))

    def _add(self, sums: list[Value], places: list[Value], mask: Value | None = None) -> None:
        """Add sums to the gradient, of some lanes or of all: a store with a mask takes a dozen cycles on some processors, and on
        others the next load with a mask waits for it.
        """
        b, e = self.b, self.element
        totals = []
        for value, place in zip(sums, places, strict=True):
            at = b.select(self.fresh, self.zeros, place, "before_at")
            before = b.masked_load(e.vector, at, mask, "before") if mask is not None else b.load(e.vector, at, "before", e.bytes)
            totals.append(b.fadd(before, value, "total"))
        for total, place in zip(totals, places, strict=True):
            if mask is None:
                b.store(total, place, e.bytes)
            else:
                b.masked_store(total, place, mask)

    def _rows(self, left: Value, right: Value, vectors: int, rows: Value, sums: list[tuple[str, Value]]) -> list[Value]:
        """Add the products of some rows, or pairs, that follow each other: every number of the left side by every vector of the
        right, which stand side by side. Returns where the right side's next row is, and the sums.
        """
        b, e = self.b, self.element
        row = b.loop("row", 0, rows, 1, [("left", left), ("right", right), *sums])
        left_here, right_here, *before = row.values
        if self.machine.wide and not e.pairs:  # a panel of the left side has been copied
            b.prefetch(b.at(left_here, self.left.panel_bytes, "i8", "panel_ahead"))

        factors = [partial(factor_at, b, e, left_here, k) for k in range(len(sums) // vectors)]
        weights = [partial(weight_at, b, e, right_here, v, e.panel_row) for v in range(vectors)]
        following = add_products(b, self.machine, factors, weights, before)
        to = [b.at(left_here, e.panel_row, "i8", "left"), b.at(right_here, self.group * e.panel_row, "i8", "right")]
        return b.end(row, [*to, *following])[1:]

    def _full(self, v: int) -> Value:
        """Whether all lanes of vector v of the group are columns."""
        b, lanes = self.b, self.element.lanes
        ends = b.compare("sge", self.columns, i64((v + 1) * lanes), "full")
        if not self.of_block:
            return ends
        return b.binary("and", ends, b.compare("sge", b.add(self.column0, v * lanes), i64(0), "begun"), "full")

    def _lanes(self, v: int) -> Value:
        """Which lanes of vector v of the group are columns."""
        b, lanes = self.b, self.element.lanes
        mask = first_lanes(b, b.sub(self.columns, v * lanes), lanes)
        if self.of_block:
            before_block = first_lanes(b, b.sub(i64(-v * lanes), self.column0), lanes)
            mask = _without(b, mask, before_block)
        return _kept_in_register(b, mask)


def _without(b: Function, mask: Value, others: Value) -> Value:
    """The lanes of a mask that are not set in another."""
    return b.select(others, Value("zeroinitializer", mask.type), mask, "within")


def _kept_in_register(b: Function, mask: Value) -> Value:
    """The same mask, which LLVM would otherwise compare for again wherever it is used."""
    return b.value(mask.type, f"freeze {mask.typed}", "mask")
