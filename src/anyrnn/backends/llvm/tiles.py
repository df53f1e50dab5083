"""Emits the products of a strip's rows by a piece of a group's weights, block by block:

    for each operand, for each block of its features:
        for each tile of the rows, the highest that fits first:
            sum products in registers, and now and then fetch some of what the pointwise work will touch
            add the sums to the first values (biases, or what was hoisted) or to the sums of the blocks before

It is one function for all kernels of a program whose tiles are alike: product loops are most of a kernel's code, and so of the
time to compile it.

Products of int8 fetch nothing for the pointwise work, see `int8_tiles`.

Sums are made in blocks because rounding errors of one long chain of additions grow with its length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from anyrnn.backends.llvm.builder import FALSE, I64, NULL, PTR, TRUE, Module, Value, const, i64
from anyrnn.backends.llvm.copies import Copies
from anyrnn.backends.llvm.covering import add_products, covered
from anyrnn.backends.llvm.element import Element
from anyrnn.backends.llvm.factors import Factors, weight_at
from anyrnn.backends.llvm.fetch import LINE_BYTES, fetch_some, fetch_weights
from anyrnn.backends.llvm.few_rows import FEW_ROWS, FewRows, function_name
from anyrnn.backends.llvm.int8_tiles import int8_sums
from anyrnn.backends.llvm.shapes import OF_ZEROS
from anyrnn.backends.llvm.squares import IN_SQUARES, MOST_IN_ROWS, MOST_IN_SQUARES, add_squares
from anyrnn.backends.llvm.target import Machine
from anyrnn.backends.llvm.tile_kinds import (
    OPERAND,
    FeatureBlock,
    StripSums,
    SumPlace,
    TileKind,
    features_left,
    following_block,
    stands_whole,
)

FETCHING_TILES = 4
"""If a strip has so many, each fetches its part of the next piece to the second cache: the first one would wait for it."""
FEATURES_AHEAD = 24
"""How far ahead tall tiles fetch weights: they read every other line, and no processor guesses which."""


class Tile(NamedTuple):
    """Rows from a row on, of which a panel of the first stands at `first`; `next_piece`: what to fetch with each panel of
    features, see `_part_of_next`.
    """

    row: Value
    height: int
    first: Value
    next_piece: tuple[Value, Value] | None


class Tiles:
    """The functions of a module that multiply tiles."""

    def __init__(self, module: Module, element: Element, machine: Machine, copies: Copies) -> None:
        self.module, self.element, self.machine, self.copies = module, element, machine, copies
        self.made: set[TileKind] = set()
        self.made_for_few_rows: set[TileKind] = set()
        self.made_squares = False

    def function(self, kind: TileKind) -> str:
        """`void(ptr operand, i64 feature, i64 begin, i64 end, i64 row, i64 rows, ptr sums, ptr starts, ptr fetches, i64 panels,
        i64 ahead, i64 coming, i64 fetches_pieces)`: adds the products of blocks from `begin` up to `end`, the first of which is
        at an operand's entry and a feature, to the sums of a strip of `rows` rows from `row` on. `panels`: of the group; `ahead`:
        how many bytes ahead the first tile fetches weights; `coming`: how many bytes further the weights of the next piece are,
        and `fetches_pieces` whether they are fetched. `starts` and `fetches` are tables, see `TileKind.start_words` and `fetch`.
        """
        if kind not in self.made:
            self.made.add(kind)
            _Products(self, kind)
        return kind.name

    def squares(self) -> str:
        """See `add_squares`."""
        if not self.made_squares:
            self.made_squares = True
            add_squares(self.module, self.element)
        return IN_SQUARES

    def of_few_rows(self, kind: TileKind) -> str:
        """See `FewRows`."""
        if kind not in self.made_for_few_rows:
            self.made_for_few_rows.add(kind)
            FewRows(self.module, self.element, kind)
        return function_name(kind)


class _Products:
    """Emits one function."""

    def __init__(self, tiles: Tiles, kind: TileKind) -> None:
        element, machine = self.element, self.machine = tiles.element, tiles.machine
        self.copies, self.squares, self.kind = tiles.copies, tiles.squares, kind
        words = [("i64", name) for name in ("feature", "begin", "end", "row", "rows")]
        tables = [("ptr", "sums"), ("ptr readonly", "starts"), ("ptr", "fetches")]
        more = [("i64", name) for name in ("panels", "ahead", "coming", "fetches_pieces")]
        b = self.b = tiles.module.function(kind.name, [("ptr readonly", "operand"), *words, *tables, *more])
        self.operand, self.feature, self.begin, self.end, self.row, self.rows, *others = b.arguments
        sums, starts, self.fetches, self.panels, self.ahead, self.coming, fetches_pieces = others
        self.sums = StripSums(b, element, kind, sums, starts, self.row)
        self.fetches_pieces = b.compare("ne", fetches_pieces, i64(0), "fetches_pieces")
        self.tall = kind.tall(machine)
        self.factors = Factors(b, element, max(self.tall, *kind.heights), element.block)
        if kind.stands:
            steps = element.block + OF_ZEROS  # what packs them adds their product with zeros
            room = f"alloca [{steps * kind.count * kind.width} x {element.vector}], align {element.panel_row}"
            self.room = b.value(PTR, room, "room")
        self._blocks(self._tiles())
        b.ret()

    def _tiles(self) -> list[tuple[Value, Value, int]]:
        """The tiles of the strip's rows: of each height, from which row to which."""
        b = self.b
        if not self.tall:
            return covered(b, self.rows, self.kind.heights)
        is_tall = b.compare("eq", self.rows, i64(self.tall), "is_tall")
        rows = b.select(is_tall, i64(0), self.rows, "low_rows")
        return [(i64(0), b.sub(self.rows, rows), self.tall), *covered(b, rows, self.kind.heights)]

    def _blocks(self, tiles: list[tuple[Value, Value, int]]) -> None:
        """Add the products of operands that are alike to the sums of all tiles, one operand after the other, block after block:
        all tiles multiply a block of weights before the next.
        """
        b = self.b
        blocks = b.loop("block", self.begin, self.end, 1, [("operand", self.operand), ("feature", self.feature)], once=True)
        operand, feature = blocks.values
        block = FeatureBlock.at(b, self.element, self.kind, operand, feature, self.row)
        places = self.sums.places(blocks.index)
        if not self.kind.stands:
            self._add_block(block, places, tiles)
        else:
            self._add_standing(block, places, tiles)
        b.end(blocks, following_block(b, self.element, self.kind, operand, feature))

    def _add_standing(self, block: FeatureBlock, places: list[SumPlace], tiles: list[tuple[Value, Value, int]]) -> None:
        """Add a block's products where weights may stand in memory."""
        b, e, kind = self.b, self.element, self.kind
        in_rows, left = kind.stands == "rows", features_left(b, block.operand)
        few = b.compare("sle", self.rows, i64(MOST_IN_ROWS if in_rows else MOST_IN_SQUARES), "few_rows")
        in_place = b.binary("and", few, stands_whole(b, e, kind, left), "in_place")
        if in_rows:
            self._add_block(self._on_stack(block, left, in_place), places, tiles)
            return
        no_rest = b.compare("eq", b.binary("srem", block.features, i64(e.lanes)), i64(0), "no_rest")
        b.either(
            b.binary("and", in_place, no_rest, "in_squares"),
            lambda: self._add_squares(block, places),
            lambda: self._add_block(self._on_stack(block, left, FALSE), places, tiles),
        )

    def _on_stack(self, block: FeatureBlock, left: Value, in_place: Value) -> FeatureBlock:
        """The same block with its weights packed on the stack, if they stand in memory and are not multiplied there. `left`: see
        `features_left`.
        """
        b, e, kind = self.b, self.element, self.kind
        packed_bytes = i64(kind.feature_bytes(e))
        stands = b.compare("ne", left, i64(0), "stands")
        on_stack = b.binary("and", stands, b.binary("xor", in_place, TRUE), "on_stack")
        with b.only_if(on_stack, "pack_block"):
            of_group = left, block.features, packed_bytes, i64(kind.width), i64(0), i64(1), NULL
            if kind.stands == "rows":
                b.call(self.copies.pack_matrix(True), [self.room, block.weights, block.weight_bytes, *of_group])
            else:
                for a, standing in enumerate(self._standing(block)):
                    to = b.at(self.room, a * kind.width * e.panel_row, "i8", "to")
                    b.call(self.copies.pack_matrix(False), [to, *standing, *of_group])
        weights = b.select(on_stack, self.room, block.weights, "weights")
        weight_bytes = b.select(on_stack, packed_bytes, block.weight_bytes, "weight_bytes")
        return block._replace(weights=weights, weight_bytes=weight_bytes, on_stack=on_stack)

    def _standing(self, block: FeatureBlock) -> Iterator[tuple[Value, Value]]:
        """For each sum, where a block of the weights that stand begins, and bytes from row to row."""
        b, kind = self.b, self.kind
        words = b.at(block.operand, len(OPERAND) + 1, I64)
        row_bytes = b.load(I64, words, "row_bytes")
        for a in range(kind.count):
            weight = b.load(PTR, b.at(words, 1 + a, I64), "weight")
            yield b.at(weight, block.feature, self.element.type, "standing"), row_bytes

    def _add_block(self, block: FeatureBlock, places: list[SumPlace], tiles: list[tuple[Value, Value, int]]) -> None:
        """Add its products to the sums of all tiles."""
        b, e = self.b, self.element
        values = [block.first, self.sums.first, *(place.before for place in places)]
        names = ["first", "tile", *("before" for _ in places)]
        cursor = b.load(I64, self.fetches, "cursor")
        for begin, end, height in tiles:
            tile = b.loop("tile", begin, end, height, list(zip(names, values, strict=True)))
            b.store(cursor, self.fetches)  # each tile fetches for its own rows
            first, sums, *befores = tile.values
            here = [SumPlace(*each) for each in zip(self.sums.at(sums), befores, (p.apart for p in places), strict=True)]
            self._tile(block, tile.index, first, height, here)
            steps = [block.row_bytes, i64(e.panel_row), *(place.apart for place in places)]
            following = [b.at(value, b.mul(step, height), "i8") for value, step in zip(tile.values, steps, strict=True)]
            values = b.end(tile, following)

    def _tile(self, block: FeatureBlock, first_row: Value, first: Value, height: int, places: list[SumPlace]) -> None:
        """Add a block's products to the sums of a tile.

        Where at most half of a group's panels have features, the highest tile computes no more than that half.
        """
        b, kind = self.b, self.kind
        tile = Tile(b.add(self.row, first_row, "row"), height, first, self._part_of_next(first_row, height))

        def add(panels: int) -> None:
            vectors = [a * kind.width + k for a in range(kind.count) for k in range(panels)]
            if height == self.tall:
                self._multiply_by_halves(block, tile, places)
            else:
                self._multiply(block, tile, vectors, [places[v] for v in vectors])

        if kind.width > 1 and height == kind.heights[0]:
            needs_all = b.compare("sgt", self.panels, i64(kind.width // 2), "needs_all")
            b.either(needs_all, partial(add, kind.width), partial(add, kind.width // 2), names=("full", "half"))
        else:
            add(kind.width)

    def _part_of_next(self, first_row: Value, height: int) -> tuple[Value, Value] | None:
        """Of what comes after a panel's weights, a tile's part to be fetched: how many bytes further it is, and its lines."""
        if height < self.kind.heights[0] or self.machine.low_tiles:
            return None
        b, e = self.b, self.element
        lines = e.lanes * self.kind.feature_bytes(e) // LINE_BYTES // FETCHING_TILES
        number = b.binary("srem", b.binary("sdiv", first_row, i64(height)), i64(FETCHING_TILES), "number")
        further = b.add(self.coming, b.mul(number, lines * LINE_BYTES), "further")
        return further, b.select(self.fetches_pieces, i64(lines), i64(0), "lines")

    def _add_squares(self, block: FeatureBlock, places: list[SumPlace]) -> None:
        """Add the products of few rows by weights where they stand."""
        b, e, kind, of_places = self.b, self.element, self.kind, iter(places)
        of_block = block.first, block.row_bytes, block.panel_bytes, block.features
        for begin, row_bytes in self._standing(block):
            for k in range(kind.width):
                place, weights = next(of_places), b.at(begin, b.mul(row_bytes, k * e.lanes), "i8", "weights")
                where = place.before, place.apart, place.sum
                b.call(self.squares(), [weights, row_bytes, *of_block, *where, self.rows])

    def _multiply_by_halves(self, block: FeatureBlock, tile: Tile, places: list[SumPlace]) -> None:
        """Add a block's products of all vectors, half of them first; one piece of code for both."""
        b, some = self.b, len(places) // 2
        half = b.loop("half", 0, i64(2), once=True)
        is_first = b.compare("eq", half.index, i64(0), "is_first")
        of_half = [
            SumPlace(*(b.select(is_first, x, y, name) for name, x, y in zip(SumPlace._fields, first, second, strict=True)))
            for first, second in zip(places[:some], places[some:], strict=True)
        ]
        weights = b.at(block.weights, b.mul(half.index, some * self.element.panel_row), "i8", "weights")
        self._multiply(block._replace(weights=weights), tile, list(range(some)), of_half)
        b.end(half)

    def _multiply(self, block: FeatureBlock, tile: Tile, vectors: list[int], places: list[SumPlace]) -> None:
        """Add a block's products of some vectors of its weights."""
        b, e = self.b, self.element
        if tile.height == self.tall or tile.height < self.kind.heights[0]:
            self._fetch_before(places, tile.height)

        def before(k: int) -> Value:
            i, place = k // len(places), places[k % len(places)]
            return b.load(e.vector, b.at(place.before, b.mul(place.apart, i), "i8", "before"), "before", e.panel_row)

        if e.int8:
            sums = int8_sums(b, e, self.machine, block, tile.first, tile.height, vectors, before, *self._ahead(block, tile))
        else:
            sums = (b.fadd(before(k), value) for k, value in enumerate(self._chain(block, tile, vectors)))
        for k, value in enumerate(sums):
            i, place = k // len(places), places[k % len(places)]
            b.store(value, b.at(place.sum, i * e.panel_row, "i8", "sum_at"), e.panel_row)

    def _fetch_before(self, places: list[SumPlace], height: int) -> None:
        """Bring nearer what products are added to. Of few samples it is a line or two for each vector, and no processor guesses
        where the next ones are; the rows of highest tiles follow each other.
        """
        rows = [*range(0, height - 1, LINE_BYTES // self.element.panel_row), height - 1]
        for place in places:
            for i in rows:
                self.b.prefetch(self.b.at(place.before, self.b.mul(place.apart, i), "i8", "before"))

    def _chain(self, block: FeatureBlock, tile: Tile, vectors: list[int]) -> list[Value]:
        """Sums of a block's products in registers: [row][vector].

        While one panel of the rows is multiplied, the next is fetched: panels are far apart, and no processor guesses where.
        """
        b, e, kind, height = self.b, self.element, self.kind, tile.height
        names = [f"sum{v}.{i}" for i in range(height) for v in vectors]
        sums = [(name, const(e.vector, 0.0)) for name in names]
        is_tall = height == self.tall
        ahead, is_far = self._ahead(block, tile)
        begin = [("rows", tile.first), ("weights", block.weights), *sums]
        rows = [b.at(tile.first, b.mul(block.row_bytes, i), "i8", f"row.{i}") for i in range(height if e.pairs else 0)]
        self.factors.round(rows, block.features, block.panel_bytes)
        panel = b.loop("panel", 0, block.features, e.lanes, begin, once=True)
        rows = [panel.values[0]]
        rows += [b.at(rows[0], b.mul(block.row_bytes, i), "i8", f"row.{i}") for i in range(1, height)]
        for row in () if e.pairs else rows:  # a whole block has been rounded
            b.prefetch(b.at(row, block.panel_bytes, "i8", "next"))
        if 2 * height > kind.heights[0] and self.machine.has_caches:
            fetch_some(b, self.fetches, tile.row, height)
        if tile.next_piece:
            further, lines = tile.next_piece
            line = b.loop("line", 0, lines)
            place = b.add(further, b.mul(line.index, LINE_BYTES), "further")
            b.prefetch(b.at(panel.values[1], place, "i8", "next_piece"), level=2)
            b.end(line)
        stop = b.minimum(b.sub(block.features, panel.index), e.lanes, "stop")
        steps = self.factors.of_panel(rows, panel.index, stop)
        step_bytes = b.mul(block.weight_bytes, e.together, "step_bytes")
        carried = list(zip(["weights", *names], panel.values[1:], strict=True))
        aligned = e.bytes if kind.stands == "rows" else e.panel_row

        def step(here: Value, k: Value | int, sums: Sequence[Value], fetches: bool) -> list[Value]:
            """Add the products of one step. Returns where the next one's weights are, and the sums."""
            if fetches:
                fetch_weights(b, e, here, vectors, ahead)
            factors = [partial(self.factors.at, i, k) for i in range(height)]
            weights = [partial(weight_at, b, e, here, v, aligned) for v in vectors]
            return [b.at(here, step_bytes, "i8", "weights"), *add_products(b, self.machine, factors, weights, sums)]

        def one_by_one(fetches: bool) -> list[Value]:
            loop = b.loop("k", 0, steps, 1, carried, once=True)
            return b.end(loop, step(loop.values[0], loop.index, loop.values[1:], fetches))

        def at_once() -> list[Value]:
            following = panel.values[1:]
            for k in range(e.steps(e.lanes)):
                following = step(following[0], k, following[1:], is_tall)
            return following

        fetches = is_tall or is_far is not None
        if self.machine.low_tiles and (is_tall or (height == kind.heights[0] and len(vectors) == kind.count * kind.width)):
            is_whole = b.compare("eq", stop, i64(e.lanes), "is_whole")
            near = is_whole if is_far is None else b.select(is_far, FALSE, is_whole, "is_whole_and_near")
            after = b.either(near, at_once, lambda: one_by_one(fetches))
        elif is_far is not None:
            after = b.either(is_far, lambda: one_by_one(True), lambda: one_by_one(False))
        else:
            after = one_by_one(False)
        return b.end(panel, [b.at(panel.values[0], block.panel_bytes, "i8", "rows"), *after])[2:]

    def _ahead(self, block: FeatureBlock, tile: Tile) -> tuple[Value, Value | None]:
        """How many bytes ahead weights are fetched, and whether they are; None where nothing is fetched for that."""
        b = self.b
        if tile.height == self.tall:
            return b.mul(block.weight_bytes, FEATURES_AHEAD, "ahead"), None
        in_two = self.machine.far_in_two and tile.height <= FEW_ROWS and not self.element.int8
        if not self.machine.processor.fetching or in_two:
            return i64(0), None
        ahead = b.select(b.compare("eq", tile.row, self.row), self.ahead, i64(0), "ahead")  # the others multiply what is near
        if self.kind.stands:
            ahead = b.select(block.on_stack, i64(0), ahead, "ahead")
        return ahead, b.compare("ne", ahead, i64(0), "is_far")
