"""What all kernels need to be emitted: words of the block, addresses, elementwise ops.

Every kernel is `void kernel(ptr block, i64 t, i64 row0, i64 rows, i64 group0, i64 group1)`: it works on `rows` samples from
`row0` on at step t, and on the panel groups from `group0` to `group1`.
"""

from __future__ import annotations

from collections.abc import Sequence

from anyrnn.backends.llvm.block import Layout, masks_of, step_at
from anyrnn.backends.llvm.builder import I64, PTR, Module, Value, i64
from anyrnn.backends.llvm.element import SUM_STEPS, Element
from anyrnn.backends.llvm.mask_bits import load_mask, mask_at
from anyrnn.backends.llvm.shapes import is_init
from anyrnn.backends.llvm.spelling import SPELLINGS
from anyrnn.backends.llvm.target import Machine
from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import Node
from anyrnn.ir.philox import kind_of
from anyrnn.passes.plan import Kernel, Program

Parameters = Sequence[tuple[str, str]]
PARAMETERS = [
    ("ptr noalias readonly", "block"),
    ("i64", "t"),
    ("i64", "row0"),
    ("i64", "rows"),
    ("i64", "group0"),
    ("i64", "group1"),
]

Key = tuple[str, int]
"""A buffer, and how many steps later than the kernel's own."""


def is_callers(program: Program, buffer: str) -> bool:
    """Whether an array is the caller's: rows of features at any distance, the last panel perhaps not full."""
    return program.role(buffer) in ("stream", "cotangent", "output")


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
        self.block, self.t, self.row0, self.rows, self.group0, self.group1, *self.more = self.b.arguments
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
