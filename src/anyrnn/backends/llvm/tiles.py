"""Emits the products of a strip's rows by a piece of a group's weights, tile by tile:

    for each tile of the rows, the highest that fits first:
        for each operand, for each block of its features:
            sum products in registers, and now and then fetch some of what the pointwise work will touch
            add the sums to the first values (biases, or what was hoisted) or to the sums of the blocks before

It is one function for all kernels of a program whose tiles are alike: product loops are most of a kernel's code, and so of the
time to compile it.

Sums are made in blocks because rounding errors of one long chain of additions grow with its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from anyrnn.backends.llvm.builder import I64, PTR, Function, Module, Value, const, i64
from anyrnn.backends.llvm.emitter import Element, add_products, cover
from anyrnn.backends.llvm.fetch import fetch_some
from anyrnn.backends.llvm.squares import SQUARES
from anyrnn.backends.llvm.target import Machine

OPERAND = ("address", "weights", "depth", "row_bytes", "panel_bytes", "weight_bytes")
"""The words of an operand: weight_bytes are from feature to feature in its weights. Behind them, where weights may be read in
squares, the address of each weight (the first is 0 where they are packed) and bytes from row to row there.
"""
BLOCK_FEATURES = 64
"""Features of an operand whose products are summed in one chain; a multiple of every vector's lanes."""
STRIP_ROWS = 48
"""Of a strip at the most, in whole tiles."""
FETCHING_TILES = 4
"""If a strip has so many, each fetches its part of the next piece to the second cache: the first one would wait for it."""
LINE_BYTES = 64


def strip_rows(heights: tuple[int, ...]) -> int:
    """Of a strip at the most."""
    return STRIP_ROWS // heights[0] * heights[0]


@dataclass(frozen=True)
class Kind:
    """What tiles have in common that are the same code: which sums products go to, counted from the first of them; how many
    panels each has; how high tiles may be; how weights can be read where they stand, and whether all rows of operands are ours.
    """

    sums: tuple[int, ...]
    width: int
    heights: tuple[int, ...]
    stands: str | None
    ours: bool

    @property
    def count(self) -> int:
        return len(self.sums)

    @property
    def name(self) -> str:
        sums = "_".join(map(str, self.sums))
        more = [f"of_{self.stands}" if self.stands else "", "ours" if self.ours else ""]
        return "_".join(part for part in (f"products_{sums}_by_{self.width}_by_{self.heights[0]}", *more) if part)

    @property
    def words(self) -> int:
        """Of an operand's entry in its table."""
        return len(OPERAND) + (self.count + 1 if self.stands == "squares" else 0)

    @property
    def start_words(self) -> int:
        """Of a sum's entry in the table of first values: how many blocks were added before; for each panel the address of the
        first row's, and bytes from row to row.
        """
        return 1 + 2 * self.width

    def feature_bytes(self, e: Element) -> int:
        """Of the weights of one feature of an operand, in a group."""
        return self.count * self.width * e.panel_row

    def sum_at(self, e: Element, a: int, panel: int, row: int = 0) -> int:
        """How far behind the sums of a tile's first row one of them is: [sum][panel][row of the strip][lane]."""
        return ((self.sums[a] * self.width + panel) * strip_rows(self.heights) + row) * e.panel_row


def operand_word(b: Function, entry: Value, name: str, type: str = I64) -> Value:
    """Of an operand's entry."""
    return b.load(type, b.at(entry, OPERAND.index(name), I64), name)


def following_block(b: Function, kind: Kind, operand: Value, feature: Value) -> list[Value]:
    """The block after one of operands that are alike: the operand's entry and the first feature."""
    feature = b.add(feature, BLOCK_FEATURES, "feature")
    finished = b.compare("sge", feature, operand_word(b, operand, "depth"), "finished")
    operand = b.select(finished, b.at(operand, kind.words, I64), operand, "operand")
    return [operand, b.select(finished, i64(0), feature, "feature")]


class Tiles:
    """The functions of a module that multiply tiles."""

    def __init__(self, module: Module, element: Element, machine: Machine) -> None:
        self.module, self.element, self.machine = module, element, machine
        self.made: set[Kind] = set()

    def function(self, kind: Kind) -> str:
        """`void(ptr operand, i64 feature, i64 begin, i64 end, i64 row, i64 rows, ptr sums, ptr starts, ptr fetches, i64 panels,
        i64 ahead, i64 coming, i64 fetching)`: adds the products of blocks from `begin` up to `end`, the first of which is at an
        operand's entry and a feature, to the sums of a strip of `rows` rows from `row` on. `panels`: of the group; `ahead`: how
        many bytes ahead weights are fetched; `coming`: how many bytes further the weights of the next piece are, and `fetching`
        whether they are fetched. `starts` and `fetches` are tables, see `Kind.start_words` and `fetch`.
        """
        if kind not in self.made:
            self.made.add(kind)
            _Tile(self.module, self.element, self.machine, kind)
        return kind.name


class _Tile:
    """Emits one function."""

    def __init__(self, module: Module, element: Element, machine: Machine, kind: Kind) -> None:
        self.element, self.machine, self.kind = element, machine, kind
        words = [("i64", name) for name in ("feature", "begin", "end", "row", "rows")]
        tables = [("ptr", "sums"), ("ptr readonly", "starts"), ("ptr", "fetches")]
        more = [("i64", name) for name in ("panels", "ahead", "coming", "fetching")]
        b = self.b = module.function(kind.name, [("ptr readonly", "operand"), *words, *tables, *more])
        self.operand, self.feature, self.begin, self.end, self.row, self.rows, *others = b.arguments
        self.sums, self.starts, self.fetches, self.panels, self.ahead, self.coming, fetching = others
        self.fetching = b.compare("ne", fetching, i64(0), "fetching")
        cover(b, self.rows, kind.heights, self.tile)
        b.ret()

    def tile(self, first_row: Value, height: int) -> None:
        """Add the products of operands that are alike to the sums of a tile, one operand after the other, block after block.

        Where at most half of a group's panels have features, the highest tile computes no more than that half.
        """
        b, e, kind = self.b, self.element, self.kind
        row = b.add(self.row, first_row, "row")
        tile = b.at(self.sums, b.mul(first_row, e.panel_row), "i8", "tile")
        starts = self._starts(row)
        block = b.loop("block", self.begin, self.end, 1, [("operand", self.operand), ("feature", self.feature)], once=True)
        operand, feature = block.values
        depth = operand_word(b, operand, "depth")
        row_bytes = i64(e.panel_row) if kind.ours else operand_word(b, operand, "row_bytes")
        panel_bytes = operand_word(b, operand, "panel_bytes")
        panel = b.mul(b.binary("sdiv", feature, i64(e.lanes)), panel_bytes, "panel")
        first = b.at(operand_word(b, operand, "address", PTR), b.add(panel, b.mul(row_bytes, row)), "i8", "first")
        weight_bytes: Value | int = kind.feature_bytes(e)
        if kind.stands == "rows":
            weight_bytes = operand_word(b, operand, "weight_bytes")
        weights = b.at(operand_word(b, operand, "weights", PTR), b.mul(feature, weight_bytes), "i8", "weights")
        features = b.minimum(b.sub(depth, feature), BLOCK_FEATURES, "features")
        before = self._before(block.index, starts, tile)
        next_piece = self._part_of_next(first_row, height)

        def add(panels: int) -> None:
            keys = [(a, i, k) for i in range(height) for a in range(kind.count) for k in range(panels)]
            vectors = [a * kind.width + k for a in range(kind.count) for k in range(panels)]
            names = [f"sum{a}.{i}" for a, i, _ in keys]
            sums = self._chain(first, row_bytes, panel_bytes, weights, weight_bytes, features, vectors, names, row, next_piece)
            for (a, i, k), value in zip(keys, sums, strict=True):
                start, apart = before[a][k]
                total = b.fadd(b.load(e.vector, b.at(start, b.mul(apart, i), "i8", "before"), "before", e.panel_row), value)
                b.store(total, b.at(tile, kind.sum_at(e, a, k, i), "i8", "sum_at"), e.panel_row)

        squares = kind.stands == "squares" and height == 1
        if squares:
            packed, in_squares, both = b.label("packed"), b.label("in_squares"), b.label("added")
            standing = b.load(PTR, b.at(operand, len(OPERAND), I64), "standing")
            b.branch_if(b.compare("eq", standing, Value("null", PTR), "is_packed"), packed, in_squares)
            b.place(in_squares)
            self._add_squares(operand, feature, (first, panel_bytes, features), before, tile)
            b.branch(both)
            b.place(packed)
        if kind.width > 1 and height == kind.heights[0]:
            full, half, done = b.label("full"), b.label("half"), b.label("added")
            b.branch_if(b.compare("sgt", self.panels, i64(kind.width // 2), "needs_all"), full, half)
            for label, panels in ((full, kind.width), (half, kind.width // 2)):
                b.place(label)
                add(panels)
                b.branch(done)
            b.place(done)
        else:
            add(kind.width)
        if squares:
            b.branch(both)
            b.place(both)
        b.end(block, following_block(b, kind, operand, feature))

    def _starts(self, row: Value) -> list[tuple[Value, list[tuple[Value, Value]]]]:
        """Of each sum, how many blocks were added before; and the first value of a row, for each panel: the address and bytes
        from row to row.
        """
        b, kind, found = self.b, self.kind, []
        for a in range(kind.count):
            entry = b.at(self.starts, a * kind.start_words, I64, "entry")
            places = []
            for k in range(kind.width):
                row_bytes = b.load(I64, b.at(entry, 2 + 2 * k, I64), "row_bytes")
                start = b.load(PTR, b.at(entry, 1 + 2 * k, I64), "start")
                places.append((b.at(start, b.mul(row_bytes, row), "i8", "begin"), row_bytes))
            found.append((b.load(I64, entry, "added"), places))
        return found

    def _before(
        self, block: Value, starts: list[tuple[Value, list[tuple[Value, Value]]]], tile: Value
    ) -> list[list[tuple[Value, Value]]]:
        """What a block's products are added to: the first values, or what is in the tile."""
        b, e, kind, found = self.b, self.element, self.kind, []
        for a, (added, places) in enumerate(starts):
            is_first = b.compare("eq", b.add(block, added), i64(0), "is_first")
            in_tile = [b.at(tile, kind.sum_at(e, a, k), "i8", "sum_at") for k in range(kind.width)]
            found.append([
                (
                    b.select(is_first, start, here, "before"),
                    b.select(is_first, row_bytes, i64(e.panel_row), "apart"),
                )
                for here, (start, row_bytes) in zip(in_tile, places, strict=True)
            ])  # fmt: skip
        return found

    def _part_of_next(self, first_row: Value, height: int) -> tuple[Value, Value] | None:
        """Of what comes after a panel's weights, a tile's part to be fetched: how many bytes further it is, and its lines."""
        if height < self.kind.heights[0] or self.machine.low_tiles:
            return None
        b, e = self.b, self.element
        lines = e.lanes * self.kind.feature_bytes(e) // LINE_BYTES // FETCHING_TILES
        number = b.binary("srem", b.binary("sdiv", first_row, i64(height)), i64(FETCHING_TILES), "number")
        further = b.add(self.coming, b.mul(number, lines * LINE_BYTES), "further")
        return further, b.select(self.fetching, i64(lines), i64(0), "lines")

    def _add_squares(
        self,
        operand: Value,
        feature: Value,
        factors: tuple[Value, Value, Value],
        before: list[list[tuple[Value, Value]]],
        tile: Value,
    ) -> None:
        """Add some products of one row by weights where they stand."""
        b, e, kind = self.b, self.element, self.kind
        place = b.at(operand, len(OPERAND), I64)
        row_bytes = b.load(I64, b.at(place, kind.count, I64), "weight_bytes")
        for a in range(kind.count):
            here = b.at(b.load(PTR, b.at(place, a, I64), "weight"), feature, e.type)
            for k in range(kind.width):
                rows = b.at(here, b.mul(row_bytes, k * e.lanes), "i8", "rows")
                target = b.at(tile, kind.sum_at(e, a, k), "i8", "sum_at")
                b.call(SQUARES, [rows, row_bytes, *factors, before[a][k][0], target])

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
        b, e, count = self.b, self.element, len(vectors)
        height = len(names) // count
        zeros = [(name, const(e.vector, 0.0)) for name in names]
        ahead = None
        if self.machine.bytes_ahead and height > 1:  # of one row, loads are what takes long
            # the first rows may find weights in no cache, the others multiply what is near
            ahead = b.select(b.compare("eq", first_row, i64(0)), self.ahead, i64(0), "ahead")
        panel = b.loop("panel", 0, features, e.lanes, [("rows", first), ("weights", weights), *zeros], once=True)
        rows = [b.at(panel.values[0], b.mul(row_bytes, i), "i8", f"row.{i}") if i else panel.values[0] for i in range(height)]
        for row in rows:
            b.prefetch(b.at(row, panel_bytes, "i8", "next"))
        if 2 * height > self.kind.heights[0]:
            fetch_some(b, self.fetches, first_row, height)
        if next_piece:
            further, lines = next_piece
            line = b.loop("line", 0, lines)
            place = b.add(further, b.mul(line.index, LINE_BYTES), "further")
            b.prefetch(b.at(panel.values[1], place, "i8", "next_piece"), level=2)
            b.end(line)
        stop = b.minimum(b.sub(features, panel.index), e.lanes, "stop")
        carried = list(zip(["weights", *names], panel.values[1:], strict=True))
        aligned = e.panel_row if isinstance(weight_bytes, int) else e.bytes

        def step(here: Value, k: Value | int, sums: Sequence[Value]) -> list[Value]:
            """Add the products of one feature. Returns where the next one's weights are, and the sums."""
            if ahead is not None:
                coming = b.at(here, ahead, "i8", "coming")
                for v in vectors:
                    b.prefetch(b.at(coming, v * e.lanes, e.type))

            def factor(i: int) -> Value:
                return b.splat(b.load(e.type, b.at(rows[i], k, e.type), "factor"), e.lanes, "factor")

            def weight(v: int) -> Value:
                return b.load(e.vector, b.at(here, v * e.lanes, e.type), "weight", aligned)

            factors, weights_here = [partial(factor, i) for i in range(height)], [partial(weight, v) for v in vectors]
            following = add_products(b, self.machine, factors, weights_here, sums)
            return [b.at(here, weight_bytes, "i8", "weights"), *following]

        def one_by_one() -> list[Value]:
            loop = b.loop("k", 0, stop, 1, carried, once=True)
            return b.end(loop, step(loop.values[0], loop.index, loop.values[1:]))

        def at_once() -> list[Value]:
            following = panel.values[1:]
            for k in range(e.lanes):
                following = step(following[0], k, following[1:])
            return following

        if self.machine.low_tiles and height == self.kind.heights[0]:
            after = b.either(b.compare("eq", stop, i64(e.lanes), "is_whole"), at_once, one_by_one)
        else:
            after = one_by_one()
        return b.end(panel, [b.at(panel.values[0], panel_bytes, "i8", "rows"), *after])[2:]
