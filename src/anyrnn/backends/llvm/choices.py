"""Emits random choices: masks of which features are kept, for a vector of a row.

Those of each step are drawn where they are used. Those that are the same in all steps are drawn once for each sample, into a
table [rows][panels] with a bit for each feature.
"""

from __future__ import annotations

from anyrnn.backends.llvm.block import Layout
from anyrnn.backends.llvm.builder import I64, PTR, Function, Value, i64
from anyrnn.backends.llvm.random import are_kept, keys_of, random_words


def mask_bytes(lanes: int) -> int:
    """Of a vector's mask in the table."""
    return max(1, lanes // 8)


class Choices:
    """Of a function that has the address of an argument block."""

    def __init__(self, b: Function, block: Value, layout: Layout, lanes: int) -> None:
        self.b, self.block, self.layout, self.lanes = b, block, layout, lanes

    def begin(self) -> None:
        """Make what all that is drawn needs, where all of it comes after."""
        self.keys = keys_of(self.b, self.header("seed"), self.lanes)

    def header(self, name: str, type: str = I64) -> Value:
        return self.b.word(self.block, self.layout.header(name), name, type)

    def word(self, choice: str, name: str, type: str = I64) -> Value:
        return self.b.word(self.block, self.layout.choice(choice, name), name, type)

    def place(self, number: Value) -> tuple[Value, Value]:
        """The sample of a row of `places`, and its step."""
        b = self.b
        at = b.at(self.header("places", PTR), b.mul(number, 2), I64, "place")
        return b.load(I64, at, "sample"), b.load(I64, b.at(at, 1, I64), "place_step")

    def drawn(self, choice: str, feature: Value, sample: Value, step: Value) -> Value:
        """The mask of a vector whose first feature is `feature`."""
        b = self.b
        words = random_words(b, self.keys, feature, sample, step, self.word(choice, "stream"), self.lanes)
        return are_kept(b, words, self.word(choice, "threshold"), self.lanes)

    def of_step(self, choice: str, feature: Value, row: Value, t: Value) -> Value:
        """The mask of a row of step t."""
        b = self.b
        before = b.load(I64, b.at(self.header("given", PTR), t, I64), "rows_before")
        sample, first = self.place(b.add(b.mul(before, self.header("rows_apart")), row, "number"))
        step = b.add(first, b.mul(t, self.header("step_sign")), "step")
        return self.drawn(choice, feature, sample, step)

    def of_sample(self, choice: str, feature: Value, row: Value, features: Value) -> Value:
        """The mask of a row in any step, from the table."""
        b, count = self.b, max(8, self.lanes)
        bits = b.load(f"i{count}", self._table_at(choice, feature, row, features), "bits", 1)
        narrow = b.cast("trunc", bits, f"i{self.lanes}", "bits") if self.lanes < count else bits
        return b.cast("bitcast", narrow, f"<{self.lanes} x i1>", "kept")

    def fill(self, choice: str, feature: Value, row: Value, features: Value) -> None:
        """Draw an entry of the table."""
        b = self.b
        mask = self.drawn(choice, feature, self.place(row)[0], i64(0))
        bits = b.cast("bitcast", mask, f"i{self.lanes}", "bits")
        bits = b.cast("zext", bits, "i8", "bits") if self.lanes < 8 else bits
        b.store(bits, self._table_at(choice, feature, row, features), 1)

    def _table_at(self, choice: str, feature: Value, row: Value, features: Value) -> Value:
        b = self.b
        panels = b.binary("sdiv", b.add(features, self.lanes - 1), i64(self.lanes), "panels")
        number = b.add(b.mul(panels, row), b.binary("sdiv", feature, i64(self.lanes)), "number")
        return b.at(self.word(choice, "masks", PTR), b.mul(number, mask_bytes(self.lanes)), "i8", "mask_at")
