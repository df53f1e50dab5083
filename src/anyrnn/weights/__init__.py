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
from functools import lru_cache
from typing import Any

import numpy as np

from anyrnn import cells
from anyrnn.weights.blocks import Array, Gates, read, write
from anyrnn.weights.blocks import InexactError as InexactError
from anyrnn.weights.table import SYSTEMS, Form

OURS = "anyrnn"

__all__ = ["InexactError", "cells_of", "convert", "systems"]


def systems() -> list[str]:
    """The names of the systems that `convert` knows."""
    return sorted([*SYSTEMS, OURS])


def cells_of(system: str) -> list[str]:
    """The cells that a system has, by our names. Raises: ValueError for an unknown system."""
    _check_system(system)
    return cells.names() if system == OURS else sorted(SYSTEMS[system])


def convert(arrays: Mapping[str, Any], cell: str, *, source: str, target: str, approximate: bool = False) -> dict[str, Array]:
    """The weights of one layer in one direction, laid out by another system.

    Args:
        arrays: NumPy arrays, or what `numpy.asarray` takes, by the names of the source.
        cell: by our name, such as `lstm`, `gru` (reset after the product) or `gru_before`.
        source, target: systems, see `systems`. `anyrnn` has torch's parameters, without `_l0`, for every cell.
        approximate: leave out numbers that the target has no place for.

    Returns: new arrays, by the names of the target. Numbers are moved, but for biases that one system has twice and the other
    once: they are added, in the dtype of the arrays.

    Raises: ValueError for unknown names, missing arrays, or shapes that do not fit; InexactError, a ValueError, when the target
    has no place for numbers that are not zero.
    """
    gates = _gates_of(cell)
    if source == OURS:
        parameters = {name: np.asarray(array) for name, array in arrays.items()}
        _check_ours(parameters, cell, gates)
    else:
        parameters = read(_form(source, cell), arrays, gates, f"{source} {cell}")
    return parameters if target == OURS else write(_form(target, cell), parameters, gates, f"{target} {cell}", approximate)


def _check_system(system: str) -> None:
    if system not in SYSTEMS and system != OURS:
        raise ValueError(f"unknown system {system!r}; known are {', '.join(systems())}")


def _check_ours(parameters: Mapping[str, Array], cell: str, gates: Gates) -> None:
    """Biases may be left out. Raises: ValueError."""
    missing = [n for n in gates if n not in parameters and not n.startswith("bias")]
    unknown = [n for n in parameters if n not in gates]
    if missing or unknown:
        told = [f"{n} is missing" for n in missing] + [f"{n} is unknown" for n in unknown]
        raise ValueError(f"anyrnn {cell}: arrays should be {', '.join(gates)}; {', '.join(told)}")


def _form(system: str, cell: str) -> Form:
    _check_system(system)
    form = SYSTEMS[system].get(cell)
    if form is None:
        raise ValueError(f"{system} has no cell {cell!r}; it has {', '.join(cells_of(system))}")
    return form


@lru_cache(maxsize=256)
def _gates_of(cell: str) -> Gates:
    traced = cells.load(cell).trace()
    return {p.name: tuple(name for name, _ in p.gates) or ("",) for p in traced.parameters}
