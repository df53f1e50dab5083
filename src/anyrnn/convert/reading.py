"""A network from a file of any known format."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from anyrnn import files, runtime, weights
from anyrnn.convert.recurrent import UNNAMED, Stack, stacks
from anyrnn.files import keras as keras_files
from anyrnn.runtime.network import Input, Network
from anyrnn.runtime.saved import FORMAT, with_backend
from anyrnn.trace import Cell

if TYPE_CHECKING:
    from anyrnn.onnx import Imported

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
        layer: the recurrent layer that is wanted: its prefix, where there are arrays of several or others beside it; a whole
            network, which comes whole, has to have one that is called so.
        layers, bidirectional: of a recurrent layer whose arrays do not tell (all but torch's).
        sizes: of its cell, `{"input": 3, "hidden": 5}`, for flat vectors alone, which do not tell them.
        backend: as of `anyrnn.Recurrent`.

    What a file says itself cannot be told of it.

    Raises: OSError; ValueError that says what is wrong where; MissingExtraError where a library is needed to read the file.
    """
    path, kind = Path(source), files.kind(source)
    told: dict[str, Any] = {"system": system, "cell": cell, "layer": layer, "sizes": sizes}
    told |= {"layers": None if layers == 1 else layers, "bidirectional": bidirectional or None}
    if kind == "onnx":
        _refuse(path, "an ONNX file", told | {"layer": None})
        return _with_layer(path, _of_onnx(path, backend), layer)
    arrays, metadata, _ = files.load(path)
    if kind == "keras" and metadata["config"] is not None:
        from anyrnn.convert import keras

        _refuse(path, "a whole Keras model", told | {"layer": None})
        return _with_layer(path, keras.load(path, backend=backend), layer)
    if kind == "safetensors" and FORMAT in metadata and system in (None, weights.OURS):
        _refuse(path, "a whole network", told | {"system": None, "layer": None})
        return _with_layer(path, runtime.load(path, backend=backend), layer)
    if kind == "mxnet" and any("_unfused" in name for name in arrays):
        system = system or "gluon"
    system = system or OWN_SYSTEM.get(kind) or ("torch" if stacks(arrays) else None)
    if system is None:
        known = ", ".join(weights.systems())
        raise ValueError(f"{path}: whose arrays these are, they do not tell; name the system (--from), one of {known}")
    if system in ("torch", weights.OURS):
        _refuse(path, f"{system}'s arrays", {name: told[name] for name in ("sizes", "layers", "bidirectional")})
        if cell is None and system == weights.OURS:
            raise ValueError(f"{path}: our arrays do not tell their cell; name it (--cell)")
        return _of_stack(chosen(path, arrays, layer), cell, backend)
    if cell is None:
        known = ", ".join(weights.cells_of(system))
        raise ValueError(f"{path}: {system}'s arrays do not tell their cell; name it (--cell), one of {known}")
    found = _of_keras(path, layer) if kind == "keras" else _behind(path, arrays, layer or "")
    try:
        parameters = weights.read(system, found, cell, layers=layers, bidirectional=bidirectional, sizes=sizes)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return _of_stack(stacks(parameters)[0], cell, backend)


def _refuse(path: Path, what: str, told: Mapping[str, Any]) -> None:
    """Raises ValueError for what is told of a file that says it itself."""
    wrong = [name for name, value in told.items() if value is not None]
    if wrong:
        raise ValueError(f"{path} tells by itself how it is made ({what}): leave out {', '.join(wrong)}")


def _with_layer(path: Path, network: Network, wanted: str | None) -> Network:
    """A network that has the recurrent layer that is wanted. Raises: ValueError."""
    if wanted is not None and wanted not in network.recurrent:
        raise ValueError(f"{path}: no recurrent layer {wanted!r}; there are: {', '.join(network.recurrent) or 'none'}")
    return network


def _of_onnx(path: Path, backend: str) -> Network:
    from anyrnn import onnx

    model = onnx.read(path)
    if model.fixed_lengths:
        raise ValueError(f"{path}: its samples have lengths that the model fixes; anyrnn.onnx.read runs it as it is")
    network = model.network
    if model.lengths:
        _check_lengths(path, model)
    if model.batch_first:
        network = Network(network.inputs, network.layers, network.outputs, batch_first=True)
    return network if backend == "auto" else with_backend(network, backend)


def _check_lengths(path: Path, model: Imported) -> None:
    """Refuse a model with lengths of which the network would make something else: it has one set of them, for all of its layers.
    Padding that later layers compute is no step of the network's. Raises: ValueError.
    """
    how = "anyrnn.onnx.read runs it as it is"
    if len(model.lengths) > 1:
        raise ValueError(f"{path}: its layers have lengths of their own ({', '.join(model.lengths)}); {how}")
    network = model.network
    steps = {name for name, spec in network.specs.items() if spec.steps}
    ending = [layer.name for layer in network.layers if layer.name not in steps and steps.intersection(layer.inputs)]
    looking = [layer.name for layer in network.layers if layer.name in ending or layer.name in network.recurrent]
    without = [name for name in looking if name not in model.with_lengths]
    if without:
        raise ValueError(f"{path}: layer {without[0]!r} looks at all steps, whatever the lengths in {model.lengths[0]!r}; {how}")


def _of_keras(path: Path, wanted: str | None) -> dict[str, Array]:
    """The arrays of one layer in a file of Keras's weights, such as `lstm/lstm/kernel:0`, or `lstm/cell/vars/0` of newer ones."""
    found = {name: listed for name, listed in keras_files.read(path).layers.items() if listed}
    if wanted is None and len(found) > 1:
        raise ValueError(f"{path}: name the layer that is wanted (--layer), one of {', '.join(found)}")
    if wanted is not None and wanted not in found:
        raise ValueError(f"{path}: no layer {wanted!r} with arrays; there are {', '.join(found) or 'none'}")
    listed = found[wanted] if wanted is not None else next(iter(found.values()))
    arrays = {_called(name): array for name, array in listed}
    if len(arrays) < len(listed) or any(name.isdigit() for name in arrays):
        raise ValueError(f"{path}: the arrays' names do not tell which they are; save the whole model, or one direction of it")
    return arrays


def _called(name: str) -> str:
    """What Keras calls an array of a layer."""
    numbered = re.fullmatch(r"((?:forward|backward)_layer/)?cell/vars/([012])", name)
    if numbered is None:
        return name.rpartition("/")[2].partition(":")[0]
    return (numbered[1] or "") + ("kernel", "recurrent_kernel", "bias")[int(numbered[2])]


def _behind(path: Path, arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """The arrays whose names begin with a prefix, without it; those of `lstm_1` not with `lstm`, where it has some itself."""
    names = [name for name in arrays if name.startswith(prefix)]
    apart = [name for name in names if name.removeprefix(prefix).startswith((".", "/"))]
    found = {name.removeprefix(prefix).lstrip("./"): arrays[name] for name in apart or names}
    if not found:
        raise ValueError(f"{path}: no array's name begins with {prefix!r}; they are {', '.join(list(arrays)[:10])}")
    return found


def chosen(path: Path, arrays: Mapping[str, Array], wanted: str | None) -> Stack:
    """The recurrent layer that is wanted; the only one, where nothing else is in the file."""
    found = stacks(arrays)
    told = "; ".join(map(str, found)) or "none"
    if wanted is not None:
        chosen = [stack for stack in found if stack.prefix.rstrip(".") == wanted.rstrip(".")]
        chosen = chosen or [stack for stack in found if not stack.prefix and wanted == UNNAMED]
        if not chosen:
            raise ValueError(f"{path}: no recurrent layer {wanted!r}; there are: {told}")
        return chosen[0]
    if not found:
        raise ValueError(f"{path}: no recurrent layer; its arrays are {', '.join(list(arrays)[:10]) or 'none'}")
    own = {found[0].prefix + name for name in found[0].parameters}
    others = [name for name in arrays if name not in own]
    if len(found) > 1 or others:
        more = f" and {len(others)} other arrays ({', '.join(others[:5])})" if len(found) == 1 else ""
        raise ValueError(
            f"{path}: its arrays do not tell how the network goes; name the layer that is wanted (--layer): {told}{more}"
        )
    return found[0]


def _of_stack(stack: Stack, cell: Cell | str | None, backend: str) -> Network:
    name = stack.prefix.rstrip(".") or "rnn"
    given = "x" if name != "x" else "input"
    rnn = stack.made(name, given, cell, backend=backend)
    return Network([Input(given, rnn.network.input_size)], [rnn])
