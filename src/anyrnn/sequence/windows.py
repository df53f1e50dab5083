"""Which steps of a sequence a training call keeps for its backward pass, within a budget of bytes.

A window is some whole chunks of steps, and the last windows are kept. Of all others only the states before them are, and the
backward pass computes the rest again, into memory that they share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anyrnn.errors import UnsupportedError
from anyrnn.sequence.network import Network


@dataclass(frozen=True)
class Windows:
    """So many windows of so many steps, and how many of them are kept."""

    steps: int
    count: int
    kept: int

    @property
    def areas(self) -> int:
        """One for all that are done again, and one for each that is kept."""
        return 1 + self.kept

    def again(self, window: int) -> bool:
        """Whether the backward pass has to do it again."""
        return window < self.count - self.kept

    def area(self, window: int) -> int:
        return max(0, window - (self.count - self.kept) + 1)

    def share_again(self, steps: int) -> float:
        """The share of so many steps that the backward pass computes again."""
        return min(1.0, (self.count - self.kept) * self.steps / steps)


def choose_windows(
    network: Network, steps: int, rows: int, chunk: int, budget: int, bytes_of: Callable[[Windows | None], int]
) -> Windows | None:
    """The windows with which the least is computed again; None where everything fits.

    Args:
        steps, rows, chunk: of the call, and the steps of a chunk.
        bytes_of: what the call keeps with some windows, or without any.

    Raises: UnsupportedError where the budget is less than what no window can do without.
    """
    least = [bytes_of(None)]
    if least[0] <= budget:
        return None
    chunks, best, most_kept = -(-steps // chunk), None, -1
    for together in (2**k for k in range(chunks.bit_length())):
        length, count = together * chunk, -(-chunks // together)
        without, one = (bytes_of(Windows(length, count, kept)) for kept in (0, 1))
        least.append(without)
        kept = min(count - 1, (budget - without) // max(1, one - without))
        while kept > 0 and bytes_of(Windows(length, count, kept)) > budget:  # of several it is not always a multiple
            kept -= 1
        if kept * length > most_kept:
            best, most_kept = Windows(length, count, kept), kept * length
    if best is None:
        call = f"{steps} steps of {rows} samples in {network.layers} layer{'s' * (network.layers > 1)}"
        raise UnsupportedError(f"memory_budget is too small: {call} need at least {min(least)} bytes, and have {budget} of it")
    return best
