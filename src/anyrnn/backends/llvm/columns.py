"""Emits column kernels: products into registers, then pointwise work on them, and stores.

    for each group of `width` panels:
        for each tile of rows, the highest that fits first:
            put the first values of the sums (biases, or what was hoisted) into the tile, a piece of stack that stays in cache
            for each operand, for each block of its features:
                sum products in registers, and now and then fetch some of what the pointwise work will touch
                add the sums to the tile
        for each panel of the group, for each row of the tile:
            load, compute, store

A kernel whose operands are partly known before the steps has two uses. When it is `hoisting`, for a chunk of steps at once, it
makes the products of these operands alone and keeps the sums; in the steps it begins from what was kept.

Every other step goes through the groups from the last to the first: of weights that a cache cannot hold, it then still has those
that the step before used last, where going round would find none.

Sums are made in blocks because rounding errors of one long chain of additions grow with its length. The pointwise part stands
once in the code, whatever the height of the tile.
"""

from __future__ import annotations

from anyrnn.backends.llvm.block import Layout
from anyrnn.backends.llvm.builder import I64, PTR, Module, Value, const, i64
from anyrnn.backends.llvm.emitter import (
    SUM_ROWS,
    Element,
    Emitter,
    Lanes,
    added_to,
    is_callers,
    lanes_left,
    load_lanes,
    store_lanes,
)
from anyrnn.backends.llvm.shapes import Accumulator, Shaped
from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import reachable
from anyrnn.passes.plan import Program

Key = tuple[str, int]
OPERAND_WORDS = 5
"""address, weights, depth, bytes from row to row, bytes from panel to panel"""
FETCH_WORDS = 2
"""address, bytes from row to row"""
BYTES_AHEAD = 12288
"""How far ahead weights are fetched: what comes from memory while a core multiplies."""
ROWS_AHEAD = 12
"""How many rows before they are needed rows are fetched where there are no products in the time of which it could be done."""
BLOCK_FEATURES = 128
"""Features of an operand whose products are summed in one chain; a multiple of every vector's lanes."""


class ColumnKernel(Emitter):
    """Emits one column kernel."""

    def __init__(self, module: Module, layout: Layout, program: Program, element: Element, shaped: Shaped) -> None:
        super().__init__(module, layout, program, element, shaped.kernel, [("i64", "hoisting")] if shaped.inits else [])
        self.shaped = shaped
        assert shaped.kernel.dim is not None
        self.features = self.size(shaped.kernel.dim)
        self.accumulator_of = {a.node: k for k, a in enumerate(shaped.accumulators)}
        self.needed = sorted(reachable(self.nodes, (i for i, _, _ in shaped.kernel.stores)))
        read = {s for i in self.needed if self.nodes[i].op != "affine" for s in self.nodes[i].inputs}
        read |= {i for i, _, _ in shaped.kernel.stores}
        self.pointwise_needs = [i for i in self.needed if i in read or self.nodes[i].op == "affine"]
        self.emit()

    def emit(self) -> None:
        b, e, shaped = self.b, self.element, self.shaped
        self.tile = self._tile()
        self.hoisting = b.compare("ne", self.further[0], i64(0), "hoisting") if shaped.inits else Value("false", "i1")
        for i in self.pointwise_needs:
            if self.nodes[i].op == "load":
                self.locate(*self.nodes[i].attributes)
        for _, buffer, later in self.kernel.stores:
            self.locate(buffer, later)
        self.pointwise_bases = dict(self.bases)
        for accumulator in shaped.accumulators:
            if accumulator.init:
                self.locate(*accumulator.init)
        for operand in shaped.operands:
            self.locate(operand.buffer, operand.later)
        self.depths = [self.depth(o.depth, o.foldable) for o in shaped.operands]
        self.whole_depths = [self.size(o.depth) for o in shaped.operands]
        self.packs = [self.pointer(self.layout.pack(o.pack), o.pack) for o in shaped.operands]
        self.bias_packs = {a.bias: self.pointer(self.layout.pack(a.bias), a.bias) for a in shaped.accumulators if a.bias}
        self.begins_at = [self._begins_at(accumulator) for accumulator in shaped.accumulators]
        if self.program.reverse:
            self.adds = b.compare("ne", self.word(self.layout.header("add_outputs"), "add_outputs"), i64(0), "adds")
        self.begun = {later: self.begins(later) for _, buffer, later in self.kernel.stores if self.program.is_sum(buffer)}
        self.spread = {
            i: b.splat(self.parameter_scalar(i), self.element.lanes, self.label(i))
            for i in self.needed
            if not self.nodes[i].per_sample and self.nodes[i].shape == () and self.nodes[i].op != "constant"
        }
        self.alike = self._alike()
        self.to_fetch = [key for key in self.pointwise_bases if self.in_columns(key[0]) and not self.program.is_sum(key[0])]
        if shaped.accumulators:
            self.fetches = max(len(self.to_fetch), len(shaped.inits))
            words = FETCH_WORDS * self.fetches * shaped.width
            self.fetch_table = b.value(PTR, f"alloca [{max(1, words)} x i64], align 64", "to_fetch")
            self.cursor = b.value(PTR, "alloca i64, align 8", "cursor")
        turn = b.binary("and", b.add(self.t, self.word(self.layout.header("turn"), "turn")), i64(1), "turn")
        turned = b.compare("ne", turn, i64(0), "turned")
        group = b.loop("group", self.group0, self.group1)
        from_end = b.sub(b.add(self.group0, b.sub(self.group1, 1)), group.index, "from_end")
        self.group = b.select(turned, from_end, group.index, "group")
        self.first_panel = b.mul(self.group, shaped.width, "first_panel")
        all_panels = b.binary("sdiv", b.add(self.features, e.lanes - 1), i64(e.lanes), "panels")
        self.panels_left = b.minimum(b.sub(all_panels, self.first_panel), shaped.width, "panels_left")
        if shaped.accumulators:
            self.note_operands()
            self.note_fetches()
            self.tiles()
        else:
            self.pointwise(i64(0), self.rows)
        b.end(group)
        b.ret()

    def _alike(self) -> list[tuple[list[int], Value]]:
        """Operands whose products go to the same sums by the same code, with room for their addresses: see `note_operands`."""
        together: dict[tuple[tuple[int, ...], bool], list[int]] = {}
        for k, operand in enumerate(self.shaped.operands):
            together.setdefault((operand.accumulators, is_callers(self.program, operand.buffer)), []).append(k)
        return [
            (some, self.b.value(PTR, f"alloca [{(len(some) + 1) * OPERAND_WORDS} x i64], align 64", "operands"))
            for some in together.values()
        ]

    def note_operands(self) -> None:
        """For the current group, the words of each operand that has features to multiply, and the panels of all of them."""
        b, e = self.b, self.element
        self.blocks = []
        self.product_panels = i64(0)
        for some, table in self.alike:
            place, blocks = table, i64(0)
            for k in some:
                operand, depth = self.shaped.operands[k], self.depths[k]
                count = len(operand.accumulators) * self.shaped.width * e.panel_row
                weights = self.advance(self.packs[k], b.mul(b.mul(self.group, self.whole_depths[k]), count), operand.pack)
                address = self.bases[operand.buffer, operand.later]
                words = [address, weights, depth, self.row_bytes[operand.buffer, operand.later], self.panel_bytes[operand.buffer]]
                for word, value in enumerate(words):
                    b.store(value, b.at(place, word, I64))
                blocks = b.add(blocks, b.binary("sdiv", b.add(depth, BLOCK_FEATURES - 1), i64(BLOCK_FEATURES)), "blocks")
                panels = b.binary("sdiv", b.add(depth, e.lanes - 1), i64(e.lanes), "panels")
                self.product_panels = b.add(self.product_panels, panels, "product_panels")
                following = b.at(place, OPERAND_WORDS, I64, "place")
                place = b.select(b.compare("sgt", depth, i64(0), "taken"), following, place, "place")
            self.blocks.append(blocks)

    def _tile(self) -> Value:
        """Room for the sums of the highest tile: [accumulator][panel][row][lane]."""
        vectors = len(self.shaped.accumulators) * self.shaped.width * self.shaped.heights[0]
        return self.b.value(PTR, f"alloca [{max(1, vectors)} x {self.element.vector}], align {self.element.panel_row}", "tile")

    def tile_at(self, accumulator: int, panel: Value | int, row: int) -> Value:
        """The address of one vector of the tile."""
        b, height, e = self.b, self.shaped.heights[0], self.element
        place = (accumulator * self.shaped.width * height + row) * e.panel_row
        if isinstance(panel, int):
            return self.advance(self.tile, place + panel * height * e.panel_row, "sum_at")
        return self.advance(self.tile, b.add(b.mul(panel, height * e.panel_row), place), "sum_at")

    def depth(self, dim: Dim, foldable: bool) -> Value:
        """How far a product goes: not at all when it was hoisted, or when others are."""
        b, size, none = self.b, self.size(dim), i64(0)
        if not foldable:
            return b.select(self.hoisting, none, size, "depth") if self.shaped.inits else size
        hoisted = b.compare("ne", self.word(self.layout.header("hoist"), "hoist"), i64(0), "hoisted")
        return b.select(self.hoisting, size, b.select(hoisted, none, size, "folded"), "depth")

    def _begins_at(self, accumulator: Accumulator) -> tuple[Value, Value, Value] | None:
        """Where the first values of a sum are: the address, bytes from row to row and from panel to panel."""
        b, e = self.b, self.element
        bias = (self.bias_packs[accumulator.bias], i64(0), i64(e.panel_row)) if accumulator.bias else None
        if accumulator.init is None or bias is None:
            return bias
        init = self.bases[accumulator.init], self.row_bytes[accumulator.init], self.panel_bytes[accumulator.init[0]]
        address, row_bytes, panel_bytes = (b.select(self.hoisting, x, y, "begin") for x, y in zip(bias, init, strict=True))
        return address, row_bytes, panel_bytes

    # sums

    def tiles(self) -> None:
        """Go through the rows by tiles; all heights share the pointwise part."""
        b = self.b
        begin, shared, done = b.label("tiles"), b.label("pointwise"), b.label("tiles_done")
        entry = b.current
        b.branch(begin)
        b.place(begin)
        phi_line = len(b.lines)
        row = b.value(I64, "", "row")
        left = b.sub(self.rows, row, "left")
        b.store(i64(0), self.cursor)
        ends: list[tuple[Value, str]] = []
        for height in self.shaped.heights:
            then, otherwise = b.label(f"tile{height}"), b.label("lower") if height > 1 else done
            b.branch_if(b.compare("sge", left, i64(height), "fits"), then, otherwise)
            b.place(then)
            self.sums(row, height)
            ends.append((i64(height), b.current))
            b.branch(shared)
            if height > 1:
                b.place(otherwise)
        b.place(shared)
        height_here = b.phi(I64, ends, "height")
        if self.shaped.inits:
            keep, use, kept = b.label("hoisted"), b.label("use"), b.label("kept")
            b.branch_if(self.hoisting, keep, use)
            b.place(keep)
            self.store_inits(row, height_here)
            b.branch(kept)
            b.place(use)
            self.pointwise(row, height_here)
            b.branch(kept)
            b.place(kept)
        else:
            self.pointwise(row, height_here)
        following = b.add(row, height_here, "row.next")
        b.lines[phi_line] = f"  {row} = phi i64 [ 0, %{entry} ], [ {following}, %{b.current} ]"
        b.branch(begin)
        b.place(done)

    def note_fetches(self) -> None:
        """For the current group, the words of what will be touched after a tile's products, panel by panel; and how many to fetch
        with each panel that is multiplied: memory is slow, and all at once would wait.
        """
        b, inits = self.b, self.shaped.inits
        each: Value = i64(len(self.to_fetch))
        if inits:
            each = b.select(self.hoisting, i64(len(inits)), each, "fetched_of_panel")
        count = b.mul(self.panels_left, each, "fetch_count")
        often = b.select(b.compare("sgt", self.product_panels, i64(0)), self.product_panels, i64(1), "often")
        self.fetch_count, self.fetch_step = count, b.binary("sdiv", b.add(count, b.sub(often, 1)), often, "fetch_step")
        panels = b.loop("panel_of_group", 0, self.panels_left, once=True)
        panel = b.add(self.first_panel, panels.index, "panel")
        first = b.at(self.fetch_table, b.mul(b.mul(panels.index, each), FETCH_WORDS), I64, "first")
        for k in range(self.fetches):
            words = [self._fetch_words(keys[k], panel) for keys in (self.to_fetch, inits) if k < len(keys)]
            if k < min(len(inits), len(self.to_fetch)):
                words = [tuple(b.select(self.hoisting, y, x, "fetch") for x, y in zip(*words, strict=True))]
            for word, value in enumerate(words[0]):
                b.store(value, b.at(first, FETCH_WORDS * k + word, I64, "fetch"))
        b.end(panels)

    def _fetch_words(self, key: Key, panel: Value) -> tuple[Value, ...]:
        return self._start(key, panel, i64(0)), self.row_bytes[key]

    def fetch(self, row: Value, height: int) -> None:
        """Bring nearer the next few of what the pointwise part of a tile will touch."""
        b = self.b
        begin = b.load(I64, self.cursor, "cursor")
        end = b.minimum(b.add(begin, self.fetch_step), self.fetch_count, "cursor")
        loop = b.loop("fetch", begin, end)
        place = b.at(self.fetch_table, b.mul(loop.index, FETCH_WORDS), I64, "fetch")
        row_bytes = b.load(I64, b.at(place, 1, I64), "row_bytes")
        at = self.advance(b.load(PTR, place, "address"), b.mul(row_bytes, row), "fetched")
        for i in range(height):
            b.prefetch(self.advance(at, b.mul(row_bytes, i), "fetched"))
        b.end(loop)
        b.store(end, self.cursor)

    def sums(self, row: Value, height: int) -> None:
        """The sums of a tile."""
        for (a, i, k), value in self.begin(row, height).items():
            self.b.store(value, self.tile_at(a, k, i), self.element.panel_row)
        for which in range(len(self.alike)):
            self.products(which, row, height)

    def begin(self, row: Value, height: int) -> dict[tuple[int, int, int], Value]:
        """The first values of the sums, by (accumulator, row, panel)."""
        b, e = self.b, self.element
        sums: dict[tuple[int, int, int], Value] = {}
        for a, (accumulator, place) in enumerate(zip(self.shaped.accumulators, self.begins_at, strict=True)):
            for k in range(self.shaped.width):
                if place is None:
                    sums |= {(a, i, k): const(e.vector, 0.0) for i in range(height)}
                    continue
                address, row_bytes, panel_bytes = place
                at = self.advance(address, b.mul(panel_bytes, b.add(self.first_panel, k, "panel")), "begin")
                if accumulator.init:
                    at = self.advance(at, b.mul(row_bytes, row), "begin")
                value = b.load(e.vector, at, self.label(accumulator.node), e.panel_row)
                for i in range(height):
                    if i and accumulator.init:
                        here = self.advance(at, b.mul(row_bytes, i), "begin")
                        value = b.load(e.vector, here, self.label(accumulator.node), e.panel_row)
                    sums[a, i, k] = value
        return sums

    def products(self, which: int, row: Value, height: int) -> None:
        """Add the products of operands that are alike to the tile, one operand after the other, block after block.

        Where at most half of a group's panels have features, the highest tile computes no more than that half.
        """
        b, e, shaped = self.b, self.element, self.shaped
        some, table = self.alike[which]
        operand = shaped.operands[some[0]]
        ours = not is_callers(self.program, operand.buffer)
        block = b.loop("block", 0, self.blocks[which], 1, [("operand", table), ("feature", i64(0))])
        words, feature = block.values
        depth = b.load(I64, b.at(words, 2, I64), "depth")
        row_bytes = i64(e.panel_row) if ours else b.load(I64, b.at(words, 3, I64), "row_bytes")
        panel_bytes = b.load(I64, b.at(words, 4, I64), "panel_bytes")
        panel = b.mul(b.binary("sdiv", feature, i64(e.lanes)), panel_bytes, "panel")
        first = self.advance(b.load(PTR, words, "address"), b.add(panel, b.mul(row_bytes, row)), "first")
        weight_bytes = len(operand.accumulators) * shaped.width * e.panel_row
        weights = self.advance(b.load(PTR, b.at(words, 1, I64)), b.mul(feature, weight_bytes), "weights")
        features = b.minimum(b.sub(depth, feature), BLOCK_FEATURES, "features")

        def add(panels: int) -> None:
            keys = [(a, i, k) for i in range(height) for a in operand.accumulators for k in range(panels)]
            vectors = [j * shaped.width + k for j in range(len(operand.accumulators)) for k in range(panels)]
            names = [f"{self.label(shaped.accumulators[a].node)}.{i}" for a, i, _ in keys]
            sums = self.chain(first, row_bytes, panel_bytes, weights, weight_bytes, features, vectors, names, row)
            for (a, i, k), value in zip(keys, sums, strict=True):
                place = self.tile_at(a, k, i)
                b.store(b.fadd(b.load(e.vector, place, "before", e.panel_row), value), place, e.panel_row)

        if shaped.width > 1 and height == shaped.heights[0]:
            full, half, done = b.label("full"), b.label("half"), b.label("added")
            b.branch_if(b.compare("sgt", self.panels_left, i64(shaped.width // 2), "needs_all"), full, half)
            for label, panels in ((full, shaped.width), (half, shaped.width // 2)):
                b.place(label)
                add(panels)
                b.branch(done)
            b.place(done)
        else:
            add(shaped.width)
        feature = b.add(feature, BLOCK_FEATURES, "feature")
        finished = b.compare("sge", feature, depth, "finished")
        words = b.select(finished, b.at(words, OPERAND_WORDS, I64), words, "operand")
        b.end(block, [words, b.select(finished, i64(0), feature, "feature")])

    def chain(
        self,
        first: Value,
        row_bytes: Value,
        panel_bytes: Value,
        weights: Value,
        weight_bytes: int,
        features: Value,
        vectors: list[int],
        names: list[str],
        first_row: Value,
    ) -> list[Value]:
        """Sums of the products of some features, from the panel at `first` on, in registers: for each row and some of the vectors
        of the pack, whose features are `weight_bytes` apart; `names` has a name for each.

        While one panel of the rows is multiplied, the next is fetched: panels are far apart, and no processor guesses where. The
        first rows, which find the weights in no near cache, fetch them some way ahead; the others multiply what is near already.
        """
        b, e, count = self.b, self.element, len(vectors)
        height = len(names) // count
        zeros = [(name, const(e.vector, 0.0)) for name in names]
        ahead = b.select(b.compare("eq", first_row, i64(0)), i64(BYTES_AHEAD), i64(0), "ahead")
        panel = b.loop("panel", 0, features, e.lanes, [("rows", first), ("weights", weights), *zeros], once=True)
        rows = [self.advance(panel.values[0], b.mul(row_bytes, i), f"row.{i}") if i else panel.values[0] for i in range(height)]
        for row in rows:
            b.prefetch(self.advance(row, panel_bytes, "next"))
        if height == self.shaped.heights[0]:
            self.fetch(first_row, height)
        stop = b.minimum(b.sub(features, panel.index), e.lanes, "stop")
        carried = list(zip(["weights", *names], panel.values[1:], strict=True))
        k = b.loop("k", 0, stop, 1, carried, once=True)
        here = k.values[0]
        loaded = [b.load(e.vector, b.at(here, v * e.lanes, e.type), "weight", e.panel_row) for v in vectors]
        if height > 1:  # of one row, loads are what takes long
            coming = b.at(here, ahead, "i8", "coming")
            for v in vectors:
                b.prefetch(b.at(coming, v * e.lanes, e.type))
        following: list[Value] = []
        for i in range(height):
            factor = b.splat(b.load(e.type, b.at(rows[i], k.index, e.type), "factor"), e.lanes, "factor")
            before = k.values[1 + i * count : 1 + (i + 1) * count]
            following += [b.fma(factor, weight, total, "sum") for weight, total in zip(loaded, before, strict=True)]
        after = b.end(k, [self.advance(here, weight_bytes, "weights"), *following])
        return b.end(panel, [self.advance(panel.values[0], panel_bytes, "rows"), *after])[2:]

    def store_inits(self, row: Value, height: Value) -> None:
        """Put a tile's sums where the steps find them."""
        b, e = self.b, self.element
        panel = b.loop("panel_of_group", 0, self.panels_left)
        for a, accumulator in enumerate(self.shaped.accumulators):
            if accumulator.init is None:
                continue
            panel_bytes = self.panel_bytes[accumulator.init[0]]
            row_bytes = self.row_bytes[accumulator.init]
            at = self.advance(self.bases[accumulator.init], b.mul(panel_bytes, b.add(self.first_panel, panel.index)), "init")
            at = self.advance(at, b.mul(row_bytes, row), "init")
            loop = b.loop("row_of_tile", 0, height)
            value = b.load(e.vector, self.advance(self.tile_at(a, panel.index, 0), b.mul(loop.index, e.panel_row), "sum"), "sum")
            b.store(value, self.advance(at, b.mul(row_bytes, loop.index), "init"), e.panel_row)
            b.end(loop)
        b.end(panel)

    # pointwise

    def pointwise(self, row: Value, height: Value) -> None:
        """All elementwise work on `height` rows of the group, panel after panel."""
        b, e = self.b, self.element
        panels = b.loop("panel_of_group", 0, self.panels_left, once=True) if self.shaped.width > 1 else None
        inside = panels.index if panels else i64(0)
        panel = b.add(self.first_panel, inside, "panel") if panels else self.first_panel
        feature = b.mul(panel, e.lanes, "feature")
        lanes = lanes_left(b, b.sub(self.features, feature, "left"), e.lanes)
        vectors = {}
        for i in self.pointwise_needs:
            node = self.nodes[i]
            if node.op == "parameter" and len(node.shape) == 1:
                address = self.pointer(self.layout.weight(node.attributes[0]), node.attributes[0])
                vectors[i] = b.masked_load(e.vector, b.at(address, feature, e.type), lanes.mask, node.attributes[0])
        starts = {key: self._start(key, panel, row) for key in self.pointwise_bases}
        sums = [self.tile_at(a, inside, 0) for a in range(len(self.shaped.accumulators))]
        loop = b.loop("row_of_tile", 0, height)
        at = {
            key: self.advance(start, b.mul(self.row_bytes[key], loop.index), key[0])
            for key, start in starts.items()
            if not self.program.is_sum(key[0])
        }
        for key in [] if self.shaped.accumulators else self.to_fetch:
            b.prefetch(self.advance(at[key], b.mul(self.row_bytes[key], ROWS_AHEAD), "ahead"))
        values = dict(vectors)
        for i in self.pointwise_needs:
            node = self.nodes[i]
            if node.op == "affine":
                place = self.advance(sums[self.accumulator_of[i]], b.mul(loop.index, e.panel_row), self.label(i))
                values[i] = b.load(e.vector, place, self.label(i), e.panel_row)
            elif node.op == "constant":
                values[i] = const(e.vector, node.attributes[0])
            elif node.op == "load":
                values[i] = self.load(node.attributes, at[node.attributes], lanes)
            elif i in self.spread:
                values[i] = self.spread[i]
            elif node.per_sample:
                operands = [values[s] for s in node.inputs]
                values[i] = self.elementwise(node, self.label(i), operands, feature, b.add(row, loop.index, "row"))
        for i, buffer, later in self.kernel.stores:
            if not self.program.is_sum(buffer):
                self.store(values[i], buffer, at[buffer, later], lanes)
        self.add_to_sums(values, starts, b.add(row, loop.index))
        b.end(loop)
        if panels:
            b.end(panels)

    def _start(self, key: Key, panel: Value, row: Value) -> Value:
        """The address of a buffer's panel at the tile's first row."""
        b, buffer = self.b, key[0]
        at = self.bases[key]
        if self.in_columns(buffer):
            at = self.advance(at, b.mul(self.panel_bytes[buffer], panel), f"{buffer}.panel")
        if self.program.is_sum(buffer):
            return at
        return self.advance(at, b.mul(self.row_bytes[key], row), f"{buffer}.tile")

    def add_to_sums(self, values: dict[int, Value], starts: dict[Key, Value], row: Value) -> None:
        """Add a row's values to the sums, of which each holds `SUM_ROWS` rows, the first of them in place of what was there."""
        if not self.begun:
            return
        b, e = self.b, self.element
        row = b.add(self.row0, row, "row")
        offset = b.mul(b.binary("udiv", row, i64(SUM_ROWS)), e.panel_row, "sum_offset")
        is_first = b.compare("eq", b.binary("urem", row, i64(SUM_ROWS)), i64(0), "is_first")
        fresh = {later: b.splat(b.binary("and", begun, is_first), e.lanes, "fresh") for later, begun in self.begun.items()}
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
            value = b.select(self.adds, b.fadd(value, before, buffer), value, buffer)
        store_lanes(b, value, at, lanes)
