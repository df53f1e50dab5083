"""What tiles and kernels say to each other: kinds of tiles, blocks of features, the tables of operands and of first values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from anyrnn.backends.llvm.builder import FALSE, I64, PTR, Function, Value, i64
from anyrnn.backends.llvm.element import Element
from anyrnn.backends.llvm.int8 import block_bytes
from anyrnn.backends.llvm.shapes import TILE_VECTORS
from anyrnn.backends.llvm.target import Machine

OPERAND = ("address", "weights", "depth", "row_bytes", "panel_bytes", "weight_bytes")
"""The words of an operand: weight_bytes are from feature to feature in its weights. Behind them, where weights may stand in
memory, how many of a matrix's features are left from the group's first on (0 where they are packed), and of squares bytes from
row to row and the address of each weight.
"""


@dataclass(frozen=True)
class TileKind:
    """What tiles have in common that are the same code: which sums products go to, counted from the first of them; how many
    panels each has; how high tiles may be, and the rows of a strip; how weights can be read where they stand, and whether all
    rows of operands are ours.
    """

    sums: tuple[int, ...]
    width: int
    heights: tuple[int, ...]
    strip_rows: int
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
        return len(OPERAND) + {None: 0, "rows": 1, "squares": 2 + self.count}[self.stands]

    @property
    def start_words(self) -> int:
        """Of a sum's entry in the table of first values: how many blocks were added before; for each panel the address of the
        first row's, and bytes from row to row.
        """
        return 1 + 2 * self.width

    def tall(self, machine: Machine) -> int:
        """Rows of a tile that is a row higher than the others, or 0: all rows of a strip, multiplied by half of a group's weights
        and then by the other half. Two low tiles would read all weights twice.
        """
        height = self.heights[0] + 1
        there_are = machine.most_rows is None or machine.most_rows >= height
        return height if machine.low_tiles and there_are and self.count * self.width == TILE_VECTORS else 0

    def feature_bytes(self, e: Element) -> int:
        """Of the weights of one feature of an operand, in a group."""
        return self.count * self.width * e.panel_row // e.together

    def sum_at(self, e: Element, a: int, panel: int) -> int:
        """How far behind the sums of a tile's first row one of them is: [sum][panel][row of the strip][lane]."""
        return (self.sums[a] * self.width + panel) * self.strip_rows * e.panel_row


class SumPlace(NamedTuple):
    """Of a vector of sums: where the first row's is, and what its products are added to, with bytes from row to row there."""

    sum: Value
    before: Value
    apart: Value


class FeatureBlock(NamedTuple):
    """What tiles multiply before the next block: some features of an operand, from a feature on, of which a panel (of `int8` a
    block) of the strip's first row stands at `first`, by their weights, which are `weight_bytes` apart. `on_stack`: whether the
    weights have been packed there.
    """

    operand: Value
    feature: Value
    first: Value
    row_bytes: Value
    panel_bytes: Value
    weights: Value
    weight_bytes: Value
    features: Value
    on_stack: Value = FALSE

    @classmethod
    def at(cls, b: Function, e: Element, kind: TileKind, operand: Value, feature: Value, row: Value) -> FeatureBlock:
        """The one at an operand's entry and a feature, for a strip that begins at a row."""
        depth, row_bytes, panel_bytes = (operand_word(b, operand, name) for name in ("depth", "row_bytes", "panel_bytes"))
        row_bytes = i64(e.panel_row) if kind.ours else row_bytes
        if e.int8:
            before = b.mul(b.binary("sdiv", feature, i64(e.block)), block_bytes(e), "before")
        else:
            before = b.mul(b.binary("sdiv", feature, i64(e.lanes)), panel_bytes, "panel")
        first = b.at(operand_word(b, operand, "address", PTR), b.add(before, b.mul(row_bytes, row)), "i8", "first")
        weight_bytes = operand_word(b, operand, "weight_bytes") if kind.stands == "rows" else i64(kind.feature_bytes(e))
        packed = feature
        if e.scale_steps:  # which stands before each block
            packed = b.add(feature, b.mul(b.binary("sdiv", feature, i64(e.block)), e.scale_steps * e.together), "packed")
        weights = b.at(operand_word(b, operand, "weights", PTR), b.mul(packed, weight_bytes), "i8", "weights")
        features = b.minimum(b.sub(depth, feature), e.block, "features")
        return cls(operand, feature, first, row_bytes, panel_bytes, weights, weight_bytes, features)


class StripSums:
    """The sums of a strip: [sum][panel][row][lane] from `first` on, and a table of their first values."""

    def __init__(self, b: Function, e: Element, kind: TileKind, first: Value, starts: Value, row: Value) -> None:
        """The strip begins at a row."""
        self.b, self.e, self.kind, self.first = b, e, kind, first
        self.starts: list[tuple[Value, list[tuple[Value, Value]]]] = []
        """Of each sum, how many blocks were added before; and of each panel the address of the first value of the strip's first
        row, and bytes from row to row.
        """
        for a in range(kind.count):
            entry = b.at(starts, a * kind.start_words, I64, "entry")
            of_panels = []
            for k in range(kind.width):
                row_bytes = b.load(I64, b.at(entry, 2 + 2 * k, I64), "row_bytes")
                start = b.load(PTR, b.at(entry, 1 + 2 * k, I64), "start")
                of_panels.append((b.at(start, b.mul(row_bytes, row), "i8", "begin"), row_bytes))
            self.starts.append((b.load(I64, entry, "added"), of_panels))

    def at(self, first: Value) -> list[Value]:
        """Where the sums of a row are, from the first one's address."""
        kind = self.kind
        offsets = [kind.sum_at(self.e, a, k) for a in range(kind.count) for k in range(kind.width)]
        return [self.b.at(first, offset, "i8", "sum_at") for offset in offsets]

    def places(self, block: Value) -> list[SumPlace]:
        """Of each vector of sums of the strip's first row, where it is, and what the products of a block, by its number, are
        added to: its first value, or what is in the strip.
        """
        b, found, sums = self.b, [], iter(self.at(self.first))
        for added, of_panels in self.starts:
            is_first = b.compare("eq", b.add(block, added), i64(0), "is_first")
            for start, row_bytes in of_panels:
                here = next(sums)
                apart = b.select(is_first, row_bytes, i64(self.e.panel_row), "apart")
                found.append(SumPlace(here, b.select(is_first, start, here, "before"), apart))
        return found


def features_left(b: Function, entry: Value) -> Value:
    """Of a matrix from a group's first on, where weights may stand; 0 where they are packed."""
    return b.load(I64, b.at(entry, len(OPERAND), I64), "features_left")


def stands_whole(b: Function, e: Element, kind: TileKind, left: Value) -> Value:
    """Whether all lanes of a group have a feature."""
    return b.compare("sge", left, i64(kind.width * e.lanes), "stands_whole")


def operand_word(b: Function, entry: Value, name: str, type: str = I64) -> Value:
    """Of an operand's entry."""
    return b.load(type, b.at(entry, OPERAND.index(name), I64), name)


def following_block(
    b: Function, e: Element, kind: TileKind, operand: Value, feature: Value, blocks: Value | int = 1
) -> list[Value]:
    """The block after some of operands that are alike: the operand's entry and the first feature."""
    feature = b.add(feature, b.mul(i64(blocks), e.block), "feature")
    finished = b.compare("sge", feature, operand_word(b, operand, "depth"), "finished")
    operand = b.select(finished, b.at(operand, kind.words, I64), operand, "operand")
    return [operand, b.select(finished, i64(0), feature, "feature")]
