"""Emits column kernels: products into registers, then pointwise work on them, and stores.

    for each group of `width` panels, for each strip of rows:
        make the sums of products, see `products`
        for each panel of the group, for each row of the strip:
            load, compute, store

A kernel whose operands are partly known before the steps has two uses. When it is `hoisting`, for a chunk of steps at once, it
makes the products of these operands alone and keeps the sums; in the steps it begins from what was kept.

Where there are no products, a few rows at a time go through all panels.

Every other step goes through the groups from the last to the first: of weights that a cache cannot hold, it then still has those
that the step before used last, where going round would find none.

The pointwise part stands once in the code, whatever the heights of tiles.
"""

from __future__ import annotations

from anyrnn.backends.llvm.block import Layout
from anyrnn.backends.llvm.builder import Module, Value, const, i64
from anyrnn.backends.llvm.emitter import (
    SUM_ROWS,
    Element,
    Emitter,
    Key,
    Lanes,
    added_to,
    is_callers,
    lanes_left,
    load_lanes,
    store_lanes,
)
from anyrnn.backends.llvm.fetch import Fetches
from anyrnn.backends.llvm.products import Group, Products
from anyrnn.backends.llvm.shapes import Shaped
from anyrnn.backends.llvm.thread_code import turned
from anyrnn.backends.llvm.tiles import Tiles
from anyrnn.ir.graph import reachable
from anyrnn.passes.plan import Program

ROWS_TOGETHER, ROWS_AHEAD = 4, 32
"""Where there are no products, all panels of so many rows are done before those of others, and rows are fetched so many rows
before they are needed, to the second level of cache: down a panel every vector of the caller's arrays stands far from the last,
and fetching to the nearest cache, which waits for few lines at a time, hides little of how long memory takes.
"""
FAR = ("stream", "cotangent", "output", "saved")
"""The roles of buffers that hold all steps, and so come from memory."""


class ColumnKernel(Emitter):
    """Emits one column kernel."""

    def __init__(self, module: Module, layout: Layout, program: Program, element: Element, shaped: Shaped, tiles: Tiles) -> None:
        super().__init__(module, layout, program, element, shaped.kernel, [("i64", "hoisting")] if shaped.inits else [])
        self.shaped, self.tiles = shaped, tiles
        assert shaped.kernel.dim is not None
        self.features = self.size(shaped.kernel.dim)
        self.accumulator_of = {a.node: k for k, a in enumerate(shaped.accumulators)}
        self.needed = sorted(reachable(self.nodes, (i for i, _, _ in shaped.kernel.stores)))
        read = {s for i in self.needed if self.nodes[i].op != "affine" for s in self.nodes[i].inputs}
        read |= {i for i, _, _ in shaped.kernel.stores}
        self.pointwise_needs = [i for i in self.needed if i in read or self.nodes[i].op == "affine"]
        self.emit()

    def emit(self) -> None:
        b, shaped = self.b, self.shaped
        self.hoisting = b.compare("ne", self.further[0], i64(0), "hoisting") if shaped.inits else Value("false", "i1")
        for i in self.pointwise_needs:
            if self.nodes[i].op == "load":
                self.locate(*self.nodes[i].attributes)
        for _, buffer, later in self.kernel.stores:
            self.locate(buffer, later)
        self.pointwise_bases = dict(self.bases)
        self.to_fetch = [key for key in self.bases if self.in_columns(key[0]) and not self.program.is_sum(key[0])]
        self.to_fetch_ahead = [] if shaped.accumulators else [k for k in self.to_fetch if self.program.buffer(k[0]).role in FAR]
        if shaped.accumulators:
            for accumulator in shaped.accumulators:
                if accumulator.init:
                    self.locate(*accumulator.init)
            for operand in shaped.operands:
                self.locate(operand.buffer, operand.later)
            fetches = Fetches(self, self.to_fetch, shaped.inits, self.hoisting, shaped.width, shaped.heights[0])
            self.products = Products(self, shaped, self.hoisting, fetches, self.tiles)
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
        if shaped.accumulators:
            self.groups()
        else:
            self.panels()
        b.ret()

    def groups(self) -> None:
        """Go through the groups of panels whose products are made at once."""
        b, shaped = self.b, self.shaped
        from_last = turned(b, self.t, self.word(self.layout.header("turn"), "turn"))
        loop = b.loop("group", self.group0, self.group1)
        from_end = b.sub(b.add(self.group0, b.sub(self.group1, 1)), loop.index, "from_end")
        number = b.select(from_last, from_end, loop.index, "group")
        first_panel = b.mul(number, shaped.width, "first_panel")
        lanes = self.element.lanes
        all_panels = b.binary("sdiv", b.add(self.features, lanes - 1), i64(lanes), "panels")
        following = b.maximum(b.minimum(b.add(number, b.select(from_last, i64(-1), i64(1))), b.sub(self.group1, 1)), self.group0)
        self.group = Group(number, following, first_panel, b.minimum(b.sub(all_panels, first_panel), shaped.width, "panels_left"))
        self.products.note(self.group)
        self.strips()
        b.end(loop)

    def panels(self) -> None:
        """Go through a few rows after the other, panel by panel, where there are no products."""
        b = self.b
        rows = b.loop("few_rows", 0, self.rows, ROWS_TOGETHER)
        height = b.minimum(b.sub(self.rows, rows.index), ROWS_TOGETHER, "height")
        panel = b.loop("panel", self.group0, self.group1)
        self.group = Group(panel.index, panel.index, panel.index, i64(1))
        self.pointwise(rows.index, height)
        b.end(panel)
        b.end(rows)

    def strips(self) -> None:
        """Go through the rows by strips."""
        b, products = self.b, self.products
        strip = b.loop("strip", 0, self.rows)
        row = strip.index
        strip.step = rows = products.rows_of_strip(b.sub(self.rows, row))
        again = products.rows_again(row, rows)
        sums = self.advance(products.strip, b.mul(again, self.element.panel_row), "sums")
        products.fetches.restart()
        products.sums(b.sub(row, again), b.add(rows, again))
        if self.shaped.inits:
            keep, use, kept = b.label("hoisted"), b.label("use"), b.label("kept")
            b.branch_if(self.hoisting, keep, use)
            b.place(keep)
            self.store_inits(row, rows, sums)
            b.branch(kept)
            b.place(use)
            self.pointwise(row, rows, sums)
            b.branch(kept)
            b.place(kept)
        else:
            self.pointwise(row, rows, sums)
        b.end(strip)

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

    def pointwise(self, row: Value, height: Value, sums: Value | None = None) -> None:
        """All elementwise work on `height` rows of the group, panel after panel. `sums`: where those of products
        are for the first row, if there are any.
        """
        b, e = self.b, self.element
        panels = b.loop("panel_of_group", 0, self.group.panels, once=True) if self.shaped.width > 1 else None
        inside = panels.index if panels else i64(0)
        panel = b.add(self.group.first_panel, inside, "panel") if panels else self.group.first_panel
        feature = b.mul(panel, e.lanes, "feature")
        lanes = lanes_left(b, b.sub(self.features, feature, "left"), e.lanes)
        vectors = {}
        for i in self.pointwise_needs:
            node = self.nodes[i]
            if node.op == "parameter" and len(node.shape) == 1:
                address = self.pointer(self.layout.weight(node.attributes[0]), node.attributes[0])
                vectors[i] = b.masked_load(e.vector, b.at(address, feature, e.type), lanes.mask, node.attributes[0])
        starts = {key: self.panel_at(key, panel, row) for key in self.pointwise_bases}
        sums_at = [self.products.sum_at(a, inside, sums) for a in range(len(self.shaped.accumulators))] if sums else []
        loop = b.loop("row_of_tile", 0, height)
        row_here = b.add(row, loop.index, "row")
        at = {
            key: self.row_at(key, start, row_here, loop.index) for key, start in starts.items() if not self.program.is_sum(key[0])
        }
        for key in self.to_fetch_ahead:
            b.prefetch(self.advance(at[key], b.mul(self.row_bytes[key], ROWS_AHEAD), "ahead"), level=2)
        values = dict(vectors)
        for i in self.pointwise_needs:
            node = self.nodes[i]
            if node.op == "affine":
                place = self.advance(sums_at[self.accumulator_of[i]], b.mul(loop.index, e.panel_row), self.label(i))
                values[i] = b.load(e.vector, place, self.label(i), e.panel_row)
            elif node.op == "constant":
                values[i] = const(e.vector, node.attributes[0])
            elif node.op == "load":
                values[i] = self.load(node.attributes, at[node.attributes], lanes)
            elif i in self.spread:
                values[i] = self.spread[i]
            elif node.per_sample:
                operands = [values[s] for s in node.inputs]
                values[i] = self.elementwise(node, self.label(i), operands, feature, row_here)
        for i, buffer, later in self.kernel.stores:
            if not self.program.is_sum(buffer):
                self.store(values[i], buffer, at[buffer, later], lanes)
        self.add_to_sums(values, starts, row_here)
        b.end(loop)
        if panels:
            b.end(panels)

    def add_to_sums(self, values: dict[int, Value], starts: dict[Key, Value], row: Value) -> None:
        """Add a row's values to the sums, of which each holds `SUM_ROWS` rows, the first of them in place of what was there."""
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
                at = self.advance(starts[buffer, later], offset, buffer)
                before = b.load(e.vector, at, "before", e.panel_row)
                b.store(added_to(b, before, values[i], fresh[later], buffer), at, e.panel_row)

    def load(self, key: Key, at: Value, lanes: Lanes) -> Value:
        b, e, buffer = self.b, self.element, key[0]
        if not self.in_columns(buffer):
            return b.splat(b.load(e.type, at, buffer), e.lanes, buffer)
        if is_callers(self.program, buffer):
            return load_lanes(b, e, at, lanes, buffer)
        return b.load(e.vector, at, buffer, e.panel_row)

    def store(self, value: Value, buffer: str, at: Value, lanes: Lanes) -> None:
        b, e = self.b, self.element
        if not is_callers(self.program, buffer):
            b.store(value, at, e.panel_row)
            return
        if self.program.reverse:
            before = load_lanes(b, e, at, lanes, "before")
            value = b.select(self.adds[buffer], b.fadd(value, before, buffer), value, buffer)
        store_lanes(b, value, at, lanes)
