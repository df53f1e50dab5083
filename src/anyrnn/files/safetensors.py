"""The safetensors format, on NumPy alone: arrays by name, and text beside them.

A file is 8 bytes with the length of the header, the header (JSON: dtype, shape and place of each array), and the data, without
holes or overlaps. Nothing in it can run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from anyrnn._files import written_aside
from anyrnn.files import limits, structured
from anyrnn.files.content import BFLOAT16, Array, Content, Source, array, content, size_of

METADATA = "__metadata__"

DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": BFLOAT16,
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}
_CODES = {dtype: code for code, dtype in DTYPES.items() if dtype != BFLOAT16}


def read(source: Source) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays of a safetensors file in the order of its header, and its metadata.

    The arrays are in this machine's byte order and may be written to; they share one piece of memory. bfloat16, which NumPy
    has not, becomes float32, which holds the same numbers.

    Args:
        source: a path, or the bytes of a file.

    Raises: OSError; ValueError that names the file and what in it is wrong: anything that the format does not allow, and
        dtypes other than F64, F32, F16, BF16, I64 to I8, U64 to U8 and BOOL.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "one.safetensors"
        >>> write(path, {"weight": np.arange(3.0)}, {"made": "by hand"})
        >>> read(path)
        ({'weight': array([0., 1., 2.])}, {'made': 'by hand'})
    """
    file = content(source)
    header, start = _header(file)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError(f"{file.name}: {METADATA} should be an object of texts")
    places = {name: _place(f"{file.name}: array {limits.shown(name)}", name, entry) for name, entry in header.items()}
    _check_gapless(file, start, places)
    return {
        name: array(f"{file.name}: array {limits.shown(name)}", file.data[start + begin : start + end], dtype, shape)
        for name, (begin, end, dtype, shape) in places.items()
    }, metadata


def write(path: str | os.PathLike[str], arrays: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays to a safetensors file, which appears whole or not at all. The same arrays give the same bytes.

    Args:
        path: of the file; one that is there is replaced.
        arrays: by name, in the order of the header. In the file wide numbers stand before narrow ones, so that all are aligned.
        metadata: texts by name.

    Raises: OSError; TypeError for other dtypes than `read` gives, and metadata that is not text; ValueError for a name that
        the format cannot hold. Nothing is written then.
    """
    metadata = dict(metadata or {})
    for key, text in metadata.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise TypeError(f"metadata {key!r} should be a text under a text, got {type(text).__name__}")
    ready = {name: _ready(name, value) for name, value in arrays.items()}
    places, end = {}, 0
    for name in sorted(ready, key=lambda name: -ready[name].itemsize):
        places[name] = (end, end + ready[name].nbytes)
        end += ready[name].nbytes
    header: dict[str, Any] = {METADATA: metadata} if metadata else {}
    for name, value in ready.items():
        header[name] = {"dtype": _CODES[value.dtype.name], "shape": list(value.shape), "data_offsets": list(places[name])}
    encoded = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    if len(encoded) > limits.HEADER:
        raise ValueError(
            f"the header would have {len(encoded)} bytes, at most {limits.HEADER} are allowed; the metadata is too long"
        )
    with written_aside(path) as aside, aside.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little"))
        file.write(encoded)
        for name in places:
            file.write(ready[name].reshape(-1).view(np.uint8).data)


class _Place(NamedTuple):
    begin: int
    end: int
    dtype: str
    shape: tuple[int, ...]


def _header(file: Content) -> tuple[dict[str, Any], int]:
    """The header, and where the data begins."""
    size = len(file.data)
    if size < 8:
        raise ValueError(f"{file.name}: only {size} bytes, a safetensors file begins with 8 that say how long its header is")
    length = int.from_bytes(file.data[:8].tobytes(), "little")
    if length > limits.HEADER:
        raise ValueError(f"{file.name}: not a safetensors file: a header of {length} bytes, at most {limits.HEADER} are allowed")
    if length > size - 8:
        raise ValueError(f"{file.name}: the header should have {length} bytes, {size - 8} follow: the file is truncated")
    text = file.data[8 : 8 + length].tobytes()
    if text[:1] != b"{":
        raise ValueError(f"{file.name}: not a safetensors file: the header begins with {text[:1]!r}, expected '{{'")
    header = structured.parsed(f"{file.name}: header", text)
    assert isinstance(header, dict)
    if len(header) > limits.NAMES:
        raise ValueError(f"{file.name}: {len(header)} arrays, at most {limits.NAMES} are read")
    return header, 8 + length


def _place(where: str, name: str, entry: Any) -> _Place:
    limits.check_name(where, name)
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{where}: should be an object of dtype, shape and data_offsets, got {limits.shown(entry)}")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        raise ValueError(f"{where}: the dtype is {limits.shown(code)}; read are {', '.join(DTYPES)}")
    size = limits.byte_count(where, shape, size_of(DTYPES[code]))
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(n) is int and n >= 0 for n in offsets):
        raise ValueError(f"{where}: data_offsets should be where it begins and ends, got {limits.shown(offsets)}")
    begin, end = offsets
    if end - begin != size:
        raise ValueError(f"{where}: {code} of shape {shape} has {size} bytes, its data_offsets {offsets} are {end - begin} apart")
    return _Place(begin, end, DTYPES[code], tuple(shape))


def _check_gapless(file: Content, start: int, places: dict[str, _Place]) -> None:
    reached, before = 0, "the header"
    for name, (begin, end, _, _) in sorted(places.items(), key=lambda item: item[1][:2]):
        if begin != reached:
            wrong = "overlaps" if begin < reached else "leaves a hole after"
            raise ValueError(
                f"{file.name}: array {limits.shown(name)} begins at byte {begin} of the data, and {wrong} {before}, "
                f"which ends at {reached}"
            )
        reached, before = end, f"array {limits.shown(name)}"
    there = len(file.data) - start
    if there != reached:
        state = "the file is truncated" if there < reached else "bytes that belong to no array are refused"
        raise ValueError(f"{file.name}: the arrays take {reached} bytes, {there} follow the header: {state}")


def _ready(name: str, value: Any) -> Array:
    """An array as the file has it: in C order, little-endian."""
    if not isinstance(name, str):
        raise TypeError(f"the name of an array should be a text, got {name!r}")
    if name == METADATA:
        raise ValueError(f"no array can be named {METADATA}, where the format keeps texts")
    limits.check_name("names of arrays", name)
    found = np.asarray(value)
    if found.dtype.name not in _CODES:
        raise TypeError(f"array {name!r} has dtype {found.dtype}, which safetensors does not hold; it holds {', '.join(_CODES)}")
    return np.asarray(found, found.dtype.newbyteorder("<"), order="C")
