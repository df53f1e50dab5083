"""The numbers of a program, and their vectors."""

from __future__ import annotations

from dataclasses import dataclass

from anyrnn.backends.llvm.builder import vector

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
    pairs: bool = False
    """whether what products multiply is rounded to bfloat16, and two features are multiplied by one instruction, see `factors`"""

    @property
    def together(self) -> int:
        """Features of an operand that are multiplied by one instruction."""
        return 2 if self.pairs else 1

    def steps(self, features: int) -> int:
        """In which a product of so many features is made."""
        return -(-features // self.together)

    @property
    def block(self) -> int:
        """Features of an operand whose products are added in one chain."""
        return BLOCK_STEPS * self.together

    @property
    def vector(self) -> str:
        return vector(self.type, self.lanes)

    @property
    def panel_row(self) -> int:
        """Bytes from row to row of a panel of our own."""
        return self.lanes * self.bytes
