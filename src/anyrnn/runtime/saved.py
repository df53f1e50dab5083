"""Networks in safetensors files: the parameters as arrays, and the layers with their cells' equations in the metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn import files
from anyrnn.errors import UnsupportedError
from anyrnn.files import limits, safetensors, structured
from anyrnn.ir import int8
from anyrnn.ir.serial import BadDataError, Record, graph_from_data, graph_to_data, number_from_data, number_to_data
from anyrnn.runtime.layer import let_nobody_write
from anyrnn.runtime.layers import (
    LAYERS,
    Activation,
    AttentionAverage,
    Dense,
    Embedding,
    Flatten,
    Formula,
    Layer,
    LayerNorm,
    Recurrent,
)
from anyrnn.runtime.network import Input, Network
from anyrnn.runtime.recurrent import OfCells
from anyrnn.sequence.network import Network as Cells
from anyrnn.sequence.network import check_sizes
from anyrnn.sequence.options import BY_FEATURE, first_parameter

Array = npt.NDArray[Any]
FORMAT = "anyrnn.network"
"""The key of the metadata under which a network stands."""
VERSION, WITH_INT8 = 1, 2
"""Of files, and of those with matrices of integers."""
MOST_LAYERS = 1000
SCALES = "_scale"
"""Behind the name of a matrix of integers, that of its blocks' scales; names of parameters end otherwise."""
FEATURES = 1 << 16
"""That a value may have whatever the parameters are."""


def save(network: Network, path: str | os.PathLike[str]) -> None:
    """Write a network to a safetensors file; see `Network.save`."""
    others = [suffix for suffix in files.SUFFIXES if suffix != ".safetensors"]
    if Path(path).suffix.lower() in others:
        raise ValueError(f"{path}: networks are kept in .safetensors files; anyrnn.convert.save writes others")
    arrays: dict[str, Array] = {}
    for layer in network.layers:
        for name, array in layer.arrays.items():
            full = f"{layer.name}.{name}"
            if _in_int8(layer) and array.ndim == 2:
                arrays[full], arrays[full + SCALES] = int8.rounded(array)
            else:
                arrays[full] = array
    safetensors.write(path, arrays, metadata(network))


def metadata(network: Network) -> dict[str, str]:
    """What a safetensors file with a network's parameters has beside them."""
    return {FORMAT: json.dumps(_to_data(network), ensure_ascii=False, allow_nan=False)}


def with_backend(network: Network, backend: str) -> Network:
    """The same network on another backend. Raises: UnsupportedError when it cannot run a layer."""
    return _network(_to_data(network), network.parameters, backend)


def in_float64(network: Network) -> Network:
    """The same network with parameters of float64."""
    wider = {name: array.astype(np.float64) for name, array in network.parameters.items()}
    return _network(_to_data(network), wider, "auto")


def _to_data(network: Network) -> dict[str, Any]:
    if max([len(network.layers), *(layer.network.layers for layer in network.recurrent.values())]) > MOST_LAYERS:
        raise ValueError(f"a network of more than {MOST_LAYERS} layers cannot be kept")
    return {
        "version": WITH_INT8 if network.int8 else VERSION,
        "inputs": [[given.name, given.size or 0] for given in network.inputs],
        "layers": [_layer_to_data(layer) for layer in network.layers],
        "outputs": list(network.outputs),
        "batch_first": network.batch_first,
    }


def load(source: str | os.PathLike[str] | bytes, *, backend: str = "auto") -> Network:
    """The network in a safetensors file that `Network.save` wrote, or the bytes of one. Nothing that the file says is believed
    unchecked, and nothing in it can run but the arithmetic of its cells.

    Args: backend: as of `anyrnn.Recurrent`.

    Raises: OSError; ValueError that says what is wrong where, for files that are damaged or hold something else; UnsupportedError
        when an explicit backend cannot run a layer.
    """
    name = "the bytes" if isinstance(source, bytes) else str(Path(source))
    if not isinstance(source, bytes) and (kind := files.kind(source)) != "safetensors":
        raise ValueError(f"{name}: a file of kind {kind}; `anyrnn convert` makes a network of it where it can")
    arrays, found = safetensors.read(source)
    if FORMAT not in found:
        how = "runtime.Recurrent.of makes a layer of a module with these weights, for the runtime.Network to be saved"
        raise ValueError(f"{name}: a safetensors file without a network of anyrnn; its arrays are {_few(list(arrays))}. {how}")
    try:
        _as_float32(arrays)
        for array in arrays.values():
            let_nobody_write(array)  # so that layers need no copies
        return _network(structured.parsed(f"{FORMAT} of the metadata", found[FORMAT].encode()), arrays, backend)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _as_float32(arrays: dict[str, Array]) -> None:
    """Put what integers stand for in their place."""
    for name in [name for name, array in arrays.items() if array.dtype == np.int8]:
        integers, scales = arrays[name], arrays.pop(name + SCALES, None)
        sides = (*integers.shape[:-1], -(-integers.shape[-1] // int8.BLOCK)) if integers.ndim == 2 else None
        if scales is None or scales.dtype != np.float32 or scales.shape != sides:
            wanted = f"scales {list(sides or ())} of float32" if sides else "two dimensions"
            raise BadDataError(f"array {limits.shown(name)}: integers of shape {list(integers.shape)} should have {wanted}")
        arrays[name] = int8.numbers_of(integers, scales)


def _in_int8(layer: Layer) -> bool:
    return isinstance(layer, OfCells) and layer.runner.int8


def _network(data: Any, arrays: Mapping[str, Array], backend: str) -> Network:
    found = Record(data, "network")
    if found.of("version", int) not in (VERSION, WITH_INT8):
        known = f"{VERSION} and {WITH_INT8}"
        raise BadDataError(f"network.version: this version of anyrnn reads {known}, got {found.data['version']}")
    inputs = [Input(name, size or None) for name, size in found.rows("inputs", (str, int))]
    listed = found.of("layers", list)
    if len(listed) > MOST_LAYERS:
        raise BadDataError(f"network.layers: expected at most {MOST_LAYERS}, got {len(listed)}")
    of_layers: dict[str, dict[str, Array]] = {}
    for full, array in arrays.items():
        layer, dot, name = full.rpartition(".")
        of_layers.setdefault(layer if dot else full, {})[name] = array
    most = max(FEATURES, sum(array.size for array in arrays.values()))
    layers = [_layer(Record(layer, f"network.layers[{i}]"), of_layers, backend, most) for i, layer in enumerate(listed)]
    if of_layers:
        raise BadDataError(f"arrays of no layer: {_few(list(of_layers))}")
    network = Network(inputs, layers, found.texts("outputs"), batch_first=found.of("batch_first", bool))
    widest = max(network.specs, key=lambda name: network.specs[name].size or 0)
    if (network.specs[widest].size or 0) > most:
        raise BadDataError(
            f"network: {widest} has {network.specs[widest].size} features, and all arrays of the file {most} numbers"
        )
    return network


def _few(names: list[str]) -> str:
    shown = [limits.shown(name) for name in names[:5]]
    return ", ".join([*shown, "..."] if len(names) > len(shown) else shown) or "none"


# layers


def _layer_to_data(layer: Layer) -> dict[str, Any]:
    if LAYERS.get(layer.kind) is not type(layer):
        raise ValueError(f"{layer.name}: a {type(layer).__name__} is no layer that files hold; these are {', '.join(LAYERS)}")
    data = {"kind": layer.kind, "name": layer.name, "inputs": list(layer.inputs), **layer.settings()}
    if _in_int8(layer):
        data["int8"] = True
    if isinstance(layer, Recurrent):
        data["last"] = layer.last
    return data | _cells_to_data(layer) if isinstance(layer, (Recurrent, Formula)) else data


def _layer(found: Record, of_layers: dict[str, dict[str, Array]], backend: str, most: int) -> Layer:
    """`of_layers` are the arrays of layers, of which this one's are taken; `most` numbers may be in one vector."""
    kind, name, inputs = found.text("kind"), found.text("name"), found.texts("inputs")
    if kind not in LAYERS:
        raise BadDataError(f"{found.where}: unknown kind of layer {limits.shown(kind)}; known are {', '.join(LAYERS)}")
    limits.check_name(found.where, name)
    arrays = of_layers.pop(name, {})

    def taken(*names: str, may_lack: tuple[str, ...] = ()) -> list[Any]:
        if not {*names} - {*may_lack} <= arrays.keys() <= {*names}:
            raise BadDataError(f"{found.where}: arrays should be {', '.join(names) or 'none'}, got {_few(list(arrays))}")
        return [arrays.get(n) for n in names]

    rounds = found.of("int8", bool, False)
    if kind == Recurrent.kind:
        network = _cells(found, most)
        return _rounding(Recurrent(name, inputs, network, arrays, last=found.of("last", bool, False), backend=backend), rounds)
    if kind == Formula.kind:
        return _rounding(Formula(name, inputs, _cells(found, most), arrays, backend=backend), rounds)
    if kind == Dense.kind:
        return _rounding(Dense(name, inputs, *taken("weight", "bias", may_lack=("bias",)), backend=backend), rounds)
    if kind == Embedding.kind:
        return Embedding(name, inputs, *taken("weight"))
    if kind == LayerNorm.kind:
        return LayerNorm(name, inputs, *taken("weight", "bias", may_lack=("weight", "bias")), epsilon=found.of("epsilon", float))
    if kind == AttentionAverage.kind:
        return AttentionAverage(name, inputs, *taken("weight"), epsilon=found.of("epsilon", float))
    if kind == Flatten.kind:
        taken()
        return Flatten(name, inputs, found.of("steps", int))
    taken()
    return Activation(name, inputs, found.text("function")) if kind == Activation.kind else LAYERS[kind](name, inputs)


def _rounding(layer: OfCells, rounds: bool) -> OfCells:
    """With products of int8, where there are kernels for that."""
    can = layer.runner.backend_name == "llvm" and layer.runner.dtype == np.float32
    return layer.in_int8() if rounds and can else layer


def _cells_to_data(layer: Recurrent | Formula) -> dict[str, Any]:
    network = _without_chances(layer.network)
    return {
        "cell": graph_to_data(network.graph),
        "sizes": dict(network.sizes),
        "hypers": {name: number_to_data(value) for name, value in network.hypers},
        "layers": network.layers,
        "bidirectional": network.bidirectional,
        "reverse": network.reverse,
        "learned_state": network.learned_state,
        "merge": network.merge,
        "residual": network.residual,
    }


def _without_chances(network: Cells) -> Cells:
    """The same with its probabilities, which calls that do not train compute with, as hyper-parameters."""
    chances = tuple((name, of_layers[0]) for name, of_layers in network.probabilities)
    nodes = tuple(replace(node, op="hyper") if node.op == "probability" else node for node in network.graph.nodes)
    hypers = (*network.graph.hypers, *(name for name, _ in chances))
    return replace(
        network, graph=replace(network.graph, nodes=nodes, hypers=hypers), hypers=(*network.hypers, *chances), probabilities=()
    )


def _cells(found: Record, most: int) -> Cells:
    """The network of a recurrent layer."""
    graph = graph_from_data(found.of("cell", dict))
    sizes, hypers, layers = found.of("sizes", dict), found.of("hypers", dict), found.of("layers", int)
    if sizes.keys() != set(graph.size_names) | {"hidden"} & sizes.keys() or not 1 <= layers <= MOST_LAYERS:
        raise BadDataError(f"{found.where}: expected the sizes {', '.join(graph.size_names)}, and 1 to {MOST_LAYERS} layers")
    for name, size in sizes.items():
        if type(size) is not int or not 1 <= size < 2**31:
            raise BadDataError(f"{found.where}.sizes: {name} should be a number of features, got {limits.shown(size)}")
    where = f"{found.where}.hypers"
    if hypers.keys() != set(graph.hypers):
        raise BadDataError(f"{where}: expected {', '.join(graph.hypers) or 'none'}, got {_few(list(hypers))}")
    merge, both, reverse = found.text("merge"), found.of("bidirectional", bool), found.of("reverse", bool)
    if merge not in ("concat", *(BY_FEATURE if both else ())) or (both and reverse):
        raise BadDataError(f"{found.where}: no layer has merge {limits.shown(merge)}, bidirectional {both} and reverse {reverse}")
    learned, first = found.of("learned_state", bool), {first_parameter(state.name): state.shape for state in graph.states}
    read = {node.attributes[0] for node in graph.nodes if node.op == "parameter"}
    unread = {parameter.name: parameter.shape for parameter in graph.parameters if parameter.name not in read}
    if {name: shape for name, shape in unread.items() if name in first} != (first if learned else {}):
        sides = f"learned_state is {learned}, and the parameters that no equation reads are {_few(list(unread))}"
        raise BadDataError(f"{found.where}: {sides}")
    network = Cells(
        graph,
        tuple(sorted(sizes.items())),
        layers,
        both,
        tuple((name, number_from_data(f"{where}.{name}", hypers[name])) for name in graph.hypers),
        reverse=reverse,
        learned_state=learned,
        merge=merge,
        residual=found.of("residual", bool),
    )
    check_sizes(network)
    for layer in range(min(2, layers)):  # the others have the sizes of the second
        widest = max(dim.evaluate(network.layer_sizes(layer)) for node in graph.nodes for dim in node.shape)
        if widest > most:
            raise BadDataError(f"{found.where}: a value has {widest} features, and all arrays of the file {most} numbers")
    try:
        network.plan  # noqa: B018
    except UnsupportedError as error:
        raise BadDataError(f"{found.where}: {error}") from None
    return network
