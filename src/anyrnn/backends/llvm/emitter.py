"""What all kernels need to be emitted: words of the block, addresses, elementwise ops.

Every kernel is `void kernel(ptr block, i64 t, i64 row0, i64 rows, i64 group0, i64 group1)`: it works on `rows` samples from
`row0` on at step t, and on the panel groups from `group0` to `group1`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anyrnn.backends.llvm import math
from anyrnn.backends.llvm.block import Layout, masks_of
from anyrnn.backends.llvm.builder import I64, PTR, Function, Module, Value, const, i64, vector
from anyrnn.backends.llvm.choices import load_mask, mask_at
from anyrnn.backends.llvm.shapes import is_init
from anyrnn.backends.llvm.target import Machine
from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import Node
from anyrnn.ir.ops import TABLE
from anyrnn.ir.philox import kind_of
from anyrnn.passes.plan import Kernel, Program, beyond_kernels

Parameters = Sequence[tuple[str, str]]
PARAMETERS = [
    ("ptr noalias readonly", "block"),
    ("i64", "t"),
    ("i64", "row0"),
    ("i64", "rows"),
    ("i64", "group0"),
    ("i64", "group1"),
]

SUM_STEPS, SUM_ROWS = 16, 4
"""The gradient of a vector that no product needs is summed where its terms are made: those of so many steps (a power of two) of
so many samples go to one place. The samples of one place belong to one thread: see `ThreadCode`.
"""

Spelling = Callable[..., Value]


def _function(emit: Callable[..., Value]) -> Spelling:
    def spelling(b: Function, name: str, *operands: Value) -> Value:
        return emit(b, *operands, name)

    return spelling


SPELLINGS: dict[str, Spelling] = {
    "add": lambda b, name, x, y: b.fadd(x, y, name),
    "sub": lambda b, name, x, y: b.fsub(x, y, name),
    "mul": lambda b, name, x, y: b.fmul(x, y, name),
    "div": lambda b, name, x, y: b.fdiv(x, y, name),
    "neg": lambda b, name, x: b.fneg(x, name),
    "less": lambda b, name, x, y: b.compare("olt", x, y, name),
    "equal": lambda b, name, x, y: b.compare("oeq", x, y, name),
    "where": lambda b, name, test, x, y: b.select(test, x, y, name),
    "norm": lambda b, name, y, a, scale: y,
    "fill": lambda b, name, x: x,
    "stop_gradient": lambda b, name, x: x,
    "clip_gradient": lambda b, name, x, low, high: x,
    **{op: _function(f) for op, f in {**math.FUNCTIONS, "abs": math.absolute}.items() if op in TABLE},
}
"""How LLVM spells each elementwise op; the rest of the table is products, reductions and leaves."""


def unsupported(nodes: Sequence[Node]) -> str | None:
    """Why this backend cannot run some nodes, or None."""
    return beyond_kernels(nodes, SPELLINGS)


Key = tuple[str, int]
"""A buffer, and how many steps later than the kernel's own."""


@dataclass(frozen=True)
class Element:
    """The number type of a program and its vectors."""

    type: str
    bytes: int
    lanes: int

    @property
    def vector(self) -> str:
        return vector(self.type, self.lanes)

    @property
    def panel_row(self) -> int:
        """Bytes from row to row of a panel of our own."""
        return self.lanes * self.bytes


def is_callers(program: Program, buffer: str) -> bool:
    """Whether an array is the caller's: rows of features at any distance, the last panel perhaps not full."""
    return any(b.name == buffer and b.role in ("stream", "cotangent", "output") for b in program.buffers)


class Lanes(NamedTuple):
    """Which lanes of a vector there are: a mask, and whether they are all."""

    mask: Value
    are_all: Value


class Emitter:
    """What both kinds of kernels need: words of the block, addresses, elementwise ops."""

    def __init__(
        self,
        module: Module,
        layout: Layout,
        program: Program,
        element: Element,
        machine: Machine,
        kernel: Kernel,
        more: Parameters = (),
    ) -> None:
        """`more`: further parameters of the function."""
        self.layout = layout
        self.program = program
        self.element = element
        self.machine = machine
        self.kernel = kernel
        self.nodes = kernel.nodes
        self.b = module.function(kernel.name, [*PARAMETERS, *more])
        self.block, self.t, self.row0, self.rows, self.group0, self.group1, *self.further = self.b.arguments
        self.bases: dict[Key, Value] = {}
        self.row_bytes: dict[Key, Value] = {}
        self.panel_bytes: dict[str, Value] = {}
        self.further_at: dict[Key, Value] = {}
        """of arrays whose rows stand anywhere, where it is said of the first row for this call"""
        self.scalars: dict[int, Value] = {}
        self.rows_of_masks = {n.attributes: self._locate_masks(*n.attributes) for n in self.nodes if n.op == "choose"}
        """of random choices, the address of the first row's masks and the bytes from row to row"""
        self.masks: dict[tuple[str, int, str, str], Value] = {}
        """of random choices, by feature and row"""

    def word(self, index: int, name: str) -> Value:
        return self.b.word(self.block, index, name)

    def pointer(self, index: int, name: str) -> Value:
        return self.b.word(self.block, index, name, PTR)

    def size(self, dim: Dim) -> Value:
        return self.word(self.layout.size(str(dim)), str(dim).replace("*", "x").replace(" + ", "_").replace("/", "_over_"))

    def advance(self, pointer: Value, bytes: Value | int, name: str) -> Value:
        return self.b.at(pointer, bytes, "i8", name)

    def locate(self, buffer: str, later: int) -> Value:
        """The address of a buffer's first row for this call (of a sum's first of all), panel zero; also notes its strides."""
        key = (buffer, later)
        if key in self.bases:
            return self.bases[key]
        b, index = self.b, self.layout.buffer(buffer)
        if is_init(buffer) or is_callers(self.program, buffer):
            row_bytes = self.word(index + 3, f"{buffer}.row_bytes")
        else:
            row_bytes = i64(self.element.panel_row if self.in_columns(buffer) else self.element.bytes)
        self.panel_bytes[buffer] = self.word(index + 4, f"{buffer}.panel_bytes")
        step = b.add(self.t, later, "step") if later else self.t
        slot = b.binary("sdiv", step, i64(SUM_STEPS), "block") if self.program.is_sum(buffer) else step
        base = step_at(b, self.b.at(self.block, index, I64, f"{buffer}.words"), slot, buffer)
        if not is_init(buffer) and self.program.buffer(buffer).role == "cotangent":
            given = self.is_given(step)
            base = b.select(given, base, self.pointer(self.layout.header("zeros"), "zeros"), f"{buffer}.base")
            row_bytes = b.select(given, row_bytes, i64(0), f"{buffer}.row_bytes")
        self.row_bytes[key] = row_bytes
        if not is_init(buffer) and self._is_output(buffer):
            rows_before = b.load(I64, b.at(self.pointer(self.layout.header("given"), "given"), step, I64), "rows_before")
            number = b.binary("and", b.add(rows_before, self.row0), self._further_mask(), "number")
            self.further_at[key] = b.at(self.pointer(self.layout.header("further"), "further"), number, I64, "further_at")
        is_sum = self.program.is_sum(buffer)
        self.bases[key] = base if is_sum else self.advance(base, b.mul(row_bytes, self.row0), f"{buffer}.rows")
        return self.bases[key]

    def panel_at(self, key: Key, panel: Value, row: Value) -> Value:
        """The address of a buffer's panel at the tile's first row."""
        b, buffer = self.b, key[0]
        at = self.bases[key]
        if self.in_columns(buffer):
            at = self.advance(at, b.mul(self.panel_bytes[buffer], panel), f"{buffer}.panel")
        if self.program.is_sum(buffer):
            return at
        return self.advance(at, b.mul(self.row_bytes[key], row), f"{buffer}.tile")

    def row_at(self, key: Key, first: Value, row: Value, of_tile: Value) -> Value:
        """The address of a row, `of_tile` rows behind the tile's first, whose address is `first`; of the rows of this call it is
        number `row`.
        """
        if key in self.further_at:
            b = self.b
            word = b.at(self.further_at[key], b.binary("and", row, self._further_mask()), I64, "further_at")
            of_tile = b.add(of_tile, b.load(I64, word, "further"), "row")
        return self.advance(first, self.b.mul(self.row_bytes[key], of_tile), key[0])

    def _is_output(self, buffer: str) -> bool:
        """Whether a buffer is the output or its cotangent, whose rows may stand anywhere. In the other direction a value of the
        cell may have that name.
        """
        role = self.program.buffer(buffer).role
        return role == "cotangent" or (role == "output" and buffer == "y")

    def _further_mask(self) -> Value:
        return self.word(self.layout.header("further_mask"), "further_mask")

    def begins(self, later: int) -> tuple[Value, Value]:
        """Whether a step is the first that is added to a sum, in a loop that goes backwards, and the row from which on it is
        anyway, as rows have no later step.
        """
        b = self.b
        after = b.add(self.t, later + 1, "after")
        begins = b.compare("eq", b.binary("and", after, i64(SUM_STEPS - 1)), i64(0), "begins")
        counts = self.pointer(self.layout.header("counts"), "counts")
        return begins, b.load(I64, b.at(counts, after, I64), "new_from")

    def is_given(self, step: Value) -> Value:
        """Whether the caller gave a cotangent for a step; where not, one row of zeros stands for all samples."""
        b, header = self.b, self.layout.header
        begun = b.compare("sge", step, self.word(header("cotangent_from"), "cotangent_from"), "begun")
        ended = b.compare("slt", step, self.word(header("cotangent_to"), "cotangent_to"), "unended")
        return b.binary("and", begun, ended, "given")

    def in_columns(self, buffer: str) -> bool:
        """Whether a buffer holds vectors rather than one number a row."""
        return is_init(buffer) or self.program.buffer(buffer).dim is not None

    def parameter_scalar(self, i: int) -> Value:
        """A parameter, hyper-parameter or size that is one number."""
        if i not in self.scalars:
            node = self.nodes[i]
            if node.op == "size":
                count = self.size(node.attributes[0])
                self.scalars[i] = self.b.cast("sitofp", count, self.element.type, "features")
            elif node.op in ("scale", "probability"):
                word = self.layout.choice(node.attributes[0], node.op)
                number = self.b.load("double", self.b.at(self.block, word, I64), node.op)
                self.scalars[i] = number if self.element.type == "double" else self.b.cast("fptrunc", number, "float", node.op)
            else:
                address = self.pointer(self.layout.weight(node.attributes[0]), node.attributes[0])
                self.scalars[i] = self.b.load(self.element.type, address, node.attributes[0])
        return self.scalars[i]

    def elementwise(
        self, node: Node, name: str, operands: list[Value], feature: Value | None = None, row: Value | None = None
    ) -> Value:
        """`feature` and `row` say where a vector stands, for random choices."""
        if node.op == "choose":
            assert feature is not None
            assert row is not None
            first, second = operands
            choice, later = node.attributes
            key = (choice, later, str(feature), str(row))
            if key not in self.masks:
                self.masks[key] = self.kept(choice, later, feature, row)
            return self.b.select(self.masks[key], first, second, name)
        return SPELLINGS[node.op](self.b, name, *operands)

    def kept(self, choice: str, later: int, feature: Value, row: Value) -> Value:
        """The mask of a random choice for the features of one vector of a row of this call."""
        b, lanes = self.b, self.element.lanes
        first, row_bytes = self.rows_of_masks[choice, later]
        row = b.add(self.row0, row, "row")
        row = row if kind_of(choice).each_step else self._row_of_step(row)
        return load_mask(b, mask_at(b, self.advance(first, b.mul(row_bytes, row), "masks"), feature, lanes), lanes)

    def _locate_masks(self, choice: str, later: int) -> tuple[Value, Value]:
        words = self.b.at(self.block, self.layout.buffer(masks_of(choice)), I64, "masks.words")
        step = self.b.add(self.t, later, "step") if later else self.t
        return step_at(self.b, words, step, "masks"), self.b.word(words, 3, "masks.row_bytes")

    def _row_of_step(self, row: Value) -> Value:
        """A row of its own step: the rows of a chunk's steps may follow each other. A kernel of the loop never divides."""
        b, rows = self.b, self.word(self.layout.header("rows"), "rows")
        divide, done, entry = b.label("later_step"), b.label("row_of_step"), b.current
        b.branch_if(b.compare("slt", row, rows, "in_step"), done, divide)
        b.place(divide)
        rest = b.binary("srem", row, rows, "rest")
        b.branch(done)
        b.place(done)
        return b.phi(I64, [(row, entry), (rest, divide)], "row")

    def label(self, i: int) -> str:
        return self.nodes[i].name or self.nodes[i].op


def added_to(b: Function, before: Value, value: Value, fresh: Value, name: str) -> Value:
    """`before + value`; where `fresh` is true, what was there counts as zero. Of vectors it has a bit for each lane: with one for
    all, the code generator branches at every vector.
    """
    return b.fadd(b.select(fresh, const(before.type, 0.0), before, "before"), value, name)


def step_at(b: Function, words: Value, step: Value, name: str) -> Value:
    """The address of a step's first row in a buffer, from the buffer's words."""
    address, table = b.word(words, 0, f"{name}.address", PTR), b.word(words, 5, f"{name}.table", PTR)
    mask, unit_bytes = b.word(words, 1, f"{name}.mask"), b.word(words, 2, f"{name}.unit_bytes")
    units = b.load(I64, b.at(table, b.binary("and", step, mask, f"{name}.step"), I64), f"{name}.units")
    return b.at(address, b.mul(units, unit_bytes), "i8", f"{name}.base")


def lanes_left(b: Function, left: Value, lanes: int) -> Lanes:
    """Of a vector at whose first lane `left` features are left."""
    return Lanes(first_lanes(b, left, lanes), b.compare("sge", left, i64(lanes), "are_all"))


def load_lanes(b: Function, e: Element, at: Value, lanes: Lanes, name: str) -> Value:
    """Some lanes, the others zero. A full vector is read without a mask: a load with a mask waits for stores."""
    plain, masked, done = b.label("plain"), b.label("masked"), b.label("loaded")
    b.branch_if(lanes.are_all, plain, masked)
    b.place(plain)
    whole = b.load(e.vector, at, name)
    b.branch(done)
    b.place(masked)
    part = b.masked_load(e.vector, at, lanes.mask, name)
    b.branch(done)
    b.place(done)
    return b.phi(e.vector, [(whole, plain), (part, masked)], name)


def store_lanes(b: Function, value: Value, at: Value, lanes: Lanes) -> None:
    """Write some lanes; a full vector without a mask."""
    plain, masked, done = b.label("plain"), b.label("masked"), b.label("stored")
    b.branch_if(lanes.are_all, plain, masked)
    b.place(plain)
    b.store(value, at)
    b.branch(done)
    b.place(masked)
    b.masked_store(value, at, lanes.mask)
    b.branch(done)
    b.place(done)


def add_products(
    b: Function,
    machine: Machine,
    factors: Sequence[Callable[[], Value]],
    vectors: Sequence[Callable[[], Value]],
    sums: Sequence[Value],
) -> list[Value]:
    """Add every factor (a number in all lanes) times every vector to its sum: [factor][vector]. All vectors are loaded first, and
    one factor at a time, if registers hold them beside the sums; else all factors, and one vector at a time.
    """
    count = len(vectors)
    if len(sums) + count + 1 <= machine.multiplying:
        loaded, added = [load() for load in vectors], []
        for i, load in enumerate(factors):
            factor, before = load(), sums[i * count : (i + 1) * count]
            added += [b.fma(factor, value, total, "sum") for value, total in zip(loaded, before, strict=True)]
        return added
    numbers, columns = [load() for load in factors], []
    for k, load in enumerate(vectors):
        value = load()
        columns.append([b.fma(factor, value, total, "sum") for factor, total in zip(numbers, sums[k::count], strict=True)])
    return [total for row in zip(*columns, strict=True) for total in row]


def covered(b: Function, count: Value, heights: tuple[int, ...]) -> list[tuple[Value, Value, int]]:
    """How tiles cover `count` things: as many of the highest as fit, then lower ones; of each height, from which thing to which.
    The last of the highest and what is left behind it are two of the next height where that is enough, which takes less time.
    """
    first, found = i64(0), []
    for height in heights:
        left = b.sub(count, first, "left")
        tiles = b.binary("sdiv", left, i64(height), "tiles")
        if height == heights[0] and len(heights) > 1:
            rest = b.add(b.binary("srem", left, i64(height)), height, "rest")
            lower = b.binary("and", two_lower(b, rest, heights), b.compare("sgt", tiles, i64(0), "any"), "lower")
            tiles = b.select(lower, b.sub(tiles, 1), tiles, "tiles")
        end = b.add(first, b.mul(tiles, height), "end")
        found.append((first, end, height))
        first = end
    return found


def cover(b: Function, count: Value, heights: tuple[int, ...], emit: Callable[[Value, int], None]) -> None:
    """Cover `count` things by tiles; `emit(first, height)` makes a tile."""
    for first, end, height in covered(b, count, heights):
        loop = b.loop("tile", first, end, height)
        emit(loop.index, height)
        b.end(loop)


def two_lower(b: Function, left: Value, heights: tuple[int, ...]) -> Value:
    """Whether what is left is more than one of the highest tiles, but two of the next height hold it too: a highest tile and a
    low one take longer.
    """
    more = b.compare("sgt", left, i64(heights[0]), "more")
    return b.binary("and", more, b.compare("sle", left, i64(2 * heights[1]), "fits_lower"), "two_lower")


def lane_numbers(lanes: int) -> Value:
    return Value("<" + ", ".join(f"i64 {k}" for k in range(lanes)) + ">", vector(I64, lanes))


def first_lanes(b: Function, count: Value, lanes: int) -> Value:
    """A mask of the first `count` lanes."""
    return b.compare("slt", lane_numbers(lanes), b.splat(count, lanes, "count"), "mask")
