"""Flax's msgpack files, as `flax.serialization.to_bytes` writes them: nested maps with arrays for leaves.

An array is msgpack's extension 1 (a NumPy number 3): once more msgpack, of the shape, the dtype's name, and the bytes in C order.
"""

from __future__ import annotations

from typing import Any

from anyrnn.files import limits
from anyrnn.files.content import BFLOAT16, DTYPES, Array, Collected, Content, Cursor, Source, array, content, size_of

ROOT = "array"
CHUNKED = "__msgpack_chunked_array__"
ARRAY, NUMBER = 1, 3

_SCALARS = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_UNSIGNED = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
_LENGTHS = {
    **{0xC4 + k: ("bin", form) for k, form in enumerate((">B", ">H", ">I"))},
    **{0xC7 + k: ("ext", form) for k, form in enumerate((">B", ">H", ">I"))},
    **{0xD9 + k: ("str", form) for k, form in enumerate((">B", ">H", ">I"))},
    **{0xDC + k: ("array", form) for k, form in enumerate((">H", ">I"))},
    **{0xDE + k: ("map", form) for k, form in enumerate((">H", ">I"))},
}


def read(source: Source) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays of a msgpack file by their path, with "/" between the parts; what else there is, by name under "left out".

    bfloat16 becomes float32, which holds the same numbers.

    Args:
        source: a path, or the bytes of a file.

    Raises: OSError; ValueError that names the file, and what at which byte is wrong; for arrays in several chunks, as Flax
        writes them above 1 GiB, too.
    """
    data = content(source)
    file, found = Cursor(data), Collected(data.name, len(data.data))
    _walk(file, found, "", 0)
    if file.left:
        raise ValueError(f"{file.name}: {file.left} bytes follow the last value, at byte {file.at}")
    return found.arrays, found.metadata


def _walk(file: Cursor, found: Collected, path: str, depth: int) -> None:
    """Take one value, with all that is in it."""
    if depth > limits.DEPTH:
        raise ValueError(f"{file.name}: nested more than {limits.DEPTH} levels deep at byte {file.at}")
    kind, size = _head(file)
    if kind in ("map", "array"):
        found.check(path)
        for k in range(size):
            key = _key(file) if kind == "map" else str(k)
            if key == CHUNKED:
                raise ValueError(f"{file.name}: array {limits.shown(path)} is in chunks, which are not read")
            _walk(file, found, f"{path}/{key}" if path else key, depth + 1)
        return
    name = path or ROOT
    if kind == "ext":
        (code,) = file.numbers("b", f"the kind of {limits.shown(name)}")
        start = file.at
        data = file.take(size, limits.shown(name))
        if code in (ARRAY, NUMBER):
            found.add(name, _array(Content(f"{file.name}: array {limits.shown(name)} at byte {start}", data)))
            return
    else:
        file.take(size, limits.shown(name))
    found.leave_out(name)


def _head(file: Cursor) -> tuple[str, int]:
    """The kind of the next value, and its length: in bytes, or in values of a map or array."""
    at, (first,) = file.at, file.numbers("B", "a value")
    if first < 0x80 or first >= 0xE0:
        return "small", 0
    if first < 0xC0:
        kind, size = (("map", first & 15), ("array", first & 15), ("str", first & 31), ("str", first & 31))[first - 0x80 >> 4]
    elif first in _SCALARS:
        return "scalar", _SCALARS[first]
    elif 0xD4 <= first <= 0xD8:
        return "ext", 1 << first - 0xD4
    elif first in _LENGTHS:
        kind, form = _LENGTHS[first]
        (size,) = file.numbers(form, "a length")
    else:
        raise ValueError(f"{file.name}: not msgpack: the byte {first:#x} at {at} begins no value")
    least = size * {"map": 2}.get(kind, 1)
    if least > file.left:
        raise ValueError(f"{file.name}: a {kind} of length {size} at byte {at}, {file.left} bytes follow: truncated")
    return kind, size


def _key(file: Cursor) -> str:
    at, (kind, size) = file.at, _head(file)
    if kind != "str":
        raise ValueError(f"{file.name}: the key at byte {at} should be a text, it is a {kind}")
    key = file.text(size, "a key")
    limits.check_name(file.name, key)
    return key


def _array(data: Content) -> Array:
    file = Cursor(data)
    if _head(file) != ("array", 3) or (axes := _head(file))[0] != "array":
        raise ValueError(f"{file.name}: an array should be its shape, its dtype and its bytes")
    shape = tuple(_size(file) for _ in range(axes[1]))
    dtype = file.text(_length(file, "str", "bin"), "the dtype")
    if dtype not in DTYPES and dtype != BFLOAT16:
        raise ValueError(f"{file.name}: the dtype is {limits.shown(dtype)}; read are {', '.join([*DTYPES, BFLOAT16])}")
    size = limits.byte_count(file.name, shape, size_of(dtype))
    length = _length(file, "bin", "str")
    if length != size or file.left != size:
        raise ValueError(f"{file.name}: {dtype} of shape {shape} has {size} bytes, {min(length, file.left)} are there")
    return array(file.name, file.take(size, "the data"), dtype, shape)


def _length(file: Cursor, *kinds: str) -> int:
    at, (kind, size) = file.at, _head(file)
    if kind not in kinds:
        raise ValueError(f"{file.name}: a {kind} at its byte {at}, expected {' or '.join(kinds)}")
    return size


def _size(file: Cursor) -> int:
    (first,) = file.numbers("B", "a size in the shape")
    if first < 0x80:
        return int(first)
    if first not in _UNSIGNED:
        raise ValueError(f"{file.name}: a size in the shape should be a number from 0 on, it begins with the byte {first:#x}")
    return int(file.numbers(_UNSIGNED[first], "a size in the shape")[0])
