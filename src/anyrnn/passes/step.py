"""What goes round in a loop, before it is cut into stages."""

from __future__ import annotations

from dataclasses import dataclass

from anyrnn.ir.graph import Node
from anyrnn.passes.plan import Scan


@dataclass(frozen=True)
class Step:
    """One step of a loop as a graph with loads as leaves.

    `states` are carried (buffer, node of the new value). `outputs` are stored at every step (buffer, role, node).
    `products` are (weight, left, right, heads) and `sums` (weight, value): node indices. With `scans` nothing is carried: what
    they read is made before them, and the states of all steps stand in memory after them.
    """

    nodes: tuple[Node, ...]
    reverse: bool
    states: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, str, int], ...]
    products: tuple[tuple[str, int, int, int], ...] = ()
    sums: tuple[tuple[str, int], ...] = ()
    scans: tuple[Scan, ...] = ()
