"""The numbers of a program, and their vectors."""

from __future__ import annotations

from dataclasses import dataclass

from anyrnn.backends.llvm.builder import vector
from anyrnn.ir.int8 import BLOCK

BLOCK_STEPS = 64
"""How many products are added in one chain; features of so many steps are a multiple of every vector's lanes."""
SUM_STEPS, SUM_ROWS = 16, 4
"""The gradient of a vector that no product needs is summed where its terms are made: those of so many steps (a power of two) of
so many samples go to one place. The samples of one place belong to one thread: see `ThreadCode`.
"""


@dataclass(frozen=True)
class Element:
    """The number type of a program and its vectors."""

    type: str
    bytes: int
    lanes: int
    together: int = 1
    """features of an operand that are multiplied by one instruction: two where they are rounded to bfloat16, see `factors`; four
    of eight bits, see `int8`
    """

    @property
    def pairs(self) -> bool:
        """Whether what products multiply is rounded to bfloat16."""
        return self.together == 2

    @property
    def int8(self) -> bool:
        """Whether what products multiply is rounded to integers of eight bits, each block by a scale of its own."""
        return self.together == 4

    def steps(self, features: int) -> int:
        """In which a product of so many features is made."""
        return -(-features // self.together)

    @property
    def header(self) -> int:
        """Steps that stand before each block of packed weights: of `int8` the scales and corrections."""
        return 2 if self.int8 else 0

    def packed_steps(self, features: int) -> int:
        """That the packed weights of so many features take."""
        return self.steps(features) + self.header * -(-features // self.block)

    @property
    def block(self) -> int:
        """Features of an operand whose products are added in one chain."""
        return BLOCK if self.int8 else BLOCK_STEPS * self.together

    @property
    def vector(self) -> str:
        return vector(self.type, self.lanes)

    @property
    def panel_row(self) -> int:
        """Bytes from row to row of a panel of our own."""
        return self.lanes * self.bytes
