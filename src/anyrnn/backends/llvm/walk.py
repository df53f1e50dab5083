"""Emits the walk over the rows of a chunk, for what sums over them: see `gradients`."""

from __future__ import annotations

from anyrnn.backends.llvm.block import Layout, step_at
from anyrnn.backends.llvm.builder import I64, PTR, Function, Loop, Value, i64
from anyrnn.backends.llvm.element import SUM_STEPS


class Walk:
    """Emits the walk over the rows of a chunk, block by block, latest first."""

    def __init__(self, b: Function, block: Value, layout: Layout, t0: Value, t1: Value) -> None:
        self.b = b
        self.t0, self.t1 = t0, t1
        self.counts, self.packed = (b.word(block, layout.header(table), table, PTR) for table in ("counts", "packed"))
        self.flat = b.compare("ne", b.word(block, layout.header("flat_after"), "flat"), i64(0), "flat")
        self.block_steps = b.word(block, layout.header("block_steps"), "block_steps")
        self.steps = b.word(block, layout.header("steps"), "steps")

    def blocks(self) -> tuple[Loop, Value, Value, Value]:
        """Open the loop over blocks: the loop, the block's first step and its end, and whether it is the very first. Where no
        step is left (t0 is t1) there is one block without rows: where it is the very first, what is summed begins with it.
        """
        b = self.b
        first = b.binary("sdiv", self.t0, self.block_steps, "first_block")
        count = b.sub(b.ceil_div(self.t1, self.block_steps), first, "blocks")
        loop = b.loop("block_of_steps", 0, count, once=True)
        index = b.sub(b.add(first, b.sub(count, 1)), loop.index, "block_index")
        whole = b.mul(index, self.block_steps, "whole_block")
        start = b.maximum(whole, self.t0, "block_start")
        stop = b.minimum(b.add(whole, self.block_steps), self.t1, "block_end")
        newest = b.compare("eq", stop, self.steps, "newest")
        return loop, start, stop, newest

    def added_up(self) -> tuple[Loop, Value, Value]:
        """Open the loop over the blocks of `SUM_STEPS` steps that end in this chunk, going backwards: the loop, the block's slot,
        and whether it is the very first.
        """
        b = self.b
        first, end, last = (b.ceil_div(t, SUM_STEPS, "block") for t in (self.t0, self.t1, self.steps))
        loop = b.loop("block_of_steps", 0, b.sub(end, first, "blocks"))
        slot = b.sub(b.sub(end, 1), loop.index, "block")
        return loop, slot, b.compare("eq", b.add(slot, 1), last, "newest")

    def rows_of(self, start: Value, stop: Value) -> tuple[Value, Value]:
        """How many runs of rows follow each other from a step up to another, and the most rows of a run."""
        b = self.b
        flat_rows = b.sub(self._word(self.packed, stop), self._word(self.packed, start), "rows")
        runs = b.select(self.flat, i64(1), b.sub(stop, start), "runs")
        most = b.select(b.compare("slt", start, stop), self.most(start, stop), i64(0), "most_rows")
        return runs, b.select(self.flat, flat_rows, most, "run_rows")

    def most(self, start: Value, stop: Value) -> Value:
        """The most rows of a step from a step up to another: those of the first or of the last."""
        return self.b.maximum(self._word(self.counts, start), self._word(self.counts, self.b.sub(stop, 1)), "most_rows")

    def part_of_run(self, t: Value, part: Value, most: Value) -> Value:
        """Of a run from step t on, the rows from `part` on, `most` at the most."""
        b = self.b
        return b.select(self.flat, most, b.minimum(b.sub(self._word(self.counts, t), part), most), "rows")

    def _word(self, table: Value, t: Value) -> Value:
        return self.b.load(I64, self.b.at(table, t, I64), "word")


class Source:
    """A buffer's words, loaded once; gives the address of a step's first row."""

    def __init__(self, walk: Walk, words: Value, later: Value | int, fixed_row: int | None, name: str) -> None:
        b = walk.b
        self.b, self.name, self.later = b, name, later
        self.words = words
        self.row_bytes = i64(fixed_row) if fixed_row is not None else b.word(words, 3, f"{name}.row_bytes")
        self.panel_bytes = b.word(words, 4, f"{name}.panel_bytes")

    def at_step(self, t: Value, offset: Value) -> Value:
        b = self.b
        return b.at(step_at(b, self.words, b.add(t, self.later), self.name), offset, "i8", self.name)
