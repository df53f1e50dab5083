"""Names in generated text: of arguments, and of what is known when it is compiled."""

from __future__ import annotations

import keyword
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

BLOCKS = (
    *("BLOCK_N", "BLOCK_F", "BLOCK_K", "SLICES", "BLOCK_R", "BLOCK_S", "COLUMN_PROGRAMS"),
    *("COMPUTE", "OPERAND", "PRECISION", "PACKED"),
)
"""What is known when a text is compiled."""
INDENT = "    "
SLICED = "tl.arange(0, SLICES)[:, None] * (BLOCK_K // SLICES) + tl.arange(0, BLOCK_K // SLICES)[None, :]"
"""The features of an operand, a slice in each row."""


def identifier(name: str) -> str:
    """A name as Python takes it, and a device's assembler."""
    text = re.sub(r"\W+", "_", name.replace("*", "x"), flags=re.ASCII).strip("_")
    return text if text and not text[0].isdigit() else f"v_{text}"


class Names:
    """Different identifiers for different things: none that is `reserved`, and none that is noted in `apart` by then."""

    def __init__(self, reserved: Iterable[str] = (), apart: Container[str] = ()) -> None:
        self.taken, self.apart = set(reserved), apart
        self.of: dict[object, str] = {}

    def __call__(self, key: object, wanted: str) -> str:
        if key not in self.of:
            name, number = identifier(wanted), 1
            while name in self.taken or name in self.apart:
                number += 1
                name = f"{identifier(wanted)}_{number}"
            self.taken.add(name)
            self.of[key] = name
        return self.of[key]


@dataclass(frozen=True)
class Argument:
    """Of a launch: what it stands for. Kinds: `buffer` (an address; `.step` and `.row` distances go with it), `weight`, `columns`
    (of a matrix), `size`, `first` (a state before the steps; `first_row` and `first_feature` are distances), `last` (room for it
    after them), `stream`, `threshold`, `scale`, `probability`, `scatter` (where programs put what they make for each
    other), `adds` (a constant: whether an output is added to), and those of the call itself, `call`. `local` is no argument of a
    launch, but what its function has: of some weights its part, loaded before the steps; how many programs have to have arrived.
    """

    kind: str
    of: str
    name: str


VARYING = (
    *("first", "count", "chunk_first", "saved_first", "slot_first", "first_slot", "last_slot"),
    *("cotangent_from", "cotangent_to", "begins", "ends", "all_rows"),
)
"""Numbers of a call that differ by how many steps and samples there are: nothing is compiled again for a special one. (But for
`segment_count`: most calls have one segment, and one loop less.)
"""
OF_STATES = ("first", "first_row", "first_feature", "last")
"""Kinds of arguments: where a state stands before the steps, and after them. Special ones compile nothing again either."""
RESERVED = (
    *BLOCKS,
    *VARYING,
    *("tl", "triton", "functions", "step", "row", "rows", "there", "feature", "block", "inside", "k", "k0", "k_there"),
    *("row_block", "column", "segment", "segments", "segment_count", "position", "program", "arrived", "counter", "slots"),
    *("counts", "given", "slot_sign", "seed", "sample", "moment", "sample_table", "step_table", "last_step", "head"),
    *("range", "float", *keyword.kwlist),
)
CALL = ("counts", "given", "chunk_first", "slot_first", "slot_sign")
"""Arguments of the call that every kernel has; others come where they are used."""
LOCAL = ("step", "rows", "row_block", "column")
"""What a kernel's function is given by the one that is launched."""


def unspecialised(arguments: Iterable[Argument]) -> list[str]:
    """The names of those for special values of which nothing is compiled again."""
    return [a.name for a in arguments if a.name in VARYING or a.kind in OF_STATES]


def power_of_two(size: int) -> int:
    """The least that is no smaller."""
    return 1 << max(0, size - 1).bit_length()


def in_turn(tiles: Sequence[str], missing: str) -> str:
    """The columns of several tiles in turn, with `missing` for those that are missing to a power of two."""
    found = [*tiles, *[missing] * (power_of_two(len(tiles)) - len(tiles))]
    while len(found) > 1:
        found = [f"functions.together({a}, {b})" for a, b in zip(found[::2], found[1::2], strict=True)]
    return found[0]


def filled(words: Sequence[str], depth: int) -> list[str]:
    lines, line = [], INDENT * depth
    for word in words:
        if len(line) + len(word) > 120:
            lines.append(line.rstrip())
            line = INDENT * depth
        line += f"{word}, "
    return [*lines, line.rstrip()]
