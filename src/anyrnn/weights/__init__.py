"""Weights between systems: one table of how each lays them out, and what goes through it.

>>> import numpy as np
>>> from anyrnn import weights
>>> kernel, recurrent, bias = np.zeros((3, 20)), np.zeros((5, 20)), np.zeros(20)
>>> arrays = {"kernel": kernel, "recurrent_kernel": recurrent, "bias": bias}
>>> found = weights.convert(arrays, "lstm", source="keras", target="onnx")
>>> {name: array.shape for name, array in found.items()}
{'W': (20, 3), 'R': (20, 5), 'B': (40,)}

The same as a network, of one layer in one direction:

>>> found = weights.convert(arrays, "lstm", source="keras", target="onnx", layers=1)
>>> {name: array.shape for name, array in found.items()}
{'W': (1, 20, 3), 'R': (1, 20, 5), 'B': (1, 40)}
>>> list(weights.read("keras", arrays, "lstm", layers=1))
['weight_ih_l0', 'weight_hh_l0', 'bias_ih_l0', 'bias_hh_l0']
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyrnn import cells
from anyrnn.errors import InexactError as InexactError
from anyrnn.sequence.packing import check_unmasked
from anyrnn.trace import Cell
from anyrnn.trace.initial import chrono as chrono
from anyrnn.trace.initial import identity as identity
from anyrnn.trace.initial import normal as normal
from anyrnn.trace.initial import orthogonal as orthogonal
from anyrnn.trace.initial import uniform as uniform
from anyrnn.trace.initial import xavier as xavier
from anyrnn.weights import forms
from anyrnn.weights.flat import initialise as initialise
from anyrnn.weights.flat import pack as pack
from anyrnn.weights.flat import places as places
from anyrnn.weights.flat import unpack as unpack
from anyrnn.weights.flat import views as views
from anyrnn.weights.table import NETWORKS, SYSTEMS, Flat, Form
from anyrnn.weights.tree import Array

OURS = "anyrnn"
OF_NETWORKS = ("weight_ih_l0", "weight_hh_l0", "0/", "forward_layer/", "backward_layer/")
"""Begin the names of a network's arrays, which those of a cell never do."""

__all__ = [
    "InexactError",
    "cells_of",
    "chrono",
    "convert",
    "identity",
    "initialise",
    "normal",
    "orthogonal",
    "pack",
    "places",
    "read",
    "systems",
    "uniform",
    "unpack",
    "views",
    "write",
    "xavier",
]


def systems() -> list[str]:
    """The names of the systems that `convert` knows."""
    return sorted([*SYSTEMS, OURS])


def cells_of(system: str) -> list[str]:
    """The cells that a system has, by our names. Raises: ValueError for an unknown system."""
    _check_system(system)
    return cells.names() if system == OURS else sorted(SYSTEMS[system])


def convert(
    arrays: Mapping[str, Any] | Sequence[Any],
    cell: Cell | str,
    *,
    source: str,
    target: str,
    layers: int | None = None,
    bidirectional: bool = False,
    sizes: Mapping[str, int] | None = None,
    forget_bias: float = 1.0,
    approximate: bool = False,
) -> dict[str, Array]:
    """The weights of a cell or a recurrent network, laid out by another system.

    Args:
        arrays: NumPy arrays of one floating-point dtype, or what `numpy.asarray` takes, by the names of the source. A tree of
            dicts and lists is as good: names within it are joined by `/`.
        cell: a cell, or its name: `lstm`, `gru` (reset after the product), `gru_before`, ... Between systems, one of ours.
        source, target: systems, see `systems`. `anyrnn` has torch's names, for every cell.
        layers: of a network, whose arrays are named or stacked as the systems have networks (torch: `weight_ih_l0`). None for a
            cell by itself: the weights of one layer in one direction, without the names or axes of those (`weight_ih`).
        bidirectional: whether each layer of the network has both directions.
        sizes: of the cell: `input`, `hidden`, ... Only flat vectors (cuDNN's, JAX's and MXNet's) need them, all of them.
        forget_bias: what `tf1` adds to the forget gate of an LSTM by itself: the argument of that name of its cells.
        approximate: leave out numbers that the target has no place for.

    Returns: new arrays, by the names of the target. Numbers are moved, but for biases that one system has twice and the other
    once: they are added, in the dtype of the arrays. Biases that a system may do without are left out if the source has none.

    Raises: ValueError for unknown names, missing arrays, or shapes and dtypes that do not fit; TypeError for layers and sizes
    that are no whole numbers; InexactError, a ValueError, when the target has no place for numbers that are not zero.
    """
    known = cells.load(cell)
    of_cell = {system: _form(system, known) for system in (source, target)}
    given, graph, sizes, what = dict(_leaves(arrays)), known.trace(), sizes or {}, f"{source} {known.name}"
    forms.check_sizes(graph, sizes, what)
    suffixes = forms.CELL
    if layers is None and any(name.startswith(OF_NETWORKS) for name in given):
        raise ValueError(f"{what}: these are the arrays of a network: give {_of_network(given)}")
    if layers is not None:
        forms.check_layers(source, graph, given, layers, bidirectional, sizes, what)
        suffixes = forms.suffixes_of(layers, bidirectional)
    elif vectors := [system for system in (source, target) if isinstance(NETWORKS[system], Flat)]:
        raise ValueError(f"{vectors[0]} has one vector for a whole network: give the number of its layers")
    elif bidirectional:
        raise ValueError("bidirectional is said of a network: give the number of its layers too")
    shapes = forms.shapes_of(graph, suffixes)
    if layers is not None:
        of_cell = {system: forms.network_form(system, form, suffixes, shapes) for system, form in of_cell.items()}
    parts, numbers = forms.read(of_cell[source], given, shapes, sizes, what, forget_bias)
    return forms.write(of_cell[target], parts, numbers, f"{target} {known.name}", forget_bias, approximate)


def _of_network(names: Iterable[str]) -> str:
    """The arguments that say what network has arrays of these names."""
    found = [match for name in names if (match := re.search(r"_l(\d{1,4})(_reverse)?$", name))]
    if not found:
        return "layers= (how many it has), and bidirectional=True if it is"
    return f"layers={1 + max(int(match[1]) for match in found)}" + ", bidirectional=True" * any(match[2] for match in found)


def read(
    system: str,
    arrays: Mapping[str, Any] | Sequence[Any],
    cell: Cell | str,
    layers: int | None = None,
    bidirectional: bool = False,
    *,
    sizes: Mapping[str, int] | None = None,
    forget_bias: float = 1.0,
) -> dict[str, Array]:
    """Our parameters from a system's arrays: `convert` with the target `anyrnn`."""
    options: dict[str, Any] = {"layers": layers, "bidirectional": bidirectional, "sizes": sizes, "forget_bias": forget_bias}
    return convert(arrays, cell, source=system, target=OURS, **options)


def write(
    system: str,
    parameters: Mapping[str, Any],
    cell: Cell | str,
    layers: int | None = None,
    bidirectional: bool = False,
    *,
    forget_bias: float = 1.0,
    approximate: bool = False,
) -> dict[str, Array]:
    """A system's arrays from our parameters: `convert` with the source `anyrnn`."""
    options: dict[str, Any] = {"layers": layers, "bidirectional": bidirectional, "forget_bias": forget_bias}
    return convert(parameters, cell, source=OURS, target=system, approximate=approximate, **options)


def _leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Array]]:
    """The arrays of a tree by their names in it. Lists of dicts are branches too; what is None is not there."""
    if isinstance(tree, (list, tuple)) and tree and isinstance(tree[0], Mapping):
        tree = dict(enumerate(tree))
    if isinstance(tree, Mapping):
        for key, child in tree.items():
            yield from _leaves(child, f"{name}/{key}" if name else str(key))
    elif tree is not None:
        check_unmasked(tree, name or "an array")
        yield name, np.asarray(tree)


def _check_system(system: str) -> None:
    if system not in SYSTEMS and system != OURS:
        raise ValueError(f"unknown system {system!r}; known are {', '.join(systems())}")


def _form(system: str, cell: Cell) -> Form:
    _check_system(system)
    if system == OURS:
        return forms.ours(cell.trace())
    form = SYSTEMS[system].get(cell.name)
    if form is None or cells.load(cell.name) is not cell:
        raise ValueError(f"{system} has no cell {cell.name!r}; it has {', '.join(cells_of(system))}")
    return form
