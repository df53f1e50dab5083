"""Emits column kernels: products into registers, then pointwise work on them, and stores.

    for each group of `width` panels, for each strip of rows:
        make the sums of products, see `products`
        for each panel of the group, for each row of the strip:
            load, compute, store

Where registers hold the values of all panels of a group, a row's are computed together, but for those at the edge, which may have
less features.

A kernel whose operands are partly known before the steps has two uses. When it is `hoisting`, for a chunk of steps at once, it
makes the products of these operands alone and keeps the sums; in the steps it begins from what was kept. Where all sums were
kept, steps have no strips: what a group begins with for its products takes as long as several samples.

Where products are of int8, all of this is done for some rows after the other, whose operands are rounded first.

Where there are no products, some rows at a time go through all panels.

Every other step goes through the groups from the last to the first: of weights that a cache cannot hold, it then still has those
that the step before used last, where going round would find none.

The pointwise part stands in the code once whatever the heights of tiles; twice where registers hold a whole group, for the last
group may be no whole one; and once more, row by row, for highest tiles of short products.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from anyrnn.backends.llvm.block import Layout
from anyrnn.backends.llvm.builder import FALSE, TRUE, Module, Value, const, i64
from anyrnn.backends.llvm.element import SUM_ROWS, Element
from anyrnn.backends.llvm.emitter import Emitter, Key, is_callers
from anyrnn.backends.llvm.fetch import Fetches
from anyrnn.backends.llvm.int8_rows import RoundedRows
from anyrnn.backends.llvm.lanes import Lanes, added_to, first_lanes, lanes_left, load_lanes, store_lanes
from anyrnn.backends.llvm.moves import moved
from anyrnn.backends.llvm.products import Group, Products
from anyrnn.backends.llvm.shapes import Shaped
from anyrnn.backends.llvm.target import Machine
from anyrnn.backends.llvm.thread_code import turned
from anyrnn.backends.llvm.tiles import Tiles
from anyrnn.ir.graph import reachable
from anyrnn.passes.plan import MOVES, Program

ROWS_TOGETHER = 16
"""Where there are no products, all panels of so many rows are done before those of others, and rows are fetched so many rows
before they are needed, to the second level of cache: down a panel every vector of the caller's arrays stands far from the last,
and fetching to the nearest cache, which waits for few lines at a time, hides little of how long memory takes.
"""
FAR = ("stream", "cotangent", "output", "saved")
"""The roles of buffers that hold all steps, and so come from memory."""


class Panels(NamedTuple):
    """Some panels of a group that are computed together: the feature that each begins with; which lanes there are, None for all;
    what is the same in all rows, by node; where buffers stand from some row on; and of features that move the lanes that there
    are, and where the buffers that they come from stand.
    """

    features: list[Value]
    lanes: list[Lanes | None]
    vectors: list[dict[int, Value]]
    starts: list[dict[Key, Value]]
    there: list[Value]
    rows_from: dict[Key, Value]


class ColumnKernel(Emitter):
    """Emits one column kernel."""

    def __init__(
        self,
        module: Module,
        layout: Layout,
        program: Program,
        element: Element,
        machine: Machine,
        shaped: Shaped,
        tiles: Tiles,
    ) -> None:
        more = [("i64", "hoisting")] if shaped.inits else []
        super().__init__(module, layout, program, element, machine, shaped.kernel, more)
        self.shaped, self.tiles = shaped, tiles
        assert shaped.kernel.dim is not None
        self.features = self.size(shaped.kernel.dim)
        self.accumulator_of = {a.node: k for k, a in enumerate(shaped.accumulators)}
        self.needed = sorted(reachable(self.nodes, (i for i, _, _ in shaped.kernel.stores)))
        read = shaped.kernel.read_in_place(self.needed)
        self.pointwise_needs = [i for i in self.needed if i in read or self.nodes[i].op == "affine"]
        self.emit()

    def emit(self) -> None:
        b, shaped = self.b, self.shaped
        self.hoisting = b.compare("ne", self.more[0], i64(0), "hoisting") if shaped.inits else FALSE
        for i in self.pointwise_needs:
            if self.nodes[i].op == "load":
                self.locate(*self.nodes[i].attributes)
        for _, buffer, later in self.kernel.stores:
            self.locate(buffer, later)
        self.pointwise_bases = dict(self.bases)
        touched = [key for key in self.bases if self.in_columns(key[0]) and not self.program.is_sum(key[0])]
        far = [key for key in touched if self.program.buffer(key[0]).role in FAR]
        self.to_fetch_ahead = [] if shaped.accumulators else far
        if shaped.accumulators:
            for accumulator in shaped.accumulators:
                if accumulator.init:
                    self.locate(*accumulator.init)
            for operand in shaped.operands:
                self.locate(operand.buffer, operand.later)
            near = [key for key in touched if key not in far]
            fetches = Fetches(self, far, near, shaped.inits, self.hoisting, shaped.width, shaped.heights[0])
            self.products = Products(self, shaped, self.hoisting, fetches, self.tiles)
        self.moved_bases = sorted({self.nodes[s].attributes for s in self.kernel.moved if self.nodes[s].op == "load"})
        for key in self.moved_bases:
            self.locate(*key)
        if self.program.reverse:
            added = self.word(self.layout.header("add_outputs"), "add_outputs")
            outputs = self.program.outputs
            stored = [buffer for _, buffer, _ in self.kernel.stores if buffer in outputs]
            self.adds = {
                buffer: b.compare("ne", b.binary("and", added, i64(1 << outputs.index(buffer))), i64(0), f"{buffer}.adds")
                for buffer in stored
            }
        self.begun = {later: self.begins(later) for _, buffer, later in self.kernel.stores if self.program.is_sum(buffer)}
        self.spread = {
            i: b.splat(self.parameter_scalar(i), self.element.lanes, self.label(i))
            for i in self.needed
            if not self.nodes[i].per_sample and self.nodes[i].shape == () and self.nodes[i].op != "constant"
        }
        if not shaped.accumulators:
            self.panels()
        elif self.products.rounded is None:
            self.groups(i64(0), self.rows, self.rows)
        else:
            self.rounded_rows(self.products.rounded)
        b.ret()

    def rounded_rows(self, rounded: RoundedRows) -> None:
        """Go through some rows after the other whose operands are rounded at once."""
        b = self.b
        some = b.loop("some_rows", 0, self.rows, rounded.rows)
        count = b.minimum(b.sub(self.rows, some.index), rounded.rows, "count")
        rounded.round(some.index, count)
        self.groups(some.index, count, b.add(some.index, count, "end_row"))
        b.end(some)

    def groups(self, first: Value, rows: Value, end: Value) -> None:
        """Go through the groups of panels whose products are made at once, of so many rows from a first one on."""
        b, shaped = self.b, self.shaped
        self.first_row, self.end_row = first, end
        from_last = turned(b, self.t, self.word(self.layout.header("turn"), "turn"))
        loop = b.loop("group", self.group0, self.group1)
        from_end = b.sub(b.add(self.group0, b.sub(self.group1, 1)), loop.index, "from_end")
        number = b.select(from_last, from_end, loop.index, "group")
        first_panel = b.mul(number, shaped.width, "first_panel")
        lanes = self.element.lanes
        all_panels = b.ceil_div(self.features, lanes, "panels")
        following = b.maximum(b.minimum(b.add(number, b.select(from_last, i64(-1), i64(1))), b.sub(self.group1, 1)), self.group0)
        self.group = Group(number, following, first_panel, b.minimum(b.sub(all_panels, first_panel), shaped.width, "panels_left"))
        self.products.group = self.group
        if shaped.all_may_be_hoisted:
            use = partial(self.pointwise, first, rows, None)
            b.either(self.products.are_all_hoisted(), use, self.multiply, names=("hoisted", "multiply"))
        else:
            self.multiply()
        b.end(loop)

    def multiply(self) -> None:
        """Make a group's products strip by strip, and the pointwise work on their sums."""
        self.products.note()
        self.strips()

    def panels(self) -> None:
        """Go through some rows after the other, panel by panel, where there are no products."""
        b = self.b
        rows = b.loop("some_rows", 0, self.rows, ROWS_TOGETHER)
        height = b.minimum(b.sub(self.rows, rows.index), ROWS_TOGETHER, "height")
        self.group = Group(self.group0, self.group0, self.group0, b.sub(self.group1, self.group0, "panels"))
        self.panel_by_panel(rows.index, height)
        b.end(rows)

    def strips(self) -> None:
        """Go through the rows by strips."""
        b, products = self.b, self.products
        first = self.short_tiles() if products.may_be_short and self.fits_registers else self.first_row
        strip = b.loop("strip", first, self.end_row)
        row = strip.index
        strip.step = rows = products.rows_of_strip(b.sub(self.end_row, row))
        again = products.rows_again(row, rows, self.first_row)
        sums = self.advance(products.strip, b.mul(again, self.element.panel_row), "sums")
        products.fetches.restart()
        products.sums(b.sub(row, again), b.add(rows, again), self.first_row)
        if self.shaped.inits:
            ways = lambda: self.store_inits(row, rows, sums), lambda: self.pointwise(row, rows, sums)
            b.either(self.hoisting, *ways, names=("hoisted", "use"))
        else:
            self.pointwise(row, rows, sums)
        b.end(strip)

    def short_tiles(self) -> Value:
        """Go through the highest tiles of a whole group whose products are short; how many rows they were. Their sums stay in
        registers for the pointwise part, which is done while the next tile is multiplied.
        """
        b, products, height = self.b, self.products, self.shaped.heights[0]
        short = b.binary("and", products.is_short, self.is_whole(), "short")
        short = b.binary("and", short, b.binary("xor", self.hoisting, TRUE), "short")
        end = b.select(short, b.sub(self.rows, b.binary("srem", self.rows, i64(height))), i64(0), "short_rows")
        with b.only_if(short, "short_products"):
            panels = self.panels_from(i64(0), [i64(k) for k in range(self.shaped.width)], all_lanes=True)
            tile = b.loop("short_tile", 0, end, height)
            here = self.advanced(panels, tile.index)
            for i, sums in enumerate(products.short_tile(tile.index)):

                def sum_of(a: int, k: int, name: str, sums: dict[int, list[Value]] = sums) -> Value:
                    return sums[a][k]

                self.compute(here, b.add(tile.index, i, "row"), i64(i), sum_of)
            b.end(tile)
        return end

    def store_inits(self, row: Value, height: Value, sums: Value) -> None:
        """Put a strip's sums where the steps find them; those of its first row are at `sums`."""
        b, e = self.b, self.element
        panel = b.loop("panel_of_group", 0, self.group.panels)
        for a, accumulator in enumerate(self.shaped.accumulators):
            if accumulator.init is None:
                continue
            panel_bytes = self.panel_bytes[accumulator.init[0]]
            row_bytes = self.row_bytes[accumulator.init]
            at = self.advance(
                self.bases[accumulator.init], b.mul(panel_bytes, b.add(self.group.first_panel, panel.index)), "init"
            )
            at = self.advance(at, b.mul(row_bytes, row), "init")
            loop = b.loop("row_of_tile", 0, height)
            value = b.load(
                e.vector,
                self.advance(self.products.sum_at(a, panel.index, sums), b.mul(loop.index, e.panel_row), "sum"),
                "sum",
            )
            b.store(value, self.advance(at, b.mul(row_bytes, loop.index), "init"), e.panel_row)
            b.end(loop)
        b.end(panel)

    # pointwise

    @property
    def fits_registers(self) -> bool:
        """Whether registers hold the values of all panels of a group."""
        return len(self.pointwise_needs) * self.shaped.width <= self.machine.registers

    def is_whole(self) -> Value:
        """Whether all panels of the group have all lanes."""
        b = self.b
        end = b.mul(b.add(self.group.first_panel, self.shaped.width), self.element.lanes, "end")
        return b.compare("sge", self.features, end, "is_whole")

    def pointwise(self, row: Value, height: Value, sums: Value | None) -> None:
        """All elementwise work on `height` rows of the group. The sums of products are at `sums` for the first row; None
        where all of them were hoisted.
        """
        b, width = self.b, self.shaped.width
        if width == 1 or not self.fits_registers:
            self.panel_by_panel(row, height, sums)
            return
        together = partial(self.row_by_row, row, height, [i64(k) for k in range(width)], sums, all_lanes=True)
        b.either(self.is_whole(), together, lambda: self.panel_by_panel(row, height, sums), names=("whole", "edge"))

    def panel_by_panel(self, row: Value, height: Value, sums: Value | None = None) -> None:
        """The same of one panel of the group after the other, some of whose lanes may have no feature."""
        panel = self.b.loop("panel_of_group", 0, self.group.panels)
        self.row_by_row(row, height, [panel.index], sums)
        self.b.end(panel)

    def row_by_row(
        self, row: Value, height: Value, panels_of_group: list[Value], sums: Value | None, all_lanes: bool = False
    ) -> None:
        """Some panels of the group together. `all_lanes`: they have features in all lanes."""
        b, e = self.b, self.element
        panels = self.panels_from(row, panels_of_group, all_lanes)
        count = len(self.shaped.accumulators)
        found_at = [[self.products.found_at(a, k, sums, row) for a in range(count)] for k in panels_of_group]
        loop = b.loop("row_of_tile", 0, height)

        def sum_of(a: int, k: int, name: str) -> Value:
            at, apart = found_at[k][a]
            return b.load(e.vector, self.advance(at, b.mul(apart, loop.index), name), name, e.panel_row)

        self.compute(panels, b.add(row, loop.index, "row"), loop.index, sum_of)
        b.end(loop)

    def panels_from(self, row: Value, panels_of_group: list[Value], all_lanes: bool) -> Panels:
        """Some panels of the group, from a row on."""
        b, e = self.b, self.element
        panels = [b.add(self.group.first_panel, k, "panel") for k in panels_of_group]
        features = [b.mul(panel, e.lanes, "feature") for panel in panels]
        lanes = [None if all_lanes else lanes_left(b, b.sub(self.features, f, "left"), e.lanes) for f in features]
        vectors: list[dict[int, Value]] = [{} for _ in panels]
        for i in self.pointwise_needs:
            node = self.nodes[i]
            if node.op == "parameter" and len(node.shape) == 1:
                name = node.attributes[0]
                address = self.pointer(self.layout.weight(name), name)
                for found, feature, some in zip(vectors, features, lanes, strict=True):
                    at = b.at(address, feature, e.type)
                    found[i] = b.load(e.vector, at, name) if some is None else b.masked_load(e.vector, at, some.mask, name)
        starts = [{key: self.panel_at(key, panel, row) for key in self.pointwise_bases} for panel in panels]
        there = [first_lanes(b, b.sub(self.features, f, "left"), e.lanes) for f in features] if self.kernel.moved else []
        rows_from = {key: self.panel_at(key, i64(0), row) for key in self.moved_bases}
        return Panels(features, lanes, vectors, starts, there, rows_from)

    def compute(self, panels: Panels, row: Value, of_tile: Value, sum_of: Callable[[int, int, str], Value]) -> None:
        """A row of some panels, `of_tile` rows behind those from which they are; of the rows of this call it is number `row`.
        `sum_of` gives the sum of an accumulator's products in one of the panels.
        """
        b, e = self.b, self.element
        places = [
            {key: self.row_at(key, at, row, of_tile) for key, at in start.items() if not self.program.is_sum(key[0])}
            for start in panels.starts
        ]
        rows_here = {key: self.row_at(key, at, row, of_tile) for key, at in panels.rows_from.items()}
        for place in places:
            for key in self.to_fetch_ahead:
                b.prefetch(self.advance(place[key], b.mul(self.row_bytes[key], ROWS_TOGETHER), "ahead"), level=2)
        values = [dict(found) for found in panels.vectors]
        for i in self.pointwise_needs:
            node = self.nodes[i]
            for k, found in enumerate(values):
                if node.op == "affine":
                    found[i] = sum_of(self.accumulator_of[i], k, self.label(i))
                elif node.op == "constant":
                    found[i] = const(e.vector, node.attributes[0])
                elif node.op == "load":
                    found[i] = self.load(node.attributes, places[k][node.attributes], panels.lanes[k])
                elif i in self.spread:
                    found[i] = self.spread[i]
                elif node.op in MOVES:
                    found[i] = moved(self, i, panels.features[k], panels.there[k], found, rows_here)
                elif node.per_sample:
                    operands = [found[s] for s in node.inputs]
                    found[i] = self.elementwise(node, self.label(i), operands, panels.features[k], row)
        for i, buffer, later in self.kernel.stores:
            if not self.program.is_sum(buffer):
                for k, found in enumerate(values):
                    self.store(found[i], buffer, places[k][buffer, later], panels.lanes[k])
        self.add_to_sums(values, panels.starts, row)

    def advanced(self, panels: Panels, rows: Value) -> Panels:
        """The same panels from so many rows later on."""

        def later(start: dict[Key, Value]) -> dict[Key, Value]:
            sums = {key: at for key, at in start.items() if self.program.is_sum(key[0])}
            return {key: self.advance(at, self.b.mul(self.row_bytes[key], rows), key[0]) for key, at in start.items()} | sums

        return panels._replace(starts=list(map(later, panels.starts)), rows_from=later(panels.rows_from))

    def add_to_sums(self, values: list[dict[int, Value]], starts: list[dict[Key, Value]], row: Value) -> None:
        """Add a row's values to sums of `SUM_ROWS` rows each, the first of them in place of what was there."""
        if not self.begun:
            return
        b, e = self.b, self.element
        row = b.add(self.row0, row, "row")
        offset = b.mul(b.binary("udiv", row, i64(SUM_ROWS)), e.panel_row, "sum_offset")
        is_first = b.compare("eq", b.binary("urem", row, i64(SUM_ROWS)), i64(0), "is_first")
        fresh = {}
        for later, (begun, new_from) in self.begun.items():
            new = b.binary("or", begun, b.compare("sge", row, new_from), "new")
            fresh[later] = b.splat(b.binary("and", new, is_first), e.lanes, "fresh")
        for i, buffer, later in self.kernel.stores:
            if self.program.is_sum(buffer):
                for found, start in zip(values, starts, strict=True):
                    at = self.advance(start[buffer, later], offset, buffer)
                    before = b.load(e.vector, at, "before", e.panel_row)
                    b.store(added_to(b, before, found[i], fresh[later], buffer), at, e.panel_row)

    def load(self, key: Key, at: Value, lanes: Lanes | None) -> Value:
        """`lanes`: of the caller's arrays, which features there are; None for all."""
        b, e, buffer = self.b, self.element, key[0]
        if not self.in_columns(buffer):
            return b.splat(b.load(e.type, at, buffer), e.lanes, buffer)
        if not is_callers(self.program, buffer):
            return b.load(e.vector, at, buffer, e.panel_row)
        return b.load(e.vector, at, buffer) if lanes is None else load_lanes(b, e, at, lanes, buffer)

    def store(self, value: Value, buffer: str, at: Value, lanes: Lanes | None) -> None:
        b, e = self.b, self.element
        if not is_callers(self.program, buffer):
            b.store(value, at, e.panel_row)
            return
        if self.program.reverse:
            before = b.load(e.vector, at, "before") if lanes is None else load_lanes(b, e, at, lanes, "before")
            value = b.select(self.adds[buffer], b.fadd(value, before, buffer), value, buffer)
        if lanes is None:
            b.store(value, at)
        else:
            store_lanes(b, value, at, lanes)
