"""Shapes, dtypes and attributes in an HDF5 file."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from anyrnn.files import limits
from anyrnn.files.content import BFLOAT16, array
from anyrnn.files.hdf5_parts import HINT, File, Part, text

TEXT, TEXT_ELSEWHERE = "text", "text of any length"

_CLASSES = {2: "times", 4: "bit fields", 5: "opaque bytes", 6: "compounds", 7: "references", 8: "enumerations", 10: "arrays"}
_FLOATS = {  # offset, bits; place and size of the exponent, of the mantissa; bias
    (0, 64, 52, 11, 0, 52, 1023): "float64",
    (0, 32, 23, 8, 0, 23, 127): "float32",
    (0, 16, 10, 5, 0, 10, 15): "float16",
    (0, 16, 7, 8, 0, 7, 127): BFLOAT16,
}


class Datatype(NamedTuple):
    """A dtype of `content`, TEXT or TEXT_ELSEWHERE; and what an element takes in the file."""

    name: str
    size: int
    big_endian: bool = False


def shape(part: Part) -> tuple[int, ...] | None:
    """The shape in a dataspace message; nothing where there is no data on purpose."""
    version, rank = part.version(1, 2), part.numbers("B")[0]
    kind = part.numbers("xB" if version == 2 else "x5x")
    if rank > limits.DIMENSIONS:
        raise ValueError(f"{part.where}: {rank} dimensions, at most {limits.DIMENSIONS} are read")
    return None if kind == (2,) else part.numbers(f"{rank}Q")


def datatype(part: Part) -> Datatype:
    """The dtype in a datatype message."""
    kind, bits, size = part.numbers("BHxI")
    version, kind = kind >> 4, kind & 15
    big = bool(bits & 1)
    if version not in (1, 2, 3):
        raise ValueError(f"{part.where}: a dtype of version {version}, not read; {HINT}")
    if kind == 0 and 0 < size <= 8 and part.numbers("HH") == (0, 8 * size) and size & size - 1 == 0:
        return Datatype(f"{'int' if bits & 8 else 'uint'}{8 * size}", size, big)
    if kind == 1 and 0 < size <= 8:
        layout = part.numbers("HHBBBBI")
        plain = bits & 0x40 == 0 and bits & 0x30 == 0x20 and bits >> 8 == 8 * size - 1
        if plain and layout[1] == 8 * size and layout in _FLOATS:
            return Datatype(_FLOATS[layout], size, big)
    if kind == 3 and size > 0:
        return Datatype(TEXT, size)
    if kind == 9 and bits & 15 == 1 and size == 16:
        return Datatype(TEXT_ELSEWHERE, size)
    if kind == 8 and size == 1 and bits == 2 and _is_bool(part, version):
        return Datatype("bool", 1)
    name = _CLASSES.get(kind, "lists of any length" if kind == 9 else f"numbers of an unusual kind, {size} bytes each")
    raise ValueError(f"{part.where}: {name} are not read")


def _is_bool(part: Part, version: int) -> bool:
    """Whether an enumeration is what h5py makes of bools; any other base than whole numbers is not even looked at."""
    if part.left == 0 or part.data[part.position] & 15 != 0:
        return False
    base = datatype(part)
    names = [part.take(part.data.find(b"\0", part.position) + 1 - part.position, 1 if version == 3 else 8) for _ in range(2)]
    return base.name == "int8" and names == [b"FALSE\0", b"TRUE\0"] and part.take(2) == b"\0\1"


def attribute(file: File, part: Part, heaps: dict[int, dict[int, tuple[int, int]]]) -> tuple[str, Any]:
    """The name and value of an attribute: a number or text, a list of them, or nothing."""
    version = part.version(1, 2, 3)
    flags, *sizes = part.numbers("BHHH")
    if version > 1 and flags:
        raise ValueError(f"{part.where}: an attribute whose dtype is elsewhere, not read")
    charset = 1 if version == 3 else 0
    part.take(charset)
    name, kind, space = (part.take(size, 8 if version == 1 else 1) for size in sizes)
    label = text(f"{part.where}: the name of an attribute", name.rstrip(b"\0"))
    limits.check_name(part.where, label)
    where = f"{part.where}: attribute {limits.shown(label)}"
    axes, dtype = shape(Part(where, space)), datatype(Part(where, kind))
    if axes is None:
        return label, None
    size = limits.byte_count(where, axes, dtype.size)
    data = part.take(size)
    if dtype.name == TEXT_ELSEWHERE:
        items = [_elsewhere(file, where, Part(where, data[at : at + 16]), heaps) for at in range(0, size, 16)]
    elif dtype.name == TEXT:
        items = [text(where, data[at : at + dtype.size].rstrip(b"\0")) for at in range(0, size, dtype.size)]
    else:
        raw = np.frombuffer(data, np.uint8)
        return label, array(where, raw, dtype.name, axes, big_endian=dtype.big_endian).tolist()
    return label, items if axes else items[0]


def _elsewhere(file: File, where: str, part: Part, heaps: dict[int, dict[int, tuple[int, int]]]) -> str:
    """A text in a global heap, each of which is looked through once."""
    length, address, index = part.numbers("IQI")
    if length == 0:
        return ""
    if address not in heaps:
        heaps[address] = dict(_objects(file, address))
    start, size = heaps[address].get(index, (0, 0))
    if length > size:
        raise ValueError(f"{where}: a text of {length} bytes, where the file has {size}")
    return text(where, file.at(start, length, "a text").tobytes().rstrip(b"\0"))


def _objects(file: File, address: int) -> Any:
    heap = file.signed(address, 16, b"GCOL", "a heap of texts")
    heap.version(1)
    (size,) = heap.numbers("3xQ")
    at, end = address + 16, address + size
    if end > len(file.data):
        raise ValueError(f"{heap.where} should have {size} bytes, the file has {len(file.data)}")
    while at + 16 <= end:
        entry = file.part(at, 16, "an entry of a heap of texts")
        index, length = entry.numbers("H6xQ")
        if index == 0:  # the rest is free
            return
        if at + 16 + length > end:
            raise ValueError(f"{entry.where} should have {length} bytes, the heap has {end - at - 16}")
        yield index, (at + 16, length)
        at += 16 + length + -length % 8
