"""Keras's files without Keras: `.keras`, `.weights.h5`, and the older `.h5` with and without a model's configuration."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from anyrnn.files import archive, hdf5, limits, structured
from anyrnn.files.content import Array, Content, Source, content

CONFIG, ABOUT, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"

_VARIABLE = re.compile(r"(?:.*/)?vars/\d+")
_LAYERS = ("layers", "_layer_checkpoint_dependencies")
_NOT_LAYERS = ("optimizer",)
_MODEL_WEIGHTS, _TOP = "model_weights", "top_level_model_weights"


class Saved(NamedTuple):
    """A saved model: its configuration, if the file has it, and each layer's arrays with their names."""

    config: dict[str, Any] | None
    layers: dict[str, list[tuple[str, Array]]]
    metadata: dict[str, Any]


def read(source: Source) -> Saved:
    """What a file of Keras holds, without knowing what it means.

    In the older files layers and arrays are in Keras's order, and arrays have Keras's names ("lstm/kernel:0"). In the newer ones
    arrays are known by where in the layer they are ("cell/vars/0", "forward_layer/cell/vars/2"), and come sorted by that; layers
    have the names that the model gives them where the file tells, or its configuration, otherwise those of their
    classes ("lstm", "lstm_1"). Layers without arrays may be missing. What optimizers keep is left out.

    Args:
        source: a path, or the bytes of a file.

    Raises: OSError; ValueError that names the file and what in it is wrong, see `hdf5.read` and `archive.members`; for HDF5
        files that are not Keras's.
    """
    file = content(source)
    if file.data[:4].tobytes() != archive.MAGIC:
        return parsed(file, *hdf5.parsed(file))
    members, others = archive.members(file, (CONFIG, ABOUT, WEIGHTS).__contains__)
    if CONFIG not in members or WEIGHTS not in members:
        raise ValueError(f"{file.name}: a .keras file has {CONFIG} and {WEIGHTS}; here are {limits.shown([*members, *others])}")
    config, about = (
        _object(members[name].name, members[name].data.tobytes()) if name in members else {} for name in (CONFIG, ABOUT)
    )
    saved = parsed(members[WEIGHTS], *hdf5.parsed(members[WEIGHTS]), config)
    return Saved(config, saved.layers, {**saved.metadata, **about})


def is_keras(arrays: dict[str, Array], metadata: dict[str, Any]) -> bool:
    """Whether what an HDF5 file holds is laid out as Keras does."""
    attributes = metadata[hdf5.ATTRIBUTES]
    older = any(name.startswith("layer_names") for group in ("", _MODEL_WEIGHTS) for name in attributes.get(group, ()))
    return older or any(_VARIABLE.fullmatch(path) for path in arrays)


def parsed(file: Content, arrays: dict[str, Array], metadata: dict[str, Any], config: dict[str, Any] | None = None) -> Saved:
    """What `read` gives, from what an HDF5 file holds."""
    attributes = metadata[hdf5.ATTRIBUTES]
    if not is_keras(arrays, metadata):
        raise ValueError(f"{file.name}: no file of Keras: neither layer_names among the attributes nor datasets named .../vars/0")
    group = _MODEL_WEIGHTS if _MODEL_WEIGHTS in attributes else ""
    about = {name: value for name, value in attributes[group].items() if name in ("keras_version", "backend")}
    if not any(name.startswith("layer_names") for name in attributes[group]):
        return Saved(None, _newer(arrays, attributes, _names_by_class(config)), about)
    config = attributes[""].get("model_config")
    if config is not None and not isinstance(config, str):
        raise ValueError(f"{file.name}: model_config should be a text, it is a {type(config).__name__}")
    where = f"{file.name}: model_config"
    return Saved(None if config is None else _object(where, config.encode()), _older(file, arrays, attributes, group), about)


def _object(where: str, text: bytes) -> dict[str, Any]:
    found = structured.parsed(where, text)
    if not isinstance(found, dict):
        raise ValueError(f"{where}: should be an object, got {limits.shown(found)}")
    return found


def _older(file: Content, arrays: dict[str, Array], attributes: dict[str, Any], group: str) -> dict[str, list[tuple[str, Array]]]:
    layers: dict[str, list[tuple[str, Array]]] = {}
    names = _names(file, attributes[group], "layer_names", group)
    for layer in [*names, *([_TOP] if _TOP not in names else [])]:
        path = f"{group}/{layer}" if group else layer
        if path not in attributes:
            if layer == _TOP:
                continue
            raise ValueError(f"{file.name}: the layer {limits.shown(layer)} has no group {limits.shown(path)}")
        if layer in layers:
            raise ValueError(f"{file.name}: the layer {limits.shown(layer)} is there twice")
        weights = _names(file, attributes[path], "weight_names", path)
        missing = next((name for name in weights if f"{path}/{name}" not in arrays), None)
        if missing is not None:
            raise ValueError(f"{file.name}: the layer {limits.shown(layer)} should have a dataset {limits.shown(missing)}")
        if weights or layer != _TOP:
            layers[layer] = [(name, arrays[f"{path}/{name}"]) for name in weights]
    return layers


def _names(file: Content, attributes: dict[str, Any], name: str, group: str) -> list[str]:
    """A list of texts, which Keras splits into `name0`, `name1` ... where it is long."""
    found: list[str] = []
    k = 0
    if name not in attributes:
        while f"{name}{k}" in attributes:
            found += _texts(file, attributes[f"{name}{k}"], f"{name}{k}", group)
            k += 1
        if not k:
            raise ValueError(f"{file.name}: the group {limits.shown(group)} has no attribute {name}")
        return found
    return _texts(file, attributes[name], name, group)


def _texts(file: Content, value: Any, name: str, group: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{file.name}: the attribute {name} of {limits.shown(group)} should be a list of texts")
    return value


def _newer(arrays: dict[str, Array], attributes: dict[str, Any], names: dict[str, str]) -> dict[str, list[tuple[str, Array]]]:
    layers: dict[str, list[tuple[str, Array]]] = {}
    for path in sorted(
        arrays, key=lambda path: [(int(word), "") if word.isdecimal() else (-1, word) for word in path.split("/")]
    ):
        words = path.split("/")
        start = 1 if words[0] in _LAYERS else 0
        if words[0] in _NOT_LAYERS or len(words) < start + 2:
            continue
        key = words[start]
        own = attributes.get("/".join([*words[: start + 1], "vars"]), {}).get("name")
        name = own if isinstance(own, str) and own else names.get(key, key)
        layers.setdefault(name, []).append(("/".join(words[start + 1 :]), arrays[path]))
    return layers


def _names_by_class(config: dict[str, Any] | None) -> dict[str, str]:
    """The names of a model's layers by what the weights' file calls them: their classes, numbered ("lstm", "lstm_1")."""
    inner = (config or {}).get("config")
    layers = inner.get("layers") if isinstance(inner, dict) else None
    found: dict[str, str] = {}
    counts: dict[str, int] = {}
    for layer in layers if isinstance(layers, list) else []:
        own = layer.get("config") if isinstance(layer, dict) else None
        name, kind = (own.get("name"), layer.get("class_name")) if isinstance(own, dict) else (None, None)
        if isinstance(name, str) and isinstance(kind, str):
            key = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=.)(?=[A-Z][a-z])", "_", kind).lower()
            counts[key] = counts.get(key, -1) + 1
            found[f"{key}_{counts[key]}" if counts[key] else key] = name
    return found
