"""A network to a file of any known format."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn import aot, cells, weights
from anyrnn._files import written_aside
from anyrnn.convert.recurrent import cell_of
from anyrnn.errors import InexactError, MissingExtraError
from anyrnn.files import mxnet, safetensors
from anyrnn.runtime.layers import Recurrent
from anyrnn.runtime.network import Network

Array = npt.NDArray[Any]
Path_ = str | os.PathLike[str]


def save(
    network: Network,
    target: Path_,
    *,
    system: str | None = None,
    layer: str | None = None,
    approximate: bool = False,
    machine: Mapping[str, Any] | None = None,
) -> tuple[Path, ...]:
    """Write a network to a file: whole, as `.safetensors` with its equations, as `.onnx`, or as `.o` with a header for C; or the
    arrays of one recurrent layer as another system has them, in `.npz`, `.safetensors`, `.params` (MXNet's by default) or `.pt`
    (torch's).

    Args:
        network: a network at run time.
        target: a path; its suffix says which container.
        system: whose arrays are written, one of `anyrnn.weights.systems()`.
        layer: the recurrent layer whose arrays are written, where the network is more than that; a whole network has none.
        approximate: leave out numbers that the system has no place for.
        machine: of object files what `anyrnn.aot.export` is told beside: target, cpu, batch_size, name.

    Returns: the files that were written.

    Raises: OSError; ValueError for suffixes and systems that cannot hold the network; InexactError for numbers that the system
        has no place for; MissingExtraError where a library is needed to write the file.
    """
    path = Path(target)
    suffix = path.suffix.lower()
    whole = {".onnx": "onnx", ".safetensors": weights.OURS} | dict.fromkeys(aot.SUFFIXES)
    if machine and suffix not in aot.SUFFIXES:
        raise ValueError(f"{target}: a machine is for object files, which end in {' or '.join(aot.SUFFIXES)}")
    if layer is not None and suffix in whole and system in (None, whole[suffix]):
        raise ValueError(f"{target}: a network is written whole; a layer's arrays are for a system (--to) or a file of arrays")
    if suffix == ".onnx" and system in (None, "onnx"):
        from anyrnn import onnx

        onnx.export(network, target)
    elif suffix in aot.SUFFIXES and system is None:
        return path, aot.export(network, target, **(machine or {}))
    elif suffix == ".safetensors" and system in (None, weights.OURS):
        network.save(target)
    elif suffix in CONTAINERS:
        by_default, write = CONTAINERS[suffix]
        system = system or by_default
        if system is None:
            raise ValueError(f"{target}: name the system whose arrays are written (--to), one of {', '.join(weights.systems())}")
        write(target, arrays(_chosen(network, layer), system, approximate))
    else:
        known = ", ".join([".onnx", *aot.SUFFIXES, *CONTAINERS])
        raise ValueError(f"{target}: cannot be written{f' for {system}' if system else ''}; what can be are {known}")
    return (path,)


def arrays(layer: Recurrent, system: str, approximate: bool = False) -> dict[str, Array]:
    """A recurrent layer's arrays as another system has them. Raises: ValueError, InexactError."""
    network = layer.network
    if network.merges or network.residual or network.reverse or network.learned_state:
        raise ValueError(f"{layer.name}: {system} has arrays for layers and directions alone, not for what goes on between them")
    cell = cell_of(network.graph, system)
    if cell is None:
        known = ", ".join(weights.cells_of(system))
        told = f"none of {system}'s cells computes what its cell does; they are {known}"
        raise ValueError(f"{layer.name}: {told}; a .safetensors file has any cell")
    usual = cells.load(cell).values({})
    changed = ", ".join(f"{name}={value}" for name, value in network.hypers if value != usual.get(name))
    if changed and not approximate:
        weights.write(system, layer.arrays, cell, network.layers, network.bidirectional)  # which may have more to say
        how = f"name the cell {cell}({changed}) when they are read, and give approximate=True"
        raise InexactError(f"{layer.name}: arrays have no place for {changed}: {how}")
    return weights.write(system, layer.arrays, cell, network.layers, network.bidirectional, approximate=approximate)


def _chosen(network: Network, wanted: str | None) -> Recurrent:
    """The recurrent layer that is wanted; the only layer, where the network is no more than that."""
    found = network.recurrent
    told = ", ".join(found) or "none"
    if wanted is not None:
        if wanted not in found:
            raise ValueError(f"no recurrent layer {wanted!r}; there are: {told}")
        return found[wanted]
    if len(found) != 1 or len(network.layers) > 1:
        raise ValueError(
            f"the network has {len(network.layers)} layers; name the recurrent one whose arrays are written (--layer): {told}"
        )
    return next(iter(found.values()))


# containers


def _npz(path: Path_, found: Mapping[str, Array]) -> None:
    with written_aside(path) as aside, aside.open("wb") as file:
        np.savez(file, **found)  # type: ignore[arg-type]


def _pt(path: Path_, found: Mapping[str, Array]) -> None:
    try:
        import torch
    except ImportError:
        raise MissingExtraError("writing .pt files needs torch: pip install 'anyrnn[torch]'") from None
    with written_aside(path) as aside:
        torch.save({name: torch.from_numpy(np.asarray(array, order="C")) for name, array in found.items()}, aside)


CONTAINERS: dict[str, tuple[str | None, Callable[[Path_, Mapping[str, Array]], None]]] = {
    ".npz": (None, _npz),
    ".safetensors": (None, safetensors.write),
    ".params": ("mxnet", mxnet.write),
    ".pt": ("torch", _pt),
    ".pth": ("torch", _pt),
}
"""Of arrays by name: whose they are unless it is said, and what writes them."""
