"""What a Keras model's config says: its layers, and which gets what from which. Of Keras 3 and of Keras 2, without Keras."""

from __future__ import annotations

import graphlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from anyrnn.ir.serial import Record

SEQUENTIAL, INPUT = "Sequential", "InputLayer"
KERAS2_SHAPE = "batch_input_shape"
"""How Keras 2 calls the shape of an input, and Keras 3 does not."""


class Tensor(NamedTuple):
    """One of the results of a call of a layer."""

    layer: str
    call: int = 0
    number: int = 0


@dataclass(frozen=True)
class Described:
    """A layer as a config describes it.

    Args:
        kind: the name of its class.
        name: its own, in the model.
        config: its settings.
        depth: how many layers it is wrapped in that take the steps of its input apart.
    """

    kind: str
    name: str
    config: Record
    depth: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"

    def inner(self, key: str) -> Described:
        """The layer or cell in its config, under the name of this one."""
        return described(self.config.of(key, dict), f"{self.config.where}.{key}", self.name)


@dataclass(frozen=True)
class Called:
    """A call of a layer, of which there may be several.

    Args: others: the names of arguments that it gets beside its inputs.
    """

    layer: Described
    number: int
    given: tuple[Tensor, ...]
    others: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.layer.name}/{self.number}" if self.number else self.layer.name


@dataclass(frozen=True)
class Model:
    """Calls in an order in which each comes after those whose results it gets."""

    calls: tuple[Called, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    keras2: bool


def model(config: Any, version: str | None = None) -> Model:
    """Of the config of a Sequential or a Functional model: what `get_config` gives, or with the class's name around it.

    Args: version: of the Keras that wrote it; None if that is not known, and then an attribute that only older ones have tells.

    Raises: ValueError for what is no such config.
    """
    try:
        plain = json.loads(json.dumps(config))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the model's config cannot be written as JSON: {error}") from None
    kind = ""
    if isinstance(plain, dict) and isinstance(plain.get("class_name"), str) and "config" in plain:
        told = plain.get("keras_version")
        version = version or (told if isinstance(told, str) else None)
        kind, plain = plain["class_name"], plain["config"]
    if isinstance(plain, list):  # as Keras had it before 2.2.3
        plain = {"layers": plain}
    if not isinstance(plain, dict) or not isinstance(plain.get("layers"), list):
        what = kind or "what was given"
        raise ValueError(f"the config is not that of a Sequential or a Functional model but of {what}; others are code")
    found = Record(plain, "config")
    entries = [Record(entry, f"config.layers[{i}]") for i, entry in enumerate(plain["layers"])]
    layers = [described(entry.data, entry.where) for entry in entries]
    if len({layer.name for layer in layers}) < len(layers) or not layers:
        raise ValueError("config.layers: expected layers of different names")
    guess = any(KERAS2_SHAPE in layer.config.data for layer in layers)
    keras2 = guess if version is None else version.partition(".")[0] in ("1", "2")
    if kind == SEQUENTIAL or "output_layers" not in plain:
        return _sequential(found, entries, layers, keras2)
    calls = [call for entry, layer in zip(entries, layers, strict=True) for call in _calls(entry, layer)]
    inputs, outputs = (tuple(_tensors(found.data.get(key), f"config.{key}")) for key in ("input_layers", "output_layers"))
    return Model(_ordered(calls), inputs, outputs, keras2)


def described(data: Any, where: str, name: str = "") -> Described:
    """A layer; `name` for one within another, which has that one's."""
    found = Record(data, where)
    kind = found.text("class_name").rpartition(">")[2]  # `package>Name` of layers that are registered
    config = found.of("config", dict)
    name = name or found.data.get("name") or config.get("name") or ""
    if not isinstance(name, str) or not name:
        raise ValueError(f"{where}: a {kind} without a name")
    return Described(kind, name, Record(config, f"{kind} {name!r}"))


def _sequential(found: Record, entries: list[Record], layers: list[Described], keras2: bool) -> Model:
    if layers[0].kind != INPUT:
        config, build = layers[0].config.data, entries[0].data.get("build_config")
        shape = config.get(KERAS2_SHAPE) or found.data.get("build_input_shape")
        shape = shape or (build.get("input_shape") if isinstance(build, dict) else None)
        if not isinstance(shape, list):
            raise ValueError(f"{layers[0]}: the config does not tell the shape of the input; build the model before it is saved")
        name = f"{layers[0].name}_input"
        layers = [Described(INPUT, name, Record({"batch_shape": shape}, f"{INPUT} {name!r}")), *layers]
    calls = [Called(layers[0], 0, ())]
    calls += [Called(layer, 0, (Tensor(before.name),)) for before, layer in pairwise(layers)]
    return Model(tuple(calls), (Tensor(layers[0].name),), (Tensor(layers[-1].name),), keras2)


def _calls(entry: Record, layer: Described) -> Iterator[Called]:
    """Of one layer, each a node of the model."""
    nodes = entry.of("inbound_nodes", list)
    if layer.kind == INPUT:
        yield Called(layer, 0, ())
    for number, node in enumerate(nodes):
        where = f"{layer}, call {number}"
        if isinstance(node, dict):  # Keras 3
            found = Record(node, where)
            others, node = [found.of("kwargs", dict)], found.of("args", list)
        else:
            others = list(_arguments(node, where))
        yield Called(layer, number, tuple(_tensors(node, where)), tuple([name for one in others for name in _that_matter(one)]))


def _arguments(node: Any, where: str) -> Iterator[dict[str, Any]]:
    """Other arguments of a call in Keras 2, which stand behind its tensors."""
    if isinstance(node, list) and node and isinstance(node[0], str):
        yield from [Record(more, where).data for more in node[3:4]]
    elif isinstance(node, list):
        for child in node:
            yield from _arguments(child, where)


def _that_matter(arguments: dict[str, Any]) -> list[str]:
    return [name for name, value in arguments.items() if value is not None and not (name == "training" and not value)]


def _tensors(value: Any, where: str) -> Iterator[Tensor]:
    """All tensors in a structure, in order: Keras 3's objects, and lists of a name, a call and a number."""
    if isinstance(value, dict) and value.get("class_name") == "__keras_tensor__":
        yield from _tensors(Record(value.get("config"), where).of("keras_history", list), where)
    elif isinstance(value, dict):
        for child in value.values():
            yield from _tensors(child, where)
    elif isinstance(value, list) and value and isinstance(value[0], str):
        if not 3 <= len(value) <= 4 or any(type(number) is not int or number < 0 for number in value[1:3]):
            raise ValueError(f"{where}: expected a layer's name, its call and the number of the result, got {str(value)[:80]}")
        yield Tensor(*value[:3])
    elif isinstance(value, list):
        for child in value:
            yield from _tensors(child, where)


def _ordered(calls: list[Called]) -> tuple[Called, ...]:
    by_place = {(call.layer.name, call.number): call for call in calls}
    before: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for place, call in by_place.items():
        before[place] = [(tensor.layer, tensor.call) for tensor in call.given]
        unknown = [tensor for tensor in call.given if (tensor.layer, tensor.call) not in by_place]
        if unknown:
            raise ValueError(f"{call.layer}: call {unknown[0].call} of {unknown[0].layer!r}, whose result it gets, is not there")
    try:
        return tuple([by_place[place] for place in graphlib.TopologicalSorter(before).static_order()])
    except graphlib.CycleError as error:
        names = ", ".join(dict.fromkeys(name for name, _ in error.args[1]))
        raise ValueError(f"config.layers: each of these gets what another gives: {names}") from None
