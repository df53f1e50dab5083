"""The argument block: one array of 64-bit words through which a native call gets everything.

    header        HEADER's words, in order
    sizes         one word for each size that the program uses
    choices       for each random choice: CHOICE's words, in order
    reads         for each buffer: address, mask of steps, bytes of a unit, from row to row and from panel to panel, table
    packs         the address of each packed weight
    weights       for each weight: address, bytes from row to row; the same of its gradient

The value of a buffer for step t, row n and panel j stands at
`address + table[t & mask] * unit_bytes + n * row_bytes + j * panel_bytes`, a vector of `lanes` features; that holds for the
caller's arrays (features next to each other: panel_bytes = lanes * element) and for our own (a panel holds all rows). The tables
are told of in `extent`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from anyrnn.backends.llvm.builder import I64, PTR, Function, Value

HEADER = (
    "steps",
    "rows",
    "chunk",
    "columns",
    "flat_before",
    "flat_after",
    "hoist",
    "gradients",
    "adds",
    "no_first",
    "block_steps",
    "skip_steps",
    "kept",
    "add_outputs",
    "cotangent_from",
    "cotangent_to",
    "zeros",
    "seed",
    "places",
    "rows_apart",
    "step_sign",
    "turn",
    "shared",
    "shared_chunks",
    "ahead",
    "ahead_few",
    "counts",
    "packed",
    "given",
    "further",
    "further_mask",
)
"""steps, rows: T and N
chunk: steps of a chunk, a power of two
columns: 1 when columns are split over threads, 0 when rows are
flat_before, flat_after: 1 when all rows of a chunk follow each other in the caller's arrays used before (after) the steps
hoist: 1 when input products are made before the steps
gradients: 1 when weight gradients are wanted; adds: 1 when they are added to what is there
no_first: 1 in a backward call when the forward one was given no first states
block_steps: steps of a block of the gradients' sums
skip_steps: 1 when only the gradients' sums are to be made, of what an earlier call left
kept: 0 when weights are to be packed; else they may be left from an earlier call, see `ends.CHECKED` and `TRUSTED`
add_outputs: for each buffer that is the caller's to be written, in their order, a bit: whether it is added to what is there
cotangent_from, cotangent_to: the steps at which the caller's cotangent is read; zeros: the address of what is read at others
seed, places, rows_apart, step_sign: of random choices, for which `places` has the caller's sample and step of each packed
row (rows_apart 1), or each sample and its step at t = 0 (rows_apart 0), from where steps go on by step_sign
turn: a counter to which each native call first adds its steps (one in pieces all of them, with each piece); where turn + t is odd
groups are gone through from the last to the first, see `thread_code.turned`
shared, shared_chunks: 1 when threads help each other in steps, or in what is done for a chunk at once, see `claims`
ahead, ahead_few: how many bytes ahead the first rows of a group fetch its weights, of many rows and of few
counts, packed, given: addresses of tables by step, see `extent`
further: address of a table that says how many rows further than packed each packed row stands in the output and in its
cotangent; further_mask: -1, or 0 where they are packed (or dense), and the table has one word, zero
"""
POSITIONS = {name: k for k, name in enumerate(HEADER)}
CHOICE = ("stream", "threshold", "scale", "probability")
"""Of a random choice. stream: see `ir.philox`; threshold: the random word below which it is the second; scale, probability:
doubles, what features that are kept are multiplied by, and how probable the second is
"""
BUFFER_WORDS = 6
WEIGHT_WORDS = 4


def first_of(state: str) -> str:
    """The name of the caller's array with a state's first value."""
    return f"{state}.first"


def last_of(state: str) -> str:
    return f"{state}.last"


def masks_of(choice: str) -> str:
    """The name of the buffer with the masks of a random choice, see `mask_bits`; no cell's value can have it."""
    return f"masks.{choice}"


@dataclass(frozen=True)
class Layout:
    """Where each word stands."""

    sizes: tuple[str, ...]
    choices: tuple[str, ...]
    buffers: tuple[str, ...]
    packs: tuple[str, ...]
    weights: tuple[str, ...]

    def header(self, name: str) -> int:
        return POSITIONS[name]

    def size(self, name: str) -> int:
        return self._starts[0] + self.sizes.index(name)

    def choice(self, name: str, word: str) -> int:
        return self._starts[1] + len(CHOICE) * self.choices.index(name) + CHOICE.index(word)

    def buffer(self, name: str) -> int:
        return self._starts[2] + BUFFER_WORDS * self.buffers.index(name)

    def pack(self, name: str) -> int:
        return self._starts[3] + self.packs.index(name)

    def weight(self, name: str) -> int:
        return self._starts[4] + WEIGHT_WORDS * self.weights.index(name)

    @property
    def words(self) -> int:
        return self._starts[5]

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """Where each part begins, and the end of the last."""
        choices, buffers = len(CHOICE) * len(self.choices), BUFFER_WORDS * len(self.buffers)
        lengths = (len(HEADER), len(self.sizes), choices, buffers, len(self.packs), WEIGHT_WORDS * len(self.weights))
        return tuple(accumulate(lengths))


def step_at(b: Function, words: Value, step: Value, name: str) -> Value:
    """The address of a step's first row in a buffer, from the buffer's words."""
    address, table = b.word(words, 0, f"{name}.address", PTR), b.word(words, 5, f"{name}.table", PTR)
    mask, unit_bytes = b.word(words, 1, f"{name}.mask"), b.word(words, 2, f"{name}.unit_bytes")
    units = b.load(I64, b.at(table, b.binary("and", step, mask, f"{name}.step"), I64), f"{name}.units")
    return b.at(address, b.mul(units, unit_bytes), "i8", f"{name}.base")
