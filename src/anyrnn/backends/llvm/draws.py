"""Emits the drawing of random choices, of which kernels then read the masks, see `mask_bits`."""

from __future__ import annotations

from collections.abc import Mapping

from anyrnn.backends.llvm.block import masks_of, step_at
from anyrnn.backends.llvm.builder import I64, PTR, Value, i64
from anyrnn.backends.llvm.mask_bits import mask_at, store_mask
from anyrnn.backends.llvm.random import are_kept, keys_of, random_words
from anyrnn.backends.llvm.thread_code import ThreadCode
from anyrnn.ir.dims import Dim
from anyrnn.ir.philox import kind_of


class Draws:
    """What a thread of a call draws, of choices of so many features."""

    def __init__(self, thread: ThreadCode, choices: Mapping[str, Dim], each_step: bool) -> None:
        """Emitted where all drawing comes after. `each_step`: whether those of each step are drawn."""
        self.thread, self.lanes = thread, thread.element.lanes
        self.same = {name: dim for name, dim in choices.items() if not kind_of(name).each_step}
        self.each_step = {name: dim for name, dim in choices.items() if kind_of(name).each_step and each_step}
        if self.same or self.each_step:
            self.keys = keys_of(thread.b, thread.header("seed"), self.lanes)

    def of_samples(self) -> None:
        """This thread's part of the samples."""
        if not self.same:
            return
        b = self.thread.b
        row = b.loop("row", *self.thread.part)
        sample, _ = self._place(row.index)
        for choice, dim in self.same.items():
            self._row(choice, dim, i64(0), row.index, sample, i64(0))
        b.end(row)

    def of_steps(self, t0: Value, t1: Value) -> None:
        """For some steps this thread's rows, or where columns are split all rows of a part of the steps."""
        if not self.each_step:
            return
        thread, b = self.thread, self.thread.b
        first, last = thread.share(b.sub(t1, t0, "steps"), "draw")
        begin = b.select(thread.columns, b.add(t0, first), t0, "draw_from")
        step = b.loop("t", begin, b.select(thread.columns, b.add(t0, last), t1, "draw_to"))
        t = step.index
        before = b.mul(thread.by_step("given", t), thread.header("rows_apart"), "rows_before")
        own, count = thread.own(i64(0), thread.by_step("counts", t))
        row = b.loop("row", own, b.add(own, count))
        sample, at_zero = self._place(b.add(before, row.index, "number"))
        of_sample = b.add(at_zero, b.mul(t, thread.header("step_sign")), "step")
        for choice, dim in self.each_step.items():
            self._row(choice, dim, t, row.index, sample, of_sample)
        b.end(row)
        b.end(step)
        thread.stage_barrier()

    def _place(self, number: Value) -> tuple[Value, Value]:
        """The sample of a row of `places`, and its step."""
        b = self.thread.b
        at = b.at(self.thread.word(self.thread.layout.header("places"), "places", PTR), b.mul(number, 2), I64, "place")
        return b.load(I64, at, "sample"), b.load(I64, b.at(at, 1, I64), "place_step")

    def _row(self, choice: str, dim: Dim, t: Value, row: Value, sample: Value, step: Value) -> None:
        thread, b, lanes = self.thread, self.thread.b, self.lanes
        stream, limit = (thread.word(thread.layout.choice(choice, word), word) for word in ("stream", "threshold"))
        masks = b.at(thread.block, thread.layout.buffer(masks_of(choice)), I64, "masks.words")
        at = b.at(step_at(b, masks, t, "masks"), b.mul(b.word(masks, 3, "masks.row_bytes"), row), "i8", "masks")
        feature = b.loop("feature", 0, thread.size(dim), lanes)
        words = random_words(b, self.keys, feature.index, sample, step, stream, lanes)
        store_mask(b, are_kept(b, words, limit, lanes), mask_at(b, at, feature.index, lanes), lanes)
        b.end(feature)
