"""What is emitted for one thread of a call: the words of its block, its part of the work, and waiting for the others."""

from __future__ import annotations

from anyrnn.backends.llvm.block import Layout
from anyrnn.backends.llvm.builder import I64, PTR, Function, Value, i64
from anyrnn.backends.llvm.element import SUM_ROWS, Element
from anyrnn.ir.dims import Dim


def turned(b: Function, t: Value, turn: Value) -> Value:
    """Whether groups are gone through from the last to the first in step t; `turn` counts the steps of earlier calls."""
    return b.compare("ne", b.binary("and", b.add(t, turn), i64(1), "turn"), i64(0), "turned")


class ThreadCode:
    """Of the function that begins with (block, id, count, barrier).

    `rows` are all samples, `part` is this thread's; it computes those from `row0` up to `row1`: its part, or all where columns
    are split.
    """

    def __init__(self, b: Function, layout: Layout, element: Element, dims: tuple[Dim, ...], row_sums: bool, alone: bool) -> None:
        """`row_sums`: rows are added up before they are summed, and stay together; `alone`: there is one thread, always."""
        self.b, self.layout, self.element = b, layout, element
        self.block, self.id, self.count, self.barrier_state, *_ = b.arguments
        if alone:
            self.id, self.count = i64(0), i64(1)
        self.sizes = {str(dim): self.word(layout.size(str(dim)), "size") for dim in dims}
        self.steps, self.rows, self.chunk = (self.header(name) for name in ("steps", "rows", "chunk"))
        self.columns = self.is_set("columns", "columns")
        self.waiting = b.select(self.columns, self.count, i64(1), "waiting")
        first, last = self.part = self.share_in_fours(self.rows) if row_sums else self.share(self.rows, "rows")
        self.row0 = b.select(self.columns, i64(0), first, "row0")
        self.row1 = b.select(self.columns, self.rows, last, "row1")

    def word(self, index: int, name: str, type: str = I64) -> Value:
        return self.b.word(self.block, index, name, type)

    def header(self, name: str) -> Value:
        return self.word(self.layout.header(name), name)

    def is_set(self, name: str, result: str) -> Value:
        """Whether a word of the header is not zero."""
        return self.b.compare("ne", self.header(name), i64(0), result)

    def pack(self, name: str) -> Value:
        return self.word(self.layout.pack(name), name, PTR)

    def weight(self, name: str) -> tuple[Value, Value]:
        """A weight's address and row distance."""
        index = self.layout.weight(name)
        return self.word(index, name, PTR), self.word(index + 1, f"{name}.row_bytes")

    def size(self, dim: Dim) -> Value:
        return self.sizes[str(dim)]

    def groups(self, dim: Dim, width: int) -> Value:
        span = width * self.element.lanes
        return self.b.ceil_div(self.size(dim), span, "groups")

    def share(self, count: Value, name: str, id: Value | None = None) -> tuple[Value, Value]:
        """A thread's part of `count` things, by default this one's."""
        b, id = self.b, self.id if id is None else id
        first = b.binary("sdiv", b.mul(count, id), self.count, f"{name}.from")
        return first, b.binary("sdiv", b.mul(count, b.add(id, 1)), self.count, f"{name}.to")

    def turned(self, t: Value) -> Value:
        """Whether kernels go through their groups from the last to the first in step t."""
        return turned(self.b, t, self.header("turn"))

    def by_step(self, table: str, t: Value) -> Value:
        """A word of one of the tables by step, see `extent`."""
        return self.b.load(I64, self.b.at(self.word(self.layout.header(table), table, PTR), t, I64), table)

    def own(self, first: Value, last: Value) -> tuple[Value, Value]:
        """Of some rows those that this thread computes: the first of them, and how many."""
        b = self.b
        begin = b.maximum(first, self.row0, "own_from")
        return begin, b.maximum(b.sub(b.minimum(last, self.row1), begin), 0, "own_rows")

    def part_of(self, first: Value, last: Value) -> tuple[Value, Value]:
        """Of some rows this thread's part: from and up to."""
        return self.b.maximum(first, self.part[0], "from"), self.b.minimum(last, self.part[1], "to")

    def share_in_fours(self, rows: Value) -> tuple[Value, Value]:
        """This thread's part of some rows, from and up to, such that rows that are added up stay together."""
        b = self.b
        sums = b.ceil_div(rows, SUM_ROWS, "sums")
        first, last = (b.minimum(b.mul(part, SUM_ROWS), rows, "part") for part in self.share(sums, "sums"))
        return first, last

    def barrier(self) -> None:
        self.b.call("barrier", [self.barrier_state, self.count])

    def stage_barrier(self) -> None:
        """Only where columns are split: with one participant the barrier returns at once."""
        self.b.call("barrier", [self.barrier_state, self.waiting])
