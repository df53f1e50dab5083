"""A network from a file of any known format."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from anyrnn import files, runtime, weights
from anyrnn.convert.recurrent import Stack, stacks
from anyrnn.runtime.network import Network
from anyrnn.runtime.saved import FORMAT
from anyrnn.trace import Cell

Array = npt.NDArray[Any]
OWN_SYSTEM = {"pt": "torch", "mxnet": "mxnet", "flax": "flax", "keras": "keras"}
"""Whose arrays are in a container, unless said otherwise."""


def load(
    source: str | os.PathLike[str],
    *,
    system: str | None = None,
    cell: Cell | str | None = None,
    layer: str | None = None,
    layers: int = 1,
    bidirectional: bool = False,
    sizes: Mapping[str, int] | None = None,
    backend: str = "auto",
) -> Network:
    """The network in a file: a whole one where the file has its layers, or a single recurrent layer where it has arrays alone.

    Args:
        source: a path.
        system: how the arrays are laid out, one of `anyrnn.weights.systems()`; by default as the container, or the names of the
            arrays, say.
        cell: which cell the arrays are of, where they do not tell.
        layer: the prefix of the recurrent layer that is wanted, where there are several or other arrays beside it.
        layers, bidirectional: of a recurrent layer whose arrays do not tell (all but torch's).
        sizes: of its cell, `{"input": 3, "hidden": 5}`, for flat vectors alone, which do not tell them.
        backend: as of `anyrnn.Recurrent`.

    Raises: OSError; ValueError that says what is wrong where; MissingExtraError where a library is needed to read the file.
    """
    path, kind = Path(source), files.kind(source)
    if kind == "onnx":
        from anyrnn import onnx

        return onnx.read(path).network
    arrays, metadata, _ = files.load(path)
    if kind == "keras" and metadata["config"] is not None:
        from anyrnn.convert import keras

        return keras.load(path, backend=backend)
    if kind == "safetensors" and FORMAT in metadata and system in (None, weights.OURS):
        return runtime.load(path, backend=backend)
    if kind == "mxnet" and any("_unfused" in name for name in arrays):
        system = system or "gluon"
    system = system or OWN_SYSTEM.get(kind) or ("torch" if stacks(arrays) else None)
    if system is None:
        known = ", ".join(weights.systems())
        raise ValueError(f"{path}: whose arrays these are, they do not tell; name the system, one of {known}")
    if system in ("torch", weights.OURS):
        return _of_stack(_chosen(path, arrays, layer), cell, backend)
    if cell is None:
        known = ", ".join(weights.cells_of(system))
        raise ValueError(f"{path}: {system}'s arrays do not tell their cell; name it, one of {known}")
    found = {name: array for name, array in arrays.items() if name.startswith(layer or "")}
    if kind == "keras":  # `lstm/lstm/kernel:0`
        found = {name.rpartition("/")[2].partition(":")[0]: array for name, array in found.items()}
    else:
        found = {name.removeprefix(layer or "").lstrip("./"): array for name, array in found.items()}
    try:
        parameters = weights.read(system, found, cell, layers=layers, bidirectional=bidirectional, sizes=sizes)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return _of_stack(stacks(parameters)[0], cell, backend)


def _chosen(path: Path, arrays: Mapping[str, Array], wanted: str | None) -> Stack:
    """The recurrent layer that is wanted; the only one, where nothing else is in the file."""
    found = stacks(arrays)
    told = "; ".join(map(str, found)) or "none"
    if wanted is not None:
        chosen = [stack for stack in found if stack.prefix.rstrip(".") == wanted.rstrip(".")]
        if not chosen:
            raise ValueError(f"{path}: no recurrent layer {wanted!r}; there are: {told}")
        return chosen[0]
    if not found:
        raise ValueError(f"{path}: no recurrent layer; its arrays are {', '.join(list(arrays)[:10]) or 'none'}")
    others = [name for name in arrays if not name.startswith(found[0].prefix)]
    if len(found) > 1 or others:
        more = f" and {len(others)} other arrays ({', '.join(others[:5])})" if len(found) == 1 else ""
        raise ValueError(f"{path}: its arrays do not tell how the network goes; name the layer that is wanted: {told}{more}")
    return found[0]


def _of_stack(stack: Stack, cell: Cell | str | None, backend: str) -> Network:
    rnn = stack.made(stack.prefix.rstrip(".") or "rnn", "x", cell, backend=backend)
    return Network(rnn.network.input_size, [rnn])
