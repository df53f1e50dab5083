"""Digests that tell whether a run is of the same cell and the same data as another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from anyrnn.trace import Cell


def of_cell(cell: Cell) -> str:
    """Of its equations, with their numbers; hyper-parameters of other kinds show in the equations."""
    graph, values = cell.trace(), cell.values({})
    numbers = {name: values[name] for name in graph.hypers}
    return of_text(f"{graph.identity} {numbers}")


def of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def of_arrays(arrays: Iterable[NDArray[Any] | None]) -> str:
    """Of their shapes, dtypes and numbers."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(b"none" if array is None else f"{array.shape} {array.dtype}".encode() + array.tobytes())
    return found.hexdigest()
