"""Emits the products of few rows by two blocks of weights at once, one of them some blocks further on.

Few rows read weights faster than they come from beyond the second cache, and a processor asks for more of them ahead along two
ways than along one. The few sums of a row wait for each other less, too. A block's sums are added up in the order of blocks, as
ever: those of the further ones wait on the stack until the nearer ones are done.
"""

from __future__ import annotations

from collections.abc import Sequence

from anyrnn.backends.llvm.builder import FALSE, PTR, TRUE, Function, Module, Value, const, i64
from anyrnn.backends.llvm.element import Element
from anyrnn.backends.llvm.factors import Factors, add_product, weight_at
from anyrnn.backends.llvm.shapes import TILE_VECTORS
from anyrnn.backends.llvm.target import Machine
from anyrnn.backends.llvm.tile_kinds import FeatureBlock, StripSums, SumPlace, TileKind, features_left, operand_word, stands_whole

FEW_ROWS = 3
"""With more there is too little room for the sums of two blocks, or too much to multiply for reading to matter."""
MOST_APART = 32
"""Blocks: half of 4096 features; of more the rest is multiplied block by block."""


def pays(machine: Machine, kind: TileKind) -> bool:
    """Whether two blocks at once may be quicker. As many sums as a tile has keep a row busy, unless weights come from far, and
    with few registers a row has other tiles.
    """
    return not machine.low_tiles and (has_few_sums(kind) or machine.far_in_two)


def has_few_sums(kind: TileKind) -> bool:
    return kind.count * kind.width < TILE_VECTORS


def is_quicker(b: Function, machine: Machine, kind: TileKind, rows: Value, is_far: Value) -> Value:
    """Whether two blocks at once are quicker for so many rows. Tiles of two load near weights once, and weights that are fetched
    come soon enough.
    """
    near = b.compare("ne", rows, i64(2), "not_two") if has_few_sums(kind) else FALSE
    return b.select(is_far, TRUE if machine.far_in_two else FALSE, near, "quicker")


def function_name(kind: TileKind) -> str:
    return f"{kind.name}_of_few_rows"


def blocks_apart(b: Function, e: Element, kind: TileKind, operand: Value, feature: Value, left: Value) -> Value:
    """How many blocks apart the two are that are multiplied at once from a feature of an operand's entry on, so that twice
    as many are done; 0 for none, as where weights stand and are not read there. `left`: blocks that are to be done, of all
    operands.
    """
    features = b.sub(operand_word(b, operand, "depth"), feature)
    whole = b.minimum(b.binary("sdiv", features, i64(e.block)), left, "whole")
    apart = b.minimum(b.binary("sdiv", whole, i64(2)), MOST_APART, "half")
    can = b.compare("sgt", apart, i64(0), "two_blocks")
    if kind.stands:
        of_matrix = features_left(b, operand)
        readable = b.compare("eq", of_matrix, i64(0), "is_packed")
        if kind.stands == "rows":
            readable = b.binary("or", readable, stands_whole(b, e, kind, of_matrix), "readable")
        can = b.binary("and", can, readable, "two_blocks")
    return b.select(can, apart, i64(0), "apart")


class FewRows:
    """Emits `void(ptr operand, i64 feature, i64 number, i64 apart, i64 row, i64 rows, ptr sums, ptr starts)`: adds the products
    of `2 * apart` blocks, the first of which is at an operand's entry and a feature and has a number, to the sums of a strip of
    at most `FEW_ROWS` rows from `row` on. `starts` is a table, see `TileKind.start_words`.
    """

    def __init__(self, module: Module, element: Element, kind: TileKind) -> None:
        self.e, self.kind = element, kind
        words = [("i64", name) for name in ("feature", "number", "apart", "row", "rows")]
        tables = [("ptr", "sums"), ("ptr readonly", "starts")]
        b = self.b = module.function(function_name(kind), [("ptr readonly", "operand"), *words, *tables])
        operand, feature, number, apart, row, rows, sums, starts = b.arguments
        vectors = MOST_APART * FEW_ROWS * kind.count * kind.width
        self.factors = Factors(b, element, 2 * FEW_ROWS, element.block)
        self.waiting = b.value(PTR, f"alloca [{vectors} x {element.vector}], align {element.panel_row}", "waiting")
        block = FeatureBlock.at(b, element, kind, operand, feature, row)
        self._rows(block, StripSums(b, element, kind, sums, starts, row).places(number), apart, rows)
        b.ret()

    def _rows(self, block: FeatureBlock, places: Sequence[SumPlace], apart: Value, rows: Value, height: int = 1) -> None:
        """Add the products to the sums of so many rows, `height` at least."""
        if height == FEW_ROWS:
            self._add(block, places, apart, height)
            return
        self.b.either(
            self.b.compare("eq", rows, i64(height), "rows_are"),
            lambda: self._add(block, places, apart, height),
            lambda: self._rows(block, places, apart, rows, height + 1),
        )

    def _add(self, block: FeatureBlock, places: Sequence[SumPlace], apart: Value, height: int) -> None:
        """The same of `height` rows."""
        b, e = self.b, self.e
        vectors = [(place, i) for i in range(height) for place in places]
        bytes = len(vectors) * e.panel_row
        begin_at = [b.at(place.before, b.mul(place.apart, i), "i8", "before") for place, i in vectors]
        for at in begin_at:  # loads alone take 1.02 to 1.07 of the time where weights are near
            b.prefetch(at)
        totals = [(f"total{v}", b.load(e.vector, at, "before", e.panel_row)) for v, at in enumerate(begin_at)]
        begin = [("rows", block.first), ("weights", block.weights), ("waiting", self.waiting), *totals]
        pair = b.loop("pair", 0, apart, 1, begin, once=True)
        first, weights, waiting, *before = pair.values
        rows, weights, sums, further = self._chains(block, first, weights, apart, height)
        for v, value in enumerate(further):
            b.store(value, b.at(waiting, v * e.panel_row, "i8", "waits"), e.panel_row)
        after = [b.fadd(total, value, "total") for total, value in zip(before, sums, strict=True)]
        found = b.end(pair, [rows, weights, b.at(waiting, bytes, "i8", "waiting"), *after])[3:]
        totals = [(name, value) for (name, _), value in zip(totals, found, strict=True)]
        wait = b.loop("waits", 0, apart, 1, [("waiting", self.waiting), *totals], once=True)
        waiting, *before = wait.values
        waited = [b.load(e.vector, b.at(waiting, v * e.panel_row, "i8"), "waited", e.panel_row) for v in range(len(before))]
        after = [b.fadd(total, value, "total") for total, value in zip(before, waited, strict=True)]
        found = b.end(wait, [b.at(waiting, bytes, "i8", "waiting"), *after])[1:]
        for (place, i), total in zip(vectors, found, strict=True):
            b.store(total, b.at(place.sum, i * e.panel_row, "i8", "sum_at"), e.panel_row)

    def _chains(
        self, block: FeatureBlock, first: Value, weights: Value, apart: Value, height: int
    ) -> tuple[Value, Value, list[Value], list[Value]]:
        """The products of a block whose first row is at `first`, and of that `apart` blocks further on: where the next one's row
        and weights are, and the sums of both in registers, [row][vector].

        Each row has a place in the weights of its own, though all are the same: so they are loaded as part of each
        multiplication, which takes fewer instructions than to load them once, and over so many a processor looks ahead.
        """
        b, e, count = self.b, self.e, self.kind.count * self.kind.width
        further_row = b.mul(b.mul(block.panel_bytes, e.block // e.lanes), apart, "further_row")
        further_weights = b.mul(b.mul(block.weight_bytes, e.block), apart, "further_weights")
        length = i64(e.block if e.pairs else e.lanes)
        if height == 1 and not e.pairs:  # its panels may follow each other
            follow = b.compare("eq", block.panel_bytes, i64(e.panel_row), "follow")
            length = b.select(follow, i64(e.block), length, "length")
        names = [f"sum{v}.{i}.of_{which}" for which in ("first", "further") for i in range(height) for v in range(count)]
        begin = [*[("weights", weights)] * height, *((name, const(e.vector, 0.0)) for name in names)]
        panel = b.loop("panel", 0, i64(e.block), length, [("rows", first), *begin], once=True)
        rows = [b.at(panel.values[0], b.mul(block.row_bytes, i), "i8", f"row.{i}") for i in range(height)]
        further = [b.at(row, further_row, "i8", "row") for row in rows]
        carried = [(name, value) for (name, _), value in zip(begin, panel.values[1:], strict=True)]
        self.factors.round([*rows, *further], length, block.panel_bytes)
        steps = self.factors.of_panel([*rows, *further], i64(0), length)
        loop = b.loop("k", 0, steps, 1, carried, once=True)
        here, before = loop.values[:height], iter(loop.values[height:])
        aligned = e.bytes if self.kind.stands == "rows" else e.panel_row
        following: list[Value] = []
        for number, distance in enumerate((i64(0), further_weights)):
            for i, place in enumerate(here):
                factor = self.factors.at(number * height + i, loop.index)
                at = b.at(place, distance, "i8", "weights")
                weights_here = (weight_at(b, e, at, v, aligned) for v in range(count))
                following += [add_product(b, factor, weight, next(before)) for weight in weights_here]
        step_bytes = b.mul(block.weight_bytes, e.together, "step_bytes")
        after = b.end(loop, [*(b.at(place, step_bytes, "i8", "weights") for place in here), *following])
        panel_bytes = b.mul(block.panel_bytes, b.binary("sdiv", length, i64(e.lanes)), "panel_bytes")
        next_row, *found = b.end(panel, [b.at(panel.values[0], panel_bytes, "i8", "rows"), *after])
        sums = found[height:]
        return next_row, found[0], sums[: height * count], sums[height * count :]
