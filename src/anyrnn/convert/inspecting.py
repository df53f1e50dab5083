"""What is in a file, for people."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy.typing as npt

from anyrnn import files
from anyrnn.convert.reading import load
from anyrnn.convert.recurrent import stacks
from anyrnn.ir import show
from anyrnn.runtime.layers import Recurrent
from anyrnn.runtime.network import Network
from anyrnn.runtime.saved import FORMAT

Array = npt.NDArray[Any]
UNITS = ("bytes", "KiB", "MiB", "GiB")


def inspect(source: str | os.PathLike[str]) -> str:
    """The layers of a network in a file, with shapes, equations and sizes; or of other files the arrays, and which recurrent
    layers they are.

    Raises: as `load`.
    """
    path, kind = Path(source), files.kind(source)
    if kind == "onnx":
        return _of_network(path, load(path))
    arrays, metadata, _ = files.load(path)
    if (kind == "safetensors" and FORMAT in metadata) or (kind == "keras" and metadata["config"] is not None):
        try:
            return _of_network(path, load(path))
        except ValueError as error:
            why = [f"no network: {error}"]
    else:
        why = []
    found = [f"{path}: {kind}, {_count(arrays.values())}"]
    found += [f"  {name}  {list(array.shape)} {array.dtype}" for name, array in arrays.items()]
    for stack in stacks(arrays):
        found.append(f"recurrent layer {stack}, {f'cell {stack.cell}' if stack.cell else 'of a cell that is to be named'}")
    return "\n".join([*found, *why])


def _of_network(path: Path, network: Network) -> str:
    lines = [f"{path}: {_count(network.parameters.values())}, {network.dtype}", *repr(network).splitlines()]
    cells = {layer.network.graph: layer for layer in network.layers if isinstance(layer, Recurrent)}
    for graph, layer in cells.items():
        lines += ["", f"cell {graph.name} ({_sizes(layer)})"]
        lines += [f"  {line}" for line in show.text(graph).splitlines()]
    return "\n".join(lines)


def _sizes(layer: Recurrent) -> str:
    network = layer.network
    more = [f"{network.layers} layers"] if network.layers > 1 else []
    more += ["the last step alone"] if layer.last else []
    more += [f"{name} {value:g}" for name, value in network.hypers]
    more += ["both directions"] if network.bidirectional else ["backwards"] if network.reverse else []
    return ", ".join([*(f"{name} {size}" for name, size in network.sizes), *more])


def _count(arrays: Iterable[Array]) -> str:
    listed = list(arrays)
    size = float(sum(array.nbytes for array in listed))
    unit = 0
    while size >= 1024 and unit < len(UNITS) - 1:
        size, unit = size / 1024, unit + 1
    numbers = sum(array.size for array in listed)
    return f"{numbers:,} numbers in {len(listed)} arrays, {size:.4g} {UNITS[unit]}"
