"""Emits the products of a strip of rows by a group's weights: block by block by all tiles of the strip, see `tiles`. The sums
are made in the strip's place, a part of the stack that stays in cache.

A strip is one tile where the second cache gives weights as fast as they are multiplied, unless those of all groups are more than
it holds: they are cut into pieces then, and the next piece is fetched meanwhile. Low tiles want more than that cache gives, so
their strips have many anyway. Processors that multiply vectors of 64 bytes as fast as shorter ones want more too; on some of them
only if there is more than one block.

Weights of a single step, or of few rows of all steps, may stay where the caller has them, see `squares`.

Of int8, which is multiplied several times as fast, strips have several tiles always, and no pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anyrnn.backends.llvm.block import first_of
from anyrnn.backends.llvm.builder import FALSE, I64, PTR, TRUE, Value, i64
from anyrnn.backends.llvm.covering import two_lower
from anyrnn.backends.llvm.emitter import Emitter, is_callers
from anyrnn.backends.llvm.factors import weight_steps
from anyrnn.backends.llvm.fetch import Fetches
from anyrnn.backends.llvm.few_rows import FEW_ROWS, blocks_apart, is_quicker, pays
from anyrnn.backends.llvm.heads import blocks_between
from anyrnn.backends.llvm.int8_rows import RoundedRows
from anyrnn.backends.llvm.shapes import OF_ZEROS, Accumulator, Operand, Shaped
from anyrnn.backends.llvm.short_tiles import short_products
from anyrnn.backends.llvm.target import FAR_BYTES
from anyrnn.backends.llvm.tile_kinds import OPERAND, TileKind, following_block
from anyrnn.backends.llvm.tiles import FETCHING_TILES, Tiles

PIECE_BYTES = 2**16
"""Weights of more bytes come from beyond the second cache in every step. Those of a group are then multiplied piece by piece,
each by all rows of a strip before the next is read.
"""


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
class Alike:
    """Operands whose products go to the same sums by the same code: which, those sums, the code, and tables for a group: of their
    entries, and of the sums' first values.
    """

    operands: list[int]
    accumulators: tuple[int, ...]
    kind: TileKind
    table: Value
    starts: Value


def alike_operands(operands: Sequence[Operand]) -> list[list[int]]:
    """Those that the same code multiplies, one after the other, in so few groups as leave each sum its order of operands."""
    groups: list[list[int]] = []
    for k, operand in enumerate(operands):
        for group in reversed(groups):
            latest = operands[group[0]]
            if (latest.accumulators, latest.stands) == (operand.accumulators, operand.stands):
                group.append(k)
                break
            if not set(latest.accumulators).isdisjoint(operand.accumulators):
                groups.append([k])
                break
        else:
            groups.append([k])
    return groups


class Products:
    """The sums of one strip after the other, in a place of the stack: [accumulator][panel][row][lane]."""

    group: Group
    """Whose sums are asked for; the kernel says so when it comes to a group."""

    def __init__(self, kernel: Emitter, shaped: Shaped, hoisting: Value, fetches: Fetches, tiles: Tiles) -> None:
        """The buffers of `shaped` have been located."""
        self.kernel, self.shaped, self.hoisting, self.fetches, self.tiles = kernel, shaped, hoisting, fetches, tiles
        self.b, self.element = kernel.b, kernel.element
        self.most_rows = shaped.strip_rows
        vectors = len(shaped.accumulators) * shaped.width * self.most_rows
        self.strip = self.b.value(PTR, f"alloca [{vectors} x {self.element.vector}], align {self.element.panel_row}", "strip")
        self.whole_depths = [kernel.size(o.depth) for o in shaped.operands]
        self.packed_depths = [self.b.mul(weight_steps(self.b, self.element, n), self.element.together) for n in self.whole_depths]
        self.packs = [kernel.pointer(kernel.layout.pack(o.pack), o.pack) for o in shaped.operands]
        self.standing = [self._standing(*each) for each in zip(shaped.operands, self.packs, strict=True)]
        self.any_stand = FALSE
        """whether some weights do: what is packed block by block is packed for a whole strip"""
        for stands, _ in (standing for standing in self.standing if standing is not None):
            self.any_stand = self.b.binary("or", self.any_stand, stands, "any_stand")
        self.zeros = [self._is_zero(*each) for each in zip(shaped.operands, self.standing, strict=True)]
        self.depths = [self._depth(*each) for each in zip(shaped.operands, self.whole_depths, self.zeros, strict=True)]
        self.ahead = self._ahead()
        biases = [a.bias for a in shaped.accumulators if a.bias]
        self.bias_packs = {bias: kernel.pointer(kernel.layout.pack(bias), bias) for bias in biases}
        self.begins_at = [self._begins_at(accumulator) for accumulator in shaped.accumulators]
        self.alike = self._alike()
        self.rounded = RoundedRows(kernel, shaped.operands, self.whole_depths, self.depths) if self.element.int8 else None
        self.is_short = FALSE
        """whether all products of a group are a single block, so that `short_tile` makes the sums of whole ones"""

    def _ahead(self) -> Value:
        """How many bytes ahead the first rows of a group fetch its weights."""
        b, kernel = self.b, self.kernel
        if kernel.machine.processor.fetching is None:
            return i64(0)
        of_many, of_few = (kernel.word(kernel.layout.header(name), name) for name in ("ahead", "ahead_few"))
        return b.select(b.compare("sgt", kernel.rows, i64(FEW_ROWS), "many_rows"), of_many, of_few, "ahead")

    def _is_zero(self, operand: Operand, standing: tuple[Value, Value] | None) -> Value | None:
        """Whether an operand is zero now, and its weights are packed: a state in the first step that the caller gave no first
        value for.
        """
        if not operand.zeros_first:
            return None
        b, kernel = self.b, self.kernel
        not_given = b.compare("eq", kernel.word(kernel.layout.buffer(first_of(operand.buffer)), "first"), i64(0), "not_given")
        is_zero = b.binary("and", b.compare("eq", kernel.t, i64(0), "is_first"), not_given, "is_zero")
        return b.select(standing[0], FALSE, is_zero, "is_zero") if standing else is_zero

    def _standing(self, operand: Operand, pack: Value) -> tuple[Value, Value] | None:
        """Whether weights are read where they stand, and bytes from row to row there; None where they never are."""
        if operand.stands is None:
            return None
        b, kernel, index = self.b, self.kernel, self.kernel.layout.weight(operand.weights[0])
        stands = b.compare("eq", pack, kernel.pointer(index, operand.weights[0]), "stands")
        return stands, kernel.word(index + 1, "weight_bytes")

    def _depth(self, operand: Operand, size: Value, is_zero: Value | None) -> Value:
        """How far a product goes: not at all if it was hoisted, or if others are; with zeros as far as what is packed for it."""
        b, none = self.b, i64(0)
        if is_zero is not None:
            size = b.select(is_zero, i64(OF_ZEROS), size, "depth")
        if not operand.foldable:
            return b.select(self.hoisting, none, size, "depth") if self.shaped.inits else size
        return b.select(self.hoisting, size, b.select(self._hoists(), none, size, "folded"), "depth")

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

    def _alike(self) -> list[Alike]:
        """With room for the tables: see `note`."""
        shaped, found = self.shaped, []
        for some in alike_operands(shaped.operands):
            accumulators, stands = shaped.operands[some[0]].accumulators, shaped.operands[some[0]].stands
            ours = not self.element.int8 and not any(is_callers(self.kernel.program, shaped.operands[k].buffer) for k in some)
            sums = tuple(a - accumulators[0] for a in accumulators)
            kind = TileKind(sums, shaped.width, shaped.heights, shaped.strip_rows, stands, ours)
            table = self.b.value(PTR, f"alloca [{(len(some) + 1) * kind.words} x i64], align 64", "operands")
            starts = self.b.value(PTR, f"alloca [{kind.count * kind.start_words} x i64], align 64", "starts")
            found.append(Alike(some, accumulators, kind, table, starts))
        return found

    def stands_at(self, operand: Operand) -> tuple[Value, Value, Value]:
        """Where an operand's rows are: the address of the first one's, bytes from row to row and from panel to panel (of rounded
        rows blocks follow each other).
        """
        if self.rounded is not None:
            return *self.rounded.places[operand.buffer, operand.later], i64(0)
        kernel, key = self.kernel, (operand.buffer, operand.later)
        return kernel.bases[key], kernel.row_bytes[key], kernel.panel_bytes[operand.buffer]

    def sum_at(self, accumulator: int, panel: Value | int, strip: Value) -> Value:
        """The address of one vector of the sums of a strip's first row."""
        b, e, advance = self.b, self.element, self.kernel.advance
        place = accumulator * self.shaped.width * self.most_rows * e.panel_row
        if isinstance(panel, int):
            return advance(strip, place + panel * self.most_rows * e.panel_row, "sum_at")
        return advance(strip, b.add(b.mul(panel, self.most_rows * e.panel_row), place), "sum_at")

    def note(self) -> None:
        """The words of each operand that has features to multiply, and what to fetch with each of their panels."""
        b, e, kernel, group = self.b, self.element, self.kernel, self.group
        self.blocks = []
        product_panels = i64(0)
        for alike in self.alike:
            place, blocks = alike.table, i64(0)
            for k in alike.operands:
                operand, depth = self.shaped.operands[k], self.depths[k]
                count = alike.kind.feature_bytes(e)
                before = b.mul(group.number, b.add(self.packed_depths[k], OF_ZEROS * e.together))
                is_zero, standing, weight_bytes = self.zeros[k], self.standing[k], i64(count)
                if is_zero is not None:
                    before = b.add(before, b.select(is_zero, self.packed_depths[k], i64(0), "skipped"))
                if standing is not None and operand.stands == "rows":
                    stands, apart = standing
                    before = b.select(stands, group.number, before, "before")
                    weight_bytes = b.select(stands, apart, weight_bytes, "weight_bytes")
                weights = kernel.advance(self.packs[k], b.mul(before, count), operand.pack)
                address, row_bytes, panel_bytes = self.stands_at(operand)
                if operand.heads > 1 and not e.int8:
                    skipped, depth = self._of_blocks(operand.heads, self.whole_depths[k], depth, group)
                    panel = b.binary("sdiv", skipped, i64(e.lanes), "panel")
                    address = kernel.advance(address, b.mul(panel, panel_bytes), "address")
                    weights = kernel.advance(weights, b.mul(skipped, count), operand.pack)
                words = {
                    "address": address,
                    "weights": weights,
                    "depth": depth,
                    "row_bytes": row_bytes,
                    "panel_bytes": panel_bytes,
                    "weight_bytes": weight_bytes,
                }
                for name, value in words.items():
                    b.store(value, b.at(place, OPERAND.index(name), I64))
                if standing is not None:
                    self._note_standing(operand, *standing, b.at(place, len(OPERAND), I64), group)
                blocks = b.add(blocks, b.ceil_div(depth, e.block), "blocks")
                panels = b.ceil_div(depth, e.lanes, "panels")
                product_panels = b.add(product_panels, panels, "product_panels")
                following = b.at(place, alike.kind.words, I64, "place")
                place = b.select(b.compare("sgt", depth, i64(0), "taken"), following, place, "place")
            self.blocks.append(blocks)
        self.starts = [self._starts(place) for place in self.begins_at]
        for which, alike in enumerate(self.alike):
            self._note_starts(which, alike)
        self._cut()
        if self.may_be_short:
            packed = b.binary("xor", self.any_stand, TRUE, "packed")
            self.is_short = b.binary("and", b.compare("eq", self.blocks[0], i64(1)), packed, "is_short")
        if kernel.machine.has_caches and not e.int8:
            self.fetches.note(group.first_panel, group.panels, product_panels)

    @property
    def may_be_short(self) -> bool:
        """Where all operands are known before the loop; others are states, which have few features in small steps alone. Training
        waits for what it keeps, and shows no gain. Not where operands are rounded, a whole block first.
        """
        operands, program = self.shaped.operands, self.kernel.program
        keeps = program.reverse or any(buffer.role == "saved" for buffer in program.buffers)
        alone = len(self.alike) == 1 and all(o.foldable and o.heads == 1 and o.stands != "rows" for o in operands)
        return alone and not keeps and self.kernel.machine.wide and self.element.together == 1

    def short_tile(self, row: Value) -> list[dict[int, list[Value]]]:
        """The sums of a highest tile from a row on, in registers: for each row, by accumulator, those of all panels."""
        b, e, (alike,) = self.b, self.element, self.alike
        products = iter(short_products(b, e, self.kernel.machine, alike.kind, alike.table, row))
        starts = {a: self._first(a, row) for a in alike.accumulators}
        found: list[dict[int, list[Value]]] = []
        for i in range(self.shaped.heights[0]):
            sums = {}
            for a, places in starts.items():
                before = [b.load(e.vector, b.at(at, b.mul(apart, i), "i8"), "before", e.panel_row) for at, apart in places]
                sums[a] = [b.fadd(value, next(products), "sum") for value in before]
            found.append(sums)
        return found

    def _cut(self) -> None:
        """Say whether rows go in strips of several tiles, and how many blocks a piece of the weights of operands that are alike
        has then.
        """
        b, tile, machine = self.b, self.shaped.heights[0], self.kernel.machine
        bytes = [self.element.block * alike.kind.feature_bytes(self.element) for alike in self.alike]
        total, all_blocks = i64(0), i64(0)
        for blocks, of_block in zip(self.blocks, bytes, strict=True):
            total = b.add(total, b.mul(blocks, of_block), "weight_bytes")
            all_blocks = b.add(all_blocks, blocks, "all_blocks")
        several = b.compare("sgt", self.kernel.rows, i64(tile), "several_tiles")
        assert self.shaped.kernel.dim is not None
        groups = b.binary("sdiv", self.kernel.size(self.shaped.kernel.dim), i64(self.shaped.width * self.element.lanes), "groups")
        large = b.compare("sgt", b.mul(total, groups), i64(FAR_BYTES), "large")
        in_pieces = FALSE if self.element.int8 else b.binary("and", several, large, "in_pieces")
        self.in_strips = several if machine.strips_of_a_block or self.element.int8 else in_pieces
        if machine.wide and not machine.strips_of_a_block:  # a single block is near whatever the strip is; stores are best spread
            another = b.compare("sgt", all_blocks, i64(1), "another_block")
            self.in_strips = b.binary("and", several, another, "in_strips")
        self.in_strips = b.binary("or", self.in_strips, b.binary("and", several, self.any_stand), "in_strips")
        enough = b.compare("sge", self.kernel.rows, i64(FETCHING_TILES * tile), "enough_tiles")
        fetches = b.select(self.any_stand, FALSE, b.binary("and", in_pieces, enough), "fetches")
        self.fetches_pieces = FALSE if machine.low_tiles else fetches
        self.pieces = [
            blocks if machine.low_tiles else b.select(in_pieces, i64(max(1, PIECE_BYTES // of_block)), blocks, "piece_blocks")
            for blocks, of_block in zip(self.blocks, bytes, strict=True)
        ]

    def _note_starts(self, which: int, alike: Alike) -> None:
        """Fill a group's table of first values."""
        b, kind = self.b, alike.kind
        for position, a in enumerate(alike.accumulators):
            entry = position * kind.start_words
            b.store(self._blocks_of(a, which), b.at(alike.starts, entry, I64, "added"))
            for k, (start, row_bytes) in enumerate(self.starts[a]):
                b.store(start, b.at(alike.starts, entry + 1 + 2 * k, I64, "start"))
                b.store(row_bytes, b.at(alike.starts, entry + 2 + 2 * k, I64, "row_bytes"))

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

    def _note_standing(self, operand: Operand, stands: Value, row_bytes: Value, place: Value, group: Group) -> None:
        """Where a group's weights stand, if they do."""
        b, kernel = self.b, self.kernel
        assert self.shaped.kernel.dim is not None
        first = b.mul(group.first_panel, self.element.lanes, "first")
        left = b.sub(kernel.size(self.shaped.kernel.dim), first, "left")
        b.store(b.select(stands, left, i64(0), "features_left"), place)
        if operand.stands == "squares":
            b.store(row_bytes, b.at(place, 1, I64))
            for k, weight in enumerate(operand.weights):
                at = kernel.advance(kernel.pointer(kernel.layout.weight(weight), weight), b.mul(first, row_bytes), weight)
                b.store(at, b.at(place, 2 + k, I64))

    def _starts(self, place: tuple[Value, Value, Value]) -> list[tuple[Value, Value]]:
        """The addresses of a group's panels in a place of first values, and bytes from row to row."""
        b, (address, row_bytes, panel_bytes) = self.b, place
        panels = [b.add(self.group.first_panel, k, "panel") for k in range(self.shaped.width)]
        return [(self.kernel.advance(address, b.mul(panel_bytes, panel), "begin"), row_bytes) for panel in panels]

    def rows_of_strip(self, left: Value) -> Value:
        """How many of the rows that are left the next strip takes. With low tiles it leaves an odd rest to a strip of its own,
        which multiplies that as one tile, see `rows_again`.
        """
        b, heights = self.b, self.shaped.heights
        tile = b.minimum(left, heights[0], "tile_rows")
        if len(heights) > 1:
            tile = b.select(two_lower(b, left, heights), i64(heights[1]), tile, "tile_rows")
        rows = b.minimum(left, self.most_rows, "strip_rows")
        if self.kernel.machine.low_tiles:
            rest = b.binary("srem", rows, i64(heights[0]), "rest")
            leaves = b.binary("and", self._is_odd(rest), b.compare("sgt", rows, rest, "has_others"), "leaves")
            rows = b.sub(rows, b.select(leaves, rest, i64(0)), "strip_rows")
        return b.select(self.in_strips, rows, tile, "rows_of_strip")

    def _is_odd(self, rows: Value) -> Value:
        """Whether so many rows would take two low tiles, and one more takes one."""
        b, heights, odd = self.b, self.shaped.heights, FALSE
        for height in heights:
            if height > 1 and height - 1 not in heights:
                odd = b.binary("or", odd, b.compare("eq", rows, i64(height - 1), "is_odd"), "odd")
        return odd

    def rows_again(self, row: Value, rows: Value, first: Value) -> Value:
        """How many rows before a strip's first are multiplied once more, so that its rows are those of one tile: one row more
        costs less than a lower tile for the last one. `first`: of all strips.
        """
        b = self.b
        again = b.binary("and", self._is_odd(rows), b.compare("sgt", row, first, "not_first"), "again")
        return b.select(again, i64(1), i64(0), "rows_again")

    def sums(self, row: Value, rows: Value, first: Value) -> None:
        """Leave the sums of a strip of so many rows in its place. The first one of all, at `first`, fetches weights ahead, which
        are near then; but a piece has been fetched as a whole.
        """
        b = self.b
        ahead = self.ahead
        if self.kernel.machine.processor.fetching:
            far = b.select(self.fetches_pieces, FALSE, b.compare("eq", row, first), "far")
            ahead = b.select(far, ahead, i64(0), "ahead")
        fetches_pieces = b.select(self.fetches_pieces, i64(1), i64(0), "fetches_pieces")
        for a in range(len(self.shaped.accumulators)):
            if self._may_be_hoisted(a):
                self._fetch_hoisted(a, row, rows)
        for which, alike in enumerate(self.alike):
            count, blocks, kind = self.pieces[which], self.blocks[which], alike.kind
            next_block = [i64(0), alike.table, i64(0)]
            if pays(self.kernel.machine, kind) and not self.element.int8:
                next_block = self._few_rows(which, row, rows, ahead, next_block)
            number, operand, feature = next_block
            piece = b.loop("piece", number, blocks, count, [("operand", operand), ("feature", feature)])
            operand, feature = piece.values
            end = b.minimum(b.add(piece.index, count), blocks, "piece_end")
            is_last = b.compare("eq", end, blocks, "is_last")
            coming = self._coming(which, piece.index, is_last)
            of_sums = self.sum_at(alike.accumulators[0], 0, self.strip)
            b.call(self.tiles.function(kind), [
                operand, feature, piece.index, end, row, rows, of_sums, alike.starts, self.fetches.table, self.group.panels,
                ahead, coming, fetches_pieces,
            ])  # fmt: skip
            begin = b.select(is_last, end, piece.index)
            skip = b.loop("skip", begin, end, 1, [("operand", operand), ("feature", feature)])
            b.end(piece, b.end(skip, following_block(b, self.element, kind, *skip.values)))

    def _few_rows(self, which: int, row: Value, rows: Value, ahead: Value, begin: list[Value]) -> list[Value]:
        """Add what few rows multiply by two blocks at once. The number of the next block, its operand's entry and its feature."""
        b, alike = self.b, self.alike[which]
        few, is_far = b.compare("sle", rows, i64(FEW_ROWS), "few_rows"), b.compare("ne", ahead, i64(0), "is_far")
        quicker = is_quicker(b, self.kernel.machine, alike.kind, rows, is_far)

        def add() -> list[Value]:
            number, operand, feature = begin
            for _ in alike.operands:
                apart = blocks_apart(b, self.element, alike.kind, operand, feature, b.sub(self.blocks[which], number))
                with b.only_if(b.compare("sgt", apart, i64(0), "two_blocks"), "at_once"):
                    sums = self.sum_at(alike.accumulators[0], 0, self.strip)
                    where = operand, feature, number, apart, row, rows
                    b.call(self.tiles.of_few_rows(alike.kind), [*where, sums, alike.starts])
                done = b.mul(apart, 2, "done")
                number = b.add(number, done, "number")
                operand, feature = following_block(b, self.element, alike.kind, operand, feature, done)
            return [number, operand, feature]

        return b.either(b.binary("and", few, quicker, "few_rows"), add, lambda: begin)

    def _coming(self, which: int, block: Value, is_last: Value) -> Value:
        """How many bytes further the weights of the next piece are: behind a piece, or at the beginning of the next group's."""
        b, of_feature = self.b, self.alike[which].kind.feature_bytes(self.element)
        of_zeros = OF_ZEROS * self.element.together
        of_group = b.mul(b.add(b.mul(self.blocks[which], self.element.block), of_zeros), of_feature, "group_bytes")
        groups = b.sub(self.group.following, self.group.number, "groups")
        of_block = self.element.block * of_feature
        next_group = b.sub(b.mul(groups, of_group), b.mul(block, of_block), "next_group")
        return b.select(is_last, next_group, b.mul(self.pieces[which], of_block), "coming")

    def _first(self, a: int, row: Value) -> list[tuple[Value, Value]]:
        """Where the first values of a sum are, for each panel: the address at a row, and bytes from row to row."""
        b, advance = self.b, self.kernel.advance
        if self.shaped.accumulators[a].init is None:  # the same for all rows
            return self.starts[a]
        return [(advance(start, b.mul(row_bytes, row), "begin"), row_bytes) for start, row_bytes in self.starts[a]]

    def are_all_hoisted(self) -> Value:
        """Whether all sums were hoisted, so that this call makes no products; asked where all may be."""
        return self.b.binary("and", self._hoists(), self.b.binary("xor", self.hoisting, TRUE), "are_all_hoisted")

    def _hoists(self) -> Value:
        """Whether products with what is known before the steps are made before them."""
        kernel = self.kernel
        return self.b.compare("ne", kernel.word(kernel.layout.header("hoist"), "hoist"), i64(0), "hoists")

    def _may_be_hoisted(self, a: int) -> bool:
        """Whether a sum's products may all have been hoisted where other sums' were not: its first values are the sum then."""
        operands = [o for o in self.shaped.operands if a in o.accumulators]
        has_init = self.shaped.accumulators[a].init is not None
        return has_init and all(o.foldable for o in operands) and not self.shaped.all_may_be_hoisted

    def _is_hoisted(self, a: int) -> Value:
        return self.b.compare("eq", self._blocks_of(a, len(self.alike)), i64(0), "is_hoisted")

    def _fetch_hoisted(self, a: int, row: Value, rows: Value) -> None:
        """Bring a strip's sums nearer that nothing is added to."""
        b, advance = self.b, self.kernel.advance
        with b.only_if(self._is_hoisted(a), "hoisted"):
            loop = b.loop("row_of_strip", 0, rows, once=True)
            for start, row_bytes in self._first(a, row):
                b.prefetch(advance(start, b.mul(row_bytes, loop.index), "begin"), level=2)
            b.end(loop)

    def found_at(self, a: int, panel: Value, strip: Value | None, row: Value) -> tuple[Value, Value]:
        """Where the sums of a strip from `row` on are, of one panel of the group: the address, and bytes from row to row. Those
        that were hoisted are where they were left, and if there is no strip all are.
        """
        if strip is None:
            return self._hoisted_at(a, panel, row)
        b, at, apart = self.b, self.sum_at(a, panel, strip), i64(self.element.panel_row)
        if not self._may_be_hoisted(a):
            return at, apart
        hoisted, (left_at, left_apart) = self._is_hoisted(a), self._hoisted_at(a, panel, row)
        return b.select(hoisted, left_at, at, "sum_at"), b.select(hoisted, left_apart, apart, "apart")

    def _hoisted_at(self, a: int, panel: Value, row: Value) -> tuple[Value, Value]:
        kernel, init = self.kernel, self.shaped.accumulators[a].init
        assert init is not None
        return kernel.panel_at(init, self.b.add(self.group.first_panel, panel, "panel"), row), kernel.row_bytes[init]

    def _blocks_of(self, a: int, tables: int) -> Value:
        """How many blocks go to a sum from the first tables."""
        total = i64(0)
        for alike, blocks in zip(self.alike[:tables], self.blocks, strict=False):
            if a in alike.accumulators:
                total = self.b.add(total, blocks, "blocks")
        return total
