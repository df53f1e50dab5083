"""Emits the products of a strip of rows by a group's weights:

    for each piece of the weights, for each tile of the strip's rows, the highest that fits first:
        for each operand, for each block of its features:
            sum products in registers, and now and then fetch some of what the pointwise work will touch
            add the sums to the first values (biases, or what was hoisted) or to the sums of the blocks before, and put them where
            the strip's sums are, a part of the stack that stays in cache

A strip is one tile, and a piece is all weights of a group, unless all groups' weights are more than the second cache holds.

A single row of a training call may be multiplied by weights that are not packed, but read in squares where they stand.

Sums are made in blocks because rounding errors of one long chain of additions grow with its length.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from anyrnn.backends.llvm.block import first_of
from anyrnn.backends.llvm.builder import I64, PTR, Value, const, i64
from anyrnn.backends.llvm.emitter import Emitter, cover, is_callers, two_lower
from anyrnn.backends.llvm.fetch import Fetches
from anyrnn.backends.llvm.heads import blocks_between
from anyrnn.backends.llvm.shapes import OF_ZEROS, Accumulator, Operand, Shaped
from anyrnn.backends.llvm.squares import SQUARES
from anyrnn.backends.llvm.target import machine

OPERAND = ("address", "weights", "depth", "row_bytes", "panel_bytes", "weight_bytes")
"""The words of an operand: weight_bytes are from feature to feature in its weights. Behind them, where weights may be read in
squares, the address of each weight (the first is 0 where they are packed) and bytes from row to row there.
"""
BLOCK_FEATURES = 64
"""Features of an operand whose products are summed in one chain; a multiple of every vector's lanes."""
LARGE_BYTES, PIECE_BYTES = 2**23, 2**16
"""Weights of more bytes come from beyond the second cache in every step. Those of a group are then multiplied piece by piece,
each by all rows of a strip before the next is read.
"""
STRIP_TILES = 8
"""Tiles of a strip then, at the most."""
FETCHING_TILES = 4
"""If there are so many, each fetches its part of the next piece to the second level of cache: the first one would wait for it."""
LINE_BYTES = 64


@dataclass(frozen=True)
class Group:
    """Some panels of a kernel's features, whose weights lie together: its number and the next one's, its first panel, how many
    there are.
    """

    number: Value
    following: Value
    first_panel: Value
    panels: Value


@dataclass(frozen=True)
class Piece:
    """Some blocks of operands that are alike, and where they begin: an operand's words, and a feature. `coming`: how many bytes
    further the weights of the next piece are.
    """

    which: int
    begin: Value
    end: Value
    operand: Value
    feature: Value
    coming: Value


class Products:
    """The sums of one strip after the other, in a place of the stack: [accumulator][panel][row][lane]."""

    def __init__(self, kernel: Emitter, shaped: Shaped, hoisting: Value, fetches: Fetches) -> None:
        """The buffers of `shaped` have been located."""
        self.kernel, self.shaped, self.hoisting, self.fetches = kernel, shaped, hoisting, fetches
        self.b, self.element = kernel.b, kernel.element
        self.most_rows = STRIP_TILES * shaped.heights[0]
        vectors = len(shaped.accumulators) * shaped.width * self.most_rows
        self.strip = self.b.value(PTR, f"alloca [{vectors} x {self.element.vector}], align {self.element.panel_row}", "strip")
        self.whole_depths = [kernel.size(o.depth) for o in shaped.operands]
        self.packs = [kernel.pointer(kernel.layout.pack(o.pack), o.pack) for o in shaped.operands]
        self.standing = [self._standing(*each) for each in zip(shaped.operands, self.packs, strict=True)]
        self.zeros = [self._is_zero(*each) for each in zip(shaped.operands, self.standing, strict=True)]
        self.depths = [self._depth(*each) for each in zip(shaped.operands, self.whole_depths, self.zeros, strict=True)]
        self.ahead = kernel.word(kernel.layout.header("ahead"), "ahead") if machine().bytes_ahead else None
        biases = [a.bias for a in shaped.accumulators if a.bias]
        self.bias_packs = {bias: kernel.pointer(kernel.layout.pack(bias), bias) for bias in biases}
        self.begins_at = [self._begins_at(accumulator) for accumulator in shaped.accumulators]
        self.alike = self._alike()

    def _is_zero(self, operand: Operand, standing: tuple[Value, Value] | None) -> Value | None:
        """Whether an operand is zero now, and its weights are packed: a state in the first step that the caller gave no first
        value for.
        """
        if not operand.zeros_first:
            return None
        b, kernel = self.b, self.kernel
        not_given = b.compare("eq", kernel.word(kernel.layout.buffer(first_of(operand.buffer)), "first"), i64(0), "not_given")
        is_zero = b.binary("and", b.compare("eq", kernel.t, i64(0), "is_first"), not_given, "is_zero")
        return b.select(standing[0], Value("false", "i1"), is_zero, "is_zero") if standing else is_zero

    def _standing(self, operand: Operand, pack: Value) -> tuple[Value, Value] | None:
        """Whether weights are read where they stand, and bytes from row to row there; None where they never are."""
        if operand.stands is None:
            return None
        b, kernel, index = self.b, self.kernel, self.kernel.layout.weight(operand.weights[0])
        stands = b.compare("eq", pack, kernel.pointer(index, operand.weights[0]), "stands")
        return stands, kernel.word(index + 1, "weight_bytes")

    def _depth(self, operand: Operand, size: Value, is_zero: Value | None) -> Value:
        """How far a product goes: not at all if it was hoisted, or if others are; with zeros as far as what is packed for it."""
        b, kernel, none = self.b, self.kernel, i64(0)
        if is_zero is not None:
            size = b.select(is_zero, i64(OF_ZEROS), size, "depth")
        if not operand.foldable:
            return b.select(self.hoisting, none, size, "depth") if self.shaped.inits else size
        hoisted = b.compare("ne", kernel.word(kernel.layout.header("hoist"), "hoist"), i64(0), "hoisted")
        return b.select(self.hoisting, size, b.select(hoisted, none, size, "folded"), "depth")

    def _begins_at(self, accumulator: Accumulator) -> tuple[Value, Value, Value]:
        """Where the first values of a sum are: the address, bytes from row to row and from panel to panel."""
        b, e, kernel = self.b, self.element, self.kernel
        if accumulator.bias is None:
            return kernel.pointer(kernel.layout.header("zeros"), "zeros"), i64(0), i64(0)
        bias = self.bias_packs[accumulator.bias], i64(0), i64(e.panel_row)
        if accumulator.init is None:
            return bias
        init = kernel.bases[accumulator.init], kernel.row_bytes[accumulator.init], kernel.panel_bytes[accumulator.init[0]]
        address, row_bytes, panel_bytes = (b.select(self.hoisting, x, y, "begin") for x, y in zip(bias, init, strict=True))
        return address, row_bytes, panel_bytes

    def _alike(self) -> list[tuple[list[int], Value]]:
        """Operands whose products go to the same sums by the same code, with room for their addresses: see `note`."""
        together: dict[tuple[tuple[int, ...], str | None], list[int]] = {}
        for k, operand in enumerate(self.shaped.operands):
            together.setdefault((operand.accumulators, operand.stands), []).append(k)
        words = [(len(some) + 1) * self._words(self.shaped.operands[some[0]]) for some in together.values()]
        tables = [self.b.value(PTR, f"alloca [{count} x i64], align 64", "operands") for count in words]
        return list(zip(together.values(), tables, strict=True))

    def _words(self, operand: Operand) -> int:
        """Of an operand's entry in its table."""
        return len(OPERAND) + (len(operand.weights) + 1 if operand.stands == "squares" else 0)

    def _word(self, entry: Value, name: str) -> Value:
        """Of an operand's entry."""
        return self.b.load(I64, self.b.at(entry, OPERAND.index(name), I64), name)

    def _pointer(self, entry: Value, name: str) -> Value:
        return self.b.load(PTR, self.b.at(entry, OPERAND.index(name), I64), name)

    def sum_at(self, accumulator: int, panel: Value | int, row: int = 0, tile: Value | None = None) -> Value:
        """The address of one vector of the sums, of a row of the strip or of a tile, whose first row is at `tile`."""
        b, e, advance, start = self.b, self.element, self.kernel.advance, self.strip if tile is None else tile
        place = (accumulator * self.shaped.width * self.most_rows + row) * e.panel_row
        if isinstance(panel, int):
            return advance(start, place + panel * self.most_rows * e.panel_row, "sum_at")
        return advance(start, b.add(b.mul(panel, self.most_rows * e.panel_row), place), "sum_at")

    def note(self, group: Group) -> None:
        """For a group, the words of each operand that has features to multiply, and what to fetch with each of their panels."""
        b, e, kernel = self.b, self.element, self.kernel
        self.group = group
        self.blocks = []
        product_panels = i64(0)
        for some, table in self.alike:
            place, blocks = table, i64(0)
            for k in some:
                operand, depth = self.shaped.operands[k], self.depths[k]
                count = len(operand.accumulators) * self.shaped.width * e.panel_row
                before = b.mul(group.number, b.add(self.whole_depths[k], OF_ZEROS))
                is_zero, standing, weight_bytes = self.zeros[k], self.standing[k], i64(count)
                if is_zero is not None:
                    before = b.add(before, b.select(is_zero, self.whole_depths[k], i64(0), "skipped"))
                if standing is not None and operand.stands == "rows":
                    stands, apart = standing
                    before = b.select(stands, group.number, before, "before")
                    weight_bytes = b.select(stands, apart, weight_bytes, "weight_bytes")
                weights = kernel.advance(self.packs[k], b.mul(before, count), operand.pack)
                key = operand.buffer, operand.later
                address = kernel.bases[key]
                if operand.heads > 1:
                    skipped, depth = self._of_blocks(operand.heads, self.whole_depths[k], depth, group)
                    panel = b.binary("sdiv", skipped, i64(e.lanes), "panel")
                    address = kernel.advance(address, b.mul(panel, kernel.panel_bytes[operand.buffer]), "address")
                    weights = kernel.advance(weights, b.mul(skipped, count), operand.pack)
                words = {
                    "address": address,
                    "weights": weights,
                    "depth": depth,
                    "row_bytes": kernel.row_bytes[key],
                    "panel_bytes": kernel.panel_bytes[operand.buffer],
                    "weight_bytes": weight_bytes,
                }
                for name, value in words.items():
                    b.store(value, b.at(place, OPERAND.index(name), I64))
                if standing is not None and operand.stands == "squares":
                    self._note_squares(operand, *standing, b.at(place, len(OPERAND), I64), group)
                blocks = b.add(blocks, b.binary("sdiv", b.add(depth, BLOCK_FEATURES - 1), i64(BLOCK_FEATURES)), "blocks")
                panels = b.binary("sdiv", b.add(depth, e.lanes - 1), i64(e.lanes), "panels")
                product_panels = b.add(product_panels, panels, "product_panels")
                following = b.at(place, self._words(operand), I64, "place")
                place = b.select(b.compare("sgt", depth, i64(0), "taken"), following, place, "place")
            self.blocks.append(blocks)
        self.starts = [self._starts(place) for place in self.begins_at]
        self._cut()
        self.fetches.note(group.first_panel, group.panels, product_panels)

    def _cut(self) -> None:
        """Say how many rows a strip has, and how many blocks a piece of the weights of operands that are alike."""
        b, tile = self.b, self.shaped.heights[0]
        bytes = [BLOCK_FEATURES * self._feature_bytes(some) for some, _ in self.alike]
        total = i64(0)
        for blocks, of_block in zip(self.blocks, bytes, strict=True):
            total = b.add(total, b.mul(blocks, of_block), "weight_bytes")
        several = b.compare("sgt", self.kernel.rows, i64(tile), "several_tiles")
        assert self.shaped.kernel.dim is not None
        groups = b.binary("sdiv", self.kernel.size(self.shaped.kernel.dim), i64(self.shaped.width * self.element.lanes), "groups")
        large = b.binary("and", several, b.compare("sgt", b.mul(total, groups), i64(LARGE_BYTES), "large"), "large")
        enough = b.compare("sge", self.kernel.rows, i64(FETCHING_TILES * tile), "enough_tiles")
        self.fetching = b.binary("and", large, enough, "fetching")
        self.large = large
        self.pieces = [
            b.select(large, i64(max(1, PIECE_BYTES // of_block)), blocks, "piece_blocks")
            for blocks, of_block in zip(self.blocks, bytes, strict=True)
        ]

    def _feature_bytes(self, alike: list[int]) -> int:
        """Of the weights of one feature of an operand, in a group."""
        return len(self.shaped.operands[alike[0]].accumulators) * self.shaped.width * self.element.panel_row

    def _of_blocks(self, heads: int, whole_depth: Value, depth: Value, group: Group) -> tuple[Value, Value]:
        """Of block-diagonal weights, the first feature (of a whole panel) that a group's blocks multiply, and how many there are
        from it on; none where `depth` is none.
        """
        b, lanes = self.b, self.element.lanes
        assert self.shaped.kernel.dim is not None
        size = self.kernel.size(self.shaped.kernel.dim)
        first = b.mul(group.first_panel, lanes, "first_feature")
        last = b.sub(b.minimum(b.add(first, b.mul(group.panels, lanes)), size), 1, "last_feature")
        skipped, end = blocks_between(b, first, last, (size, whole_depth), heads, lanes)
        return skipped, b.select(b.compare("eq", depth, i64(0), "none"), i64(0), b.sub(end, skipped), "depth")

    def _note_squares(self, operand: Operand, stands: Value, row_bytes: Value, place: Value, group: Group) -> None:
        """Where a group's rows stand in each weight."""
        b, kernel = self.b, self.kernel
        before = b.mul(b.mul(group.first_panel, self.element.lanes), row_bytes, "before")
        for k, weight in enumerate(operand.weights):
            at = kernel.advance(kernel.pointer(kernel.layout.weight(weight), weight), before, weight)
            at = b.select(stands, at, Value("null", PTR), weight) if k == 0 else at
            b.store(at, b.at(place, k, I64))
        b.store(row_bytes, b.at(place, len(operand.weights), I64))

    def _starts(self, place: tuple[Value, Value, Value]) -> list[tuple[Value, Value]]:
        """The addresses of a group's panels in a place of first values, and bytes from row to row."""
        b, (address, row_bytes, panel_bytes) = self.b, place
        panels = [b.add(self.group.first_panel, k, "panel") for k in range(self.shaped.width)]
        return [(self.kernel.advance(address, b.mul(panel_bytes, panel), "begin"), row_bytes) for panel in panels]

    def rows_of_strip(self, left: Value) -> Value:
        """How many of the rows that are left the next strip takes."""
        b, heights = self.b, self.shaped.heights
        tile = b.minimum(left, heights[0], "tile_rows")
        if len(heights) > 1:
            tile = b.select(two_lower(b, left, heights), i64(heights[1]), tile, "tile_rows")
        return b.select(self.large, b.minimum(left, self.most_rows), tile, "rows_of_strip")

    def rows_again(self, row: Value, rows: Value) -> Value:
        """How many rows before a strip's first are multiplied once more, so that its rows are those of one tile: one row more
        costs less than a lower tile for the last one.
        """
        b, heights = self.b, self.shaped.heights
        again = Value("false", "i1")
        for height in heights:
            if height > 1 and height - 1 not in heights:
                again = b.binary("or", again, b.compare("eq", rows, i64(height - 1), "is_odd"), "again")
        again = b.binary("and", again, b.compare("sgt", row, i64(0), "not_first"), "again")
        return b.select(again, i64(1), i64(0), "rows_again")

    def sums(self, row: Value, rows: Value) -> None:
        """Leave the sums of a strip of so many rows in its place."""
        b = self.b
        for a, accumulator in enumerate(self.shaped.accumulators):
            if accumulator.init and all(o.foldable for o in self.shaped.operands if a in o.accumulators):
                self._begin(a, row, rows)
        for which, (_, table) in enumerate(self.alike):
            count, blocks = self.pieces[which], self.blocks[which]
            piece = b.loop("piece", 0, blocks, count, [("operand", table), ("feature", i64(0))])
            operand, feature = piece.values
            end = b.minimum(b.add(piece.index, count), blocks, "piece_end")
            is_last = b.compare("eq", end, blocks, "is_last")
            part = Piece(which, piece.index, end, operand, feature, self._coming(which, piece.index, is_last))
            cover(b, rows, self.shaped.heights, partial(self._add_products, part, row))
            begin = b.select(is_last, end, piece.index)
            skip = b.loop("skip", begin, end, 1, [("operand", operand), ("feature", feature)])
            b.end(piece, b.end(skip, self._following(which, *skip.values)))

    def _coming(self, which: int, block: Value, is_last: Value) -> Value:
        """How many bytes further the weights of the next piece are: behind a piece, or at the beginning of the next group's."""
        b, of_feature = self.b, self._feature_bytes(self.alike[which][0])
        of_group = b.mul(b.add(b.mul(self.blocks[which], BLOCK_FEATURES), OF_ZEROS), of_feature, "group_bytes")
        groups = b.sub(self.group.following, self.group.number, "groups")
        of_block = BLOCK_FEATURES * of_feature
        next_group = b.sub(b.mul(groups, of_group), b.mul(block, of_block), "next_group")
        return b.select(is_last, next_group, b.mul(self.pieces[which], of_block), "coming")

    def _following(self, which: int, operand: Value, feature: Value) -> list[Value]:
        """The block after one of operands that are alike: the operand's words and the first feature."""
        b, words = self.b, self._words(self.shaped.operands[self.alike[which][0][0]])
        feature = b.add(feature, BLOCK_FEATURES, "feature")
        finished = b.compare("sge", feature, self._word(operand, "depth"), "finished")
        operand = b.select(finished, b.at(operand, words, I64), operand, "operand")
        return [operand, b.select(finished, i64(0), feature, "feature")]

    def _first(self, a: int, row: Value) -> list[tuple[Value, Value]]:
        """Where the first values of a sum are, for each panel: the address at a row, and bytes from row to row."""
        b, advance = self.b, self.kernel.advance
        if self.shaped.accumulators[a].init is None:  # the same for all rows
            return self.starts[a]
        return [(advance(start, b.mul(row_bytes, row), "begin"), row_bytes) for start, row_bytes in self.starts[a]]

    def _begin(self, a: int, row: Value, rows: Value) -> None:
        """Where all products of a sum were hoisted, its first values are the sum."""
        b, e, advance = self.b, self.element, self.kernel.advance
        hoisted, begun = b.label("hoisted"), b.label("begun")
        b.branch_if(b.compare("eq", self._blocks_of(a, len(self.alike)), i64(0), "none_left"), hoisted, begun)
        b.place(hoisted)
        loop = b.loop("row_of_strip", 0, rows, once=True)
        for k, (start, row_bytes) in enumerate(self._first(a, row)):
            value = b.load(e.vector, advance(start, b.mul(row_bytes, loop.index), "begin"), "begin", e.panel_row)
            b.store(value, advance(self.sum_at(a, k), b.mul(loop.index, e.panel_row), "sum_at"), e.panel_row)
        b.end(loop)
        b.branch(begun)
        b.place(begun)

    def _blocks_of(self, a: int, tables: int) -> Value:
        """How many blocks go to a sum from the first tables."""
        total = i64(0)
        for (some, _), blocks in zip(self.alike[:tables], self.blocks, strict=False):
            if a in self.shaped.operands[some[0]].accumulators:
                total = self.b.add(total, blocks, "blocks")
        return total

    def _add_products(self, piece: Piece, strip_row: Value, first_row: Value, height: int) -> None:
        """Add the products of operands that are alike to the sums of a tile, one operand after the other, block after block.

        Where at most half of a group's panels have features, the highest tile computes no more than that half.
        """
        b, e, shaped, advance, which = self.b, self.element, self.shaped, self.kernel.advance, piece.which
        operand, row = shaped.operands[self.alike[which][0][0]], b.add(strip_row, first_row, "row")
        tile = advance(self.strip, b.mul(first_row, e.panel_row), "tile")
        ours = not any(is_callers(self.kernel.program, shaped.operands[k].buffer) for k in self.alike[which][0])
        block = b.loop("block", piece.begin, piece.end, 1, [("operand", piece.operand), ("feature", piece.feature)], once=True)
        words, feature = block.values
        depth = self._word(words, "depth")
        row_bytes = i64(e.panel_row) if ours else self._word(words, "row_bytes")
        panel_bytes = self._word(words, "panel_bytes")
        panel = b.mul(b.binary("sdiv", feature, i64(e.lanes)), panel_bytes, "panel")
        first = advance(self._pointer(words, "address"), b.add(panel, b.mul(row_bytes, row)), "first")
        weight_bytes: Value | int = self._feature_bytes(self.alike[which][0])
        if operand.stands == "rows":
            weight_bytes = self._word(words, "weight_bytes")
        weights = advance(self._pointer(words, "weights"), b.mul(feature, weight_bytes), "weights")
        features = b.minimum(b.sub(depth, feature), BLOCK_FEATURES, "features")
        before = self._before(which, block.index, row, tile)
        next_piece = self._part_of_next(piece, first_row, e.lanes * self._feature_bytes(self.alike[which][0]), height)

        def add(panels: int) -> None:
            keys = [(a, i, k) for i in range(height) for a in operand.accumulators for k in range(panels)]
            vectors = [j * shaped.width + k for j in range(len(operand.accumulators)) for k in range(panels)]
            names = [f"{self.kernel.label(shaped.accumulators[a].node)}.{i}" for a, i, _ in keys]
            sums = self._chain(first, row_bytes, panel_bytes, weights, weight_bytes, features, vectors, names, row, next_piece)
            for (a, i, k), value in zip(keys, sums, strict=True):
                start, apart = before[a][k]
                total = b.fadd(b.load(e.vector, advance(start, b.mul(apart, i), "before"), "before", e.panel_row), value)
                b.store(total, self.sum_at(a, k, i, tile), e.panel_row)

        squares = operand.stands == "squares" and height == 1
        if squares:
            packed, in_squares, both = b.label("packed"), b.label("in_squares"), b.label("added")
            standing = b.load(PTR, b.at(words, len(OPERAND), I64), "standing")
            b.branch_if(b.compare("eq", standing, Value("null", PTR), "is_packed"), packed, in_squares)
            b.place(in_squares)
            self._add_squares(operand, words, feature, (first, panel_bytes, features), before, tile)
            b.branch(both)
            b.place(packed)
        if shaped.width > 1 and height == shaped.heights[0]:
            full, half, done = b.label("full"), b.label("half"), b.label("added")
            b.branch_if(b.compare("sgt", self.group.panels, i64(shaped.width // 2), "needs_all"), full, half)
            for label, panels in ((full, shaped.width), (half, shaped.width // 2)):
                b.place(label)
                add(panels)
                b.branch(done)
            b.place(done)
        else:
            add(shaped.width)
        if squares:
            b.branch(both)
            b.place(both)
        b.end(block, self._following(which, words, feature))

    def _part_of_next(self, piece: Piece, first_row: Value, panel_bytes: int, height: int) -> tuple[Value, Value] | None:
        """Of what comes after a panel's weights, a tile's part to be fetched: how many bytes further it is, and its lines."""
        if height < self.shaped.heights[0]:
            return None
        b, lines = self.b, panel_bytes // LINE_BYTES // FETCHING_TILES
        number = b.binary("srem", b.binary("sdiv", first_row, i64(height)), i64(FETCHING_TILES), "number")
        further = b.add(piece.coming, b.mul(number, lines * LINE_BYTES), "further")
        return further, b.select(self.fetching, i64(lines), i64(0), "lines")

    def _add_squares(
        self,
        operand: Operand,
        words: Value,
        feature: Value,
        factors: tuple[Value, Value, Value],
        before: dict[int, list[tuple[Value, Value]]],
        tile: Value,
    ) -> None:
        """Add some products of one row by weights where they stand."""
        b, e = self.b, self.element
        place = b.at(words, len(OPERAND), I64)
        row_bytes = b.load(I64, b.at(place, len(operand.weights), I64), "weight_bytes")
        for j, a in enumerate(operand.accumulators):
            here = b.at(b.load(PTR, b.at(place, j, I64), operand.weights[j]), feature, e.type)
            for k in range(self.shaped.width):
                rows = self.kernel.advance(here, b.mul(row_bytes, k * e.lanes), "rows")
                b.call(SQUARES, [rows, row_bytes, *factors, before[a][k][0], self.sum_at(a, k, 0, tile)])

    def _before(self, which: int, block: Value, row: Value, tile: Value) -> dict[int, list[tuple[Value, Value]]]:
        """What a block's products are added to: the first values, or what is in the tile; as `_first`."""
        b, e, found = self.b, self.element, {}
        some, _ = self.alike[which]
        for a in self.shaped.operands[some[0]].accumulators:
            is_first = b.compare("eq", b.add(block, self._blocks_of(a, which)), i64(0), "is_first")
            found[a] = [
                (
                    b.select(is_first, start, self.sum_at(a, k, 0, tile), "before"),
                    b.select(is_first, row_bytes, i64(e.panel_row), "apart"),
                )
                for k, (start, row_bytes) in enumerate(self._first(a, row))
            ]
        return found

    def _ahead(self, row: Value) -> Value | None:
        """How far ahead weights are fetched: the first rows may find them in no cache, the others multiply what is near."""
        return None if self.ahead is None else self.b.select(self.b.compare("eq", row, i64(0)), self.ahead, i64(0), "ahead")

    def _chain(
        self,
        first: Value,
        row_bytes: Value,
        panel_bytes: Value,
        weights: Value,
        weight_bytes: Value | int,
        features: Value,
        vectors: list[int],
        names: list[str],
        first_row: Value,
        next_piece: tuple[Value, Value] | None,
    ) -> list[Value]:
        """Sums of the products of some features, from the panel at `first` on, in registers: for each row and some of the vectors
        of the weights, whose features are `weight_bytes` apart; `names` has a name for each. `next_piece`: what to fetch with
        each panel of features, see `_part_of_next`.

        While one panel of the rows is multiplied, the next is fetched: panels are far apart, and no processor guesses where.
        """
        b, e, advance, count = self.b, self.element, self.kernel.advance, len(vectors)
        height = len(names) // count
        zeros = [(name, const(e.vector, 0.0)) for name in names]
        ahead = self._ahead(first_row) if height > 1 else None  # of one row, loads are what takes long
        panel = b.loop("panel", 0, features, e.lanes, [("rows", first), ("weights", weights), *zeros], once=True)
        rows = [advance(panel.values[0], b.mul(row_bytes, i), f"row.{i}") if i else panel.values[0] for i in range(height)]
        for row in rows:
            b.prefetch(advance(row, panel_bytes, "next"))
        if 2 * height > self.shaped.heights[0]:
            self.fetches.some(first_row, height)
        if next_piece:
            further, lines = next_piece
            line = b.loop("line", 0, lines)
            place = b.add(further, b.mul(line.index, LINE_BYTES), "further")
            b.prefetch(advance(panel.values[1], place, "next_piece"), level=2)
            b.end(line)
        stop = b.minimum(b.sub(features, panel.index), e.lanes, "stop")
        carried = list(zip(["weights", *names], panel.values[1:], strict=True))
        k = b.loop("k", 0, stop, 1, carried, once=True)
        here = k.values[0]
        aligned = e.panel_row if isinstance(weight_bytes, int) else e.bytes
        loaded = [b.load(e.vector, b.at(here, v * e.lanes, e.type), "weight", aligned) for v in vectors]
        if ahead is not None:
            coming = b.at(here, ahead, "i8", "coming")
            for v in vectors:
                b.prefetch(b.at(coming, v * e.lanes, e.type))
        following: list[Value] = []
        for i in range(height):
            factor = b.splat(b.load(e.type, b.at(rows[i], k.index, e.type), "factor"), e.lanes, "factor")
            before = k.values[1 + i * count : 1 + (i + 1) * count]
            following += [b.fma(factor, weight, total, "sum") for weight, total in zip(loaded, before, strict=True)]
        after = b.end(k, [advance(here, weight_bytes, "weights"), *following])
        return b.end(panel, [advance(panel.values[0], panel_bytes, "rows"), *after])[2:]
