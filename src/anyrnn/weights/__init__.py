"""Weights between systems: one table of how each lays them out, and what goes through it.

>>> import numpy as np
>>> from anyrnn import weights
>>> kernel, recurrent, bias = np.zeros((3, 20)), np.zeros((5, 20)), np.zeros(20)
>>> arrays = {"kernel": kernel, "recurrent_kernel": recurrent, "bias": bias}
>>> found = weights.convert(arrays, "lstm", source="keras", target="onnx")
>>> {name: array.shape for name, array in found.items()}
{'W': (20, 3), 'R': (20, 5), 'B': (40,)}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anyrnn import cells
from anyrnn.errors import InexactError as InexactError
from anyrnn.trace import Cell
from anyrnn.weights.blocks import Array, ours, read, write
from anyrnn.weights.flat import identity as identity
from anyrnn.weights.flat import initialise as initialise
from anyrnn.weights.flat import orthogonal as orthogonal
from anyrnn.weights.flat import pack as pack
from anyrnn.weights.flat import places as places
from anyrnn.weights.flat import unpack as unpack
from anyrnn.weights.flat import views as views
from anyrnn.weights.table import SYSTEMS, Form

OURS = "anyrnn"

__all__ = [
    "InexactError",
    "cells_of",
    "convert",
    "identity",
    "initialise",
    "orthogonal",
    "pack",
    "places",
    "systems",
    "unpack",
    "views",
]


def systems() -> list[str]:
    """The names of the systems that `convert` knows."""
    return sorted([*SYSTEMS, OURS])


def cells_of(system: str) -> list[str]:
    """The cells that a system has, by our names. Raises: ValueError for an unknown system."""
    _check_system(system)
    return cells.names() if system == OURS else sorted(SYSTEMS[system])


def convert(
    arrays: Mapping[str, Any], cell: Cell | str, *, source: str, target: str, approximate: bool = False
) -> dict[str, Array]:
    """The weights of one layer in one direction, laid out by another system. ONNX's arrays are those of one direction, without
    their first axis; of TensorFlow 1 the LSTM is the one with its `forget_bias` of 1.

    Args:
        arrays: NumPy arrays of one floating-point dtype, or what `numpy.asarray` takes, by the names of the source.
        cell: a cell, or its name: `lstm`, `gru` (reset after the product), `gru_before`, ... Between systems, one of ours.
        source, target: systems, see `systems`. `anyrnn` has torch's parameters, without `_l0`, for every cell.
        approximate: leave out numbers that the target has no place for.

    Returns: new arrays, by the names of the target. Numbers are moved, but for biases that one system has twice and the other
    once: they are added, in the dtype of the arrays. Biases that are left out are zero.

    Raises: ValueError for unknown names, missing arrays, or shapes and dtypes that do not fit; InexactError, a ValueError, when
    the target has no place for numbers that are not zero.
    """
    known = cells.load(cell)
    parameters = {p.name: p for p in known.trace().parameters}
    forms = [ours(parameters) if system == OURS else _form(system, known.name) for system in (source, target)]
    parts, sizes = read(forms[0], arrays, parameters, f"{source} {known.name}")
    return write(forms[1], parts, parameters, sizes, f"{target} {known.name}", approximate)


def _check_system(system: str) -> None:
    if system not in SYSTEMS and system != OURS:
        raise ValueError(f"unknown system {system!r}; known are {', '.join(systems())}")


def _form(system: str, cell: str) -> Form:
    _check_system(system)
    form = SYSTEMS[system].get(cell)
    if form is None:
        raise ValueError(f"{system} has no cell {cell!r}; it has {', '.join(cells_of(system))}")
    return form
