"""MXNet's .params files: a list of dense arrays and their names.

The file is little-endian: the number 0x112 and a zero (8 bytes each), the number of arrays, the arrays, the number of names, and
each name after its length. An array begins with a number of 4 bytes that says how its shape is written. Sparse arrays are
refused.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from anyrnn._files import written_aside
from anyrnn.files import limits
from anyrnn.files.content import BFLOAT16, Array, Cursor, Source, array, content, size_of

MAGIC = 0x112
V1, V2, V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA  # sizes of 8 bytes; a storage type before them; where () is a shape
DENSE = 0
CPU = struct.pack("<ii", 1, 0)

_ORDER = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool", "int16", "uint16", "uint32", "uint64")
DTYPES = dict(enumerate((*_ORDER, BFLOAT16)))
_CODES = {name: code for code, name in DTYPES.items() if name != BFLOAT16}


def read(source: Source) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays of a .params file by name, or by number ("0", "1", ...) where it has no names; and nothing as metadata.

    Args:
        source: a path, or the bytes of a file.

    Raises: OSError; ValueError that names the file, and which array at which byte is wrong how.
    """
    file = Cursor(content(source))
    magic, reserved = file.numbers("<QQ", "the header")
    if (magic, reserved) != (MAGIC, 0):
        raise ValueError(
            f"{file.name}: not an MXNet .params file: it begins with {magic:#x} and {reserved}, expected 0x112 and 0"
        )
    arrays = [_array(file, f"array {k}") for k in range(_count(file, "arrays"))]
    names = [_name(file, k) for k in range(_count(file, "names"))] or [str(k) for k in range(len(arrays))]
    if file.left:
        raise ValueError(f"{file.name}: {file.left} bytes follow the last name, at byte {file.at}")
    if len(names) != len(arrays):
        raise ValueError(f"{file.name}: {len(arrays)} arrays and {len(names)} names")
    found: dict[str, Array | None] = {}
    for name, value in zip(names, arrays, strict=True):
        if name in found:
            raise ValueError(f"{file.name}: the name {limits.shown(name)} is there twice")
        found[name] = value
    return {name: value for name, value in found.items() if value is not None}, {}


def write(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Write a .params file, which appears whole or not at all; MXNet from 1.0 on reads it.

    Raises: OSError; TypeError for dtypes that MXNet has not; ValueError for shapes without axes or numbers, which it takes for
        unknown. Nothing is written then.
    """
    ready = {name: np.asarray(value, order="C") for name, value in arrays.items()}
    for name, value in ready.items():
        limits.check_name("names of arrays", name)
        if value.dtype.name not in _CODES:
            raise TypeError(f"array {name!r} has dtype {value.dtype}, which MXNet does not hold; it holds {', '.join(_CODES)}")
        if not value.size or not value.ndim:
            raise ValueError(
                f"array {name!r} has shape {value.shape}, which MXNet's files cannot hold; give it an axis and numbers"
            )
    with written_aside(path) as aside, aside.open("wb") as file:
        file.write(struct.pack("<QQQ", MAGIC, 0, len(ready)))
        for value in ready.values():
            _write_array(file, value)
        file.write(struct.pack("<Q", len(ready)))
        for name in ready:
            file.write(struct.pack("<Q", len(name.encode())) + name.encode())


def _write_array(file: BinaryIO, value: Array) -> None:
    file.write(struct.pack(f"<Iii{value.ndim}q", V2, DENSE, value.ndim, *value.shape))
    file.write(CPU + struct.pack("<i", _CODES[value.dtype.name]))
    file.write(value.astype(value.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8).data)


def _array(file: Cursor, what: str) -> Array | None:
    """An array, or nothing where its shape is unknown."""
    where, (magic,) = f"{file.name}: {what} at byte {file.at}", file.numbers("<I", what)
    if magic in (V2, V3):
        (storage,) = file.numbers("<i", what)
        if storage != DENSE:
            kind = {1: "row sparse", 2: "compressed sparse rows"}.get(storage, f"unknown ({storage})")
            raise ValueError(f"{where}: its storage is {kind}; only dense arrays are read")
    axes = file.numbers("<i", what)[0] if magic in (V1, V2, V3) else magic  # in the oldest files the shape comes first
    if axes == (-1 if magic == V3 else 0):
        return None
    if not 0 <= axes <= limits.DIMENSIONS:
        raise ValueError(f"{where}: {axes} dimensions, at most {limits.DIMENSIONS} are read")
    shape = file.numbers(f"<{axes}{'q' if magic in (V1, V2, V3) else 'I'}", f"the shape of {what}")
    if magic == V3 and -1 in shape:
        return None
    _, _, code = file.numbers("<iii", f"the dtype of {what}")
    if code not in DTYPES:
        raise ValueError(f"{where}: dtype number {code}; known are 0 to {max(DTYPES)}")
    size = limits.byte_count(where, shape, size_of(DTYPES[code]))
    return array(where, file.take(size, f"the data of {what}"), DTYPES[code], shape)


def _name(file: Cursor, k: int) -> str:
    (length,) = file.numbers("<Q", f"name {k}")
    name = file.text(length, f"name {k}")
    limits.check_name(file.name, name)
    return name


def _count(file: Cursor, what: str) -> int:
    (count,) = file.numbers("<Q", f"the number of {what}")
    if count > limits.NAMES:
        raise ValueError(f"{file.name}: {count} {what} promised before byte {file.at}, at most {limits.NAMES} are read")
    return int(count)
