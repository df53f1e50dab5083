"""The numbers of a program, and their vectors."""

from __future__ import annotations

from dataclasses import dataclass

from anyrnn.backends.llvm.builder import vector

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

    @property
    def vector(self) -> str:
        return vector(self.type, self.lanes)

    @property
    def panel_row(self) -> int:
        """Bytes from row to row of a panel of our own."""
        return self.lanes * self.bytes
