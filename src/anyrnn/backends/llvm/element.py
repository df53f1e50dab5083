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
    products: str = ""
    """what those of this type multiply, if they are of numbers that are rounded to something else: `bfloat16`, see `factors`, or
    `int8`
    """

    @property
    def pairs(self) -> bool:
        """Whether what products multiply is rounded to bfloat16."""
        return self.products == "bfloat16"

    @property
    def int8(self) -> bool:
        """Whether what products multiply is rounded to integers of eight bits."""
        return self.products == "int8"

    @property
    def together(self) -> int:
        """Features of an operand that are multiplied by one instruction."""
        return {"": 1, "bfloat16": 2, "int8": 4}[self.products]

    def steps(self, features: int) -> int:
        """In which a product of so many features is made."""
        return -(-features // self.together)

    @property
    def scale_steps(self) -> int:
        """Steps that stand before each block of packed weights: of `int8` the scales and corrections."""
        return 2 if self.int8 else 0

    def weight_steps(self, features: int) -> int:
        """That the packed weights of so many features take."""
        return self.steps(features) + self.scale_steps * -(-features // self.block)

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
