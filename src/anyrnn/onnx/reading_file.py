"""ONNX files as plain data. What is in them may come from anywhere, so all of it is checked before it is used."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn.errors import MissingExtraError
from anyrnn.files.content import regular

Array = npt.NDArray[Any]
Source = bytes | str | os.PathLike[str] | Any
"""A file's content or its path, or an `onnx.ModelProto`."""

MOST_AXES = 32
FLOATS, INTEGERS = ("float32", "float64"), ("int32", "int64")
DTYPES: Mapping[int, tuple[str, str]] = {
    1: ("float32", "float_data"),
    11: ("float64", "double_data"),
    10: ("float16", "int32_data"),
    6: ("int32", "int32_data"),
    7: ("int64", "int64_data"),
    9: ("bool", "int32_data"),
}
"""By ONNX's number of an element type: ours, and where a tensor has its numbers if they are not raw."""


@dataclass(frozen=True)
class Port:
    """An input or output of a model: its axes are numbers, names, or nothing where neither is given."""

    name: str
    dtype: str
    dims: tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class Node:
    """`number`: its place in the file, from 0."""

    op: str
    domain: str
    name: str
    number: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    used: set[str] = field(default_factory=set)
    """The attributes that have been looked at: one that nobody looks at would change what the node means."""

    @property
    def label(self) -> str:
        """What messages call it."""
        op = self.op if self.domain in ("", "ai.onnx") else f"{self.domain}.{self.op}"
        return f"{op} node {self.name!r}" if self.name else f"{op} node number {self.number}"

    def _of(self, name: str, kind: str, default: Any) -> Any:
        self.used.add(name)
        if name not in self.attributes:
            return default
        found, value = self.attributes[name]
        if found != kind:
            raise ValueError(f"attribute {name!r} should be of type {kind}, got {found}")
        return value

    def integer(self, name: str, default: int) -> int:
        value: int = self._of(name, "INT", default)
        return value

    def flag(self, name: str, default: bool) -> bool:
        """An integer that is 0 or 1."""
        value = self.integer(name, default)
        if value not in (0, 1):
            raise ValueError(f"{name} should be 0 or 1, got {value}")
        return value == 1

    def number_of(self, name: str, default: float | None) -> float | None:
        value: float | None = self._of(name, "FLOAT", default)
        if value is not None and not math.isfinite(value):
            raise ValueError(f"attribute {name!r} should be finite, got {value}")
        return value

    def text(self, name: str, default: str) -> str:
        value: str = self._of(name, "STRING", default)
        return value

    def integers(self, name: str) -> list[int] | None:
        value: list[int] | None = self._of(name, "INTS", None)
        return value

    def numbers(self, name: str) -> list[float]:
        value: list[float] = self._of(name, "FLOATS", [])
        if not all(map(math.isfinite, value)):
            raise ValueError(f"attribute {name!r} should be finite numbers, got {value}")
        return value

    def texts(self, name: str) -> list[str]:
        value: list[str] = self._of(name, "STRINGS", [])
        return value

    def tensor(self, name: str) -> Array | None:
        value: Array | None = self._of(name, "TENSOR", None)
        return value


@dataclass(frozen=True)
class Model:
    """A graph whose nodes stand in an order in which each reads what is there before it."""

    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    opset: int

    @property
    def numbers(self) -> int:
        """How many there are in the file."""
        tensors = [v for n in self.nodes for kind, v in n.attributes.values() if kind == "TENSOR"]
        return sum(array.size for array in (*self.constants.values(), *tensors))


def library() -> Any:
    """The package onnx. Raises: MissingExtraError without it."""
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError('ONNX files are read with the package onnx: pip install "anyrnn[onnx]"') from error
    return onnx


def read_model(source: Source) -> Model:
    """A model as plain data.

    Args: source: the content of a file, its path, or an `onnx.ModelProto`. Tensors that stand outside of the file are read where
        they are in the file's own folder.

    Raises: ValueError for what is no ONNX model that can be read, saying what is wrong where; OSError; MissingExtraError.
    """
    onnx = library()
    folder = None
    if isinstance(source, onnx.ModelProto):
        proto = source
    else:
        if not isinstance(source, bytes):
            folder = Path(source).parent
            source = regular(source).read_bytes()
        proto = onnx.ModelProto()
        try:
            proto.ParseFromString(source)
        except importlib.import_module("google.protobuf.message").DecodeError as error:
            raise ValueError(f"this is no ONNX model: {error}") from None
    return _model(onnx, proto, folder)


def _model(onnx: Any, proto: Any, folder: Path | None) -> Model:
    graph = proto.graph
    if not graph.output:
        raise ValueError("this is no ONNX model: it has no graph with outputs")
    if graph.sparse_initializer:
        raise ValueError(f"sparse initialiser {graph.sparse_initializer[0].values.name!r}: sparse tensors are not read")
    versions = [o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")]
    known = onnx.defs.onnx_opset_version()
    if len(versions) != 1 or not 1 <= versions[0] <= known:
        raise ValueError(f"the model should import one version of ONNX's operators, from 1 to {known}, it imports {versions}")
    constants: dict[str, Array] = {}
    for tensor in graph.initializer:
        if tensor.name in constants or not tensor.name:
            raise ValueError(f"initialiser {tensor.name!r}: its name should be there once")
        constants[tensor.name] = _tensor(tensor, f"initialiser {tensor.name!r}", folder)
    inputs = tuple([_port(value, "input") for value in graph.input if value.name not in constants])
    nodes = tuple([_node(node, number, folder) for number, node in enumerate(graph.node)])
    model = Model(nodes, constants, inputs, tuple([_port(value, "output") for value in graph.output]), versions[0])
    _check_names(model)
    return model


def _check_names(model: Model) -> None:
    """Each value is made once, before it is read. Raises: ValueError, naming the node."""
    made = {port.name: "an input" for port in model.inputs}
    if len(made) != len(model.inputs):
        raise ValueError("two inputs have one name")
    made |= dict.fromkeys(model.constants, "an initialiser")
    for node in model.nodes:
        for name in node.inputs:
            if name and name not in made:
                raise ValueError(f"{node.label}: nothing before it makes its input {name!r}")
        for name in node.outputs:
            if name and name in made:
                raise ValueError(f"{node.label}: its output {name!r} is already that of {made[name]}")
            if name:
                made[name] = node.label
    for port in model.outputs:
        if port.name not in made:
            raise ValueError(f"output {port.name!r}: no node makes it")


def _port(value: Any, kind: str) -> Port:
    if not value.HasField("type") or value.type.WhichOneof("value") not in (None, "tensor_type"):
        raise ValueError(f"{kind} {value.name!r}: expected a tensor, got {value.type.WhichOneof('value')}")
    tensor = value.type.tensor_type
    dtype = DTYPES.get(tensor.elem_type, (f"element type {tensor.elem_type}", ""))[0]
    if not tensor.HasField("shape"):
        return Port(value.name, dtype, None)
    dims: list[int | str | None] = []
    for dim in tensor.shape.dim:
        which = dim.WhichOneof("value")
        if which == "dim_value" and dim.dim_value < 0:
            raise ValueError(f"{kind} {value.name!r}: its axes should have sizes from 0, got {dim.dim_value}")
        dims.append(dim.dim_value if which == "dim_value" else dim.dim_param or None)
    if len(dims) > MOST_AXES:
        raise ValueError(f"{kind} {value.name!r}: expected at most {MOST_AXES} axes, got {len(dims)}")
    return Port(value.name, dtype, tuple(dims))


def _node(proto: Any, number: int, folder: Path | None) -> Node:
    node = Node(proto.op_type, proto.domain, proto.name, number, tuple(proto.input), tuple(proto.output), {})
    attributes: dict[str, tuple[str, Any]] = {}
    for attribute in proto.attribute:
        kind = type(attribute).AttributeType.Name(attribute.type) if 0 <= attribute.type <= 14 else str(attribute.type)
        if attribute.name in attributes:
            raise ValueError(f"{node.label}: attribute {attribute.name!r} is there twice")
        attributes[attribute.name] = kind, _value(attribute, kind, f"{node.label}: attribute {attribute.name!r}", folder)
    return Node(node.op, node.domain, node.name, number, node.inputs, node.outputs, attributes)


def _value(attribute: Any, kind: str, where: str, folder: Path | None) -> Any:
    """None for what no node that is read has, as graphs."""
    if kind in ("INT", "FLOAT"):
        return attribute.i if kind == "INT" else attribute.f
    if kind == "STRING":
        return attribute.s.decode(errors="replace")
    if kind in ("INTS", "FLOATS"):
        return list(attribute.ints if kind == "INTS" else attribute.floats)
    if kind == "STRINGS":
        return [text.decode(errors="replace") for text in attribute.strings]
    return _tensor(attribute.t, where, folder) if kind == "TENSOR" else None


# tensors


def _tensor(proto: Any, where: str, folder: Path | None) -> Array:
    if proto.data_type not in DTYPES:
        known = ", ".join(name for name, _ in DTYPES.values())
        raise ValueError(f"{where}: expected numbers of {known}, got ONNX's element type {proto.data_type}")
    name, place = DTYPES[proto.data_type]
    dims = list(proto.dims)
    if len(dims) > MOST_AXES or any(not 0 <= d < 2**48 for d in dims) or proto.HasField("segment"):
        raise ValueError(f"{where}: expected a whole tensor of at most {MOST_AXES} axes, none negative, got {_short(dims)}")
    count, dtype = math.prod(dims), np.dtype(name).newbyteorder("<")
    if proto.data_location == 1:  # EXTERNAL
        raw: bytes = _external(proto, count * dtype.itemsize, where, folder)
    elif proto.HasField("raw_data"):
        raw = proto.raw_data
    else:
        return _from_fields(getattr(proto, place), name, count, where).reshape(dims)
    if len(raw) != count * dtype.itemsize:
        raise ValueError(f"{where}: {_short(dims)} of {name} are {count * dtype.itemsize} bytes, it has {len(raw)}")
    return np.frombuffer(raw, dtype).astype(name).reshape(dims)


def _from_fields(numbers: Any, name: str, count: int, where: str) -> Array:
    if len(numbers) != count:
        raise ValueError(f"{where}: its shape is of {count} numbers, it has {len(numbers)}")
    if name == "float16":
        return np.array([n & 0xFFFF for n in numbers], np.uint16).view(np.float16)
    return np.array(numbers, name)


def _external(proto: Any, size: int, where: str, folder: Path | None) -> bytes:
    """The bytes of a tensor beside the model's file."""
    entries = {entry.key: entry.value for entry in proto.external_data}
    place = entries.get("location", "")
    if folder is None:
        raise ValueError(f"{where}: its numbers are in another file: give the model's path, as that is beside it")
    path = folder / place
    try:
        offset, length = (int(entries.get(key, default)) for key, default in (("offset", 0), ("length", size)))
    except ValueError:
        raise ValueError(f"{where}: its offset and length should be numbers, got {entries}") from None
    if not path.is_file() or path.resolve().parent != folder.resolve():
        raise ValueError(f"{where}: there is no file {place!r} beside that of the model")
    if length != size or offset < 0 or offset + size > path.stat().st_size:
        raise ValueError(f"{where}: it should be {size} bytes of {place!r} ({path.stat().st_size}), got {length} from {offset}")
    with path.open("rb") as file:
        file.seek(offset)
        found: bytes = file.read(size)
        return found


def _short(dims: Sequence[int]) -> str:
    return f"shape {list(dims[:8])}" + (" and more" if len(dims) > 8 else "")
