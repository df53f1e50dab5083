"""HDF5 files: every dataset by its path, and the attributes of groups.

Read here and not by the HDF5 library, which can hang for ever on a malformed file (seen with 2.0.0, in its heaps of texts among
others). What its default settings write is read, and so what Keras and h5py write.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn.files import limits
from anyrnn.files.content import Array, Collected, Content, Source, array, content
from anyrnn.files.hdf5_parts import (
    ATTRIBUTE,
    DATATYPE,
    EXTERNAL,
    FILTERS,
    GROUP,
    LAYOUT,
    LINK,
    LINK_INFO,
    NOWHERE,
    SPACE,
    File,
    Link,
    Part,
    check_no_heap,
    link,
    links,
    messages,
    root,
)
from anyrnn.files.hdf5_values import TEXT, TEXT_ELSEWHERE, Datatype, attribute, datatype, shape

ATTRIBUTES = "attributes"
DEFLATE, SHUFFLE = 1, 2


def read(source: Source) -> tuple[dict[str, Array], dict[str, Any]]:
    """The datasets of an HDF5 file by their paths ("layers/lstm/vars/0"); under "attributes" those of each group by its path.

    Attributes are numbers and texts, or lists of them. Datasets of texts are named under "left out". The path of the root is "".

    Args:
        source: a path, or the bytes of a file.

    Raises: OSError; ValueError that names the file, and the group or dataset: for soft and external links, and a second hard
        link to an object; virtual datasets and external storage; filters other than deflate and shuffle; dtypes that are no
        plain numbers; datasets without data, and data that unpacks to far more than the file; and for what only newer settings
        of the library write.
    """
    return parsed(content(source))


def parsed(file: Content) -> tuple[dict[str, Array], dict[str, Any]]:
    """What `read` gives, from the bytes of a file."""
    reader = _Reader(file)
    reader.visit(root(reader.file), "", 0)
    return reader.found.arrays, {ATTRIBUTES: reader.attributes, **reader.found.metadata}


class _Reader:
    def __init__(self, file: Content) -> None:
        self.file = File(file)
        self.found = Collected(file.name, len(file.data))
        self.attributes: dict[str, dict[str, Any]] = {}
        self.heaps: dict[int, dict[int, tuple[int, int]]] = {}
        self.places: dict[int, str] = {}
        self.promised = 0

    def visit(self, address: int, path: str, depth: int) -> None:
        """Read an object, and all that is in it."""
        if depth > limits.DEPTH:
            raise ValueError(f"{self.file.name}: groups nested more than {limits.DEPTH} levels deep")
        what = limits.shown(path) if path else "the root group"
        if address in self.places:
            raise ValueError(f"{self.file.name}: {what} is {limits.shown(self.places[address])} again (a hard link), not read")
        self.places[address] = path
        inside: list[Link] = []
        parts: dict[int, Part] = {}
        attributes: dict[str, Any] = {}
        for kind, message in messages(self.file, address, what):
            if kind == ATTRIBUTE:
                name, value = attribute(self.file, message, self.heaps)
                attributes[name] = value
            elif kind == LINK:
                inside.append(link(message))
            elif kind in parts and kind in (SPACE, DATATYPE, LAYOUT, FILTERS, GROUP):
                raise ValueError(f"{message.where} is there twice")
            else:
                parts[kind] = message
        if LINK_INFO in parts:
            check_no_heap(parts[LINK_INFO])
        if GROUP in parts or LINK_INFO in parts:
            self.found.check(path)
            self.attributes[path] = attributes
            for name, place in chain(inside, links(self.file, parts[GROUP], what) if GROUP in parts else ()):
                self.visit(place, f"{path}/{name}" if path else name, depth + 1)
        elif LAYOUT in parts:
            self.dataset(parts, path)
        else:
            raise ValueError(f"{self.file.name}: {what} is neither a group nor a dataset (a named dtype?), not read")

    def dataset(self, parts: dict[int, Part], path: str) -> None:
        where = f"{self.file.name}: dataset {limits.shown(path)}"
        if SPACE not in parts or DATATYPE not in parts:
            raise ValueError(f"{where} has no shape or no dtype")
        if EXTERNAL in parts:
            raise ValueError(f"{where} is kept in other files, which are not read")
        axes, dtype = shape(parts[SPACE]), datatype(parts[DATATYPE])
        if axes is None or dtype.name in (TEXT, TEXT_ELSEWHERE):
            self.found.leave_out(path)
            return
        size = limits.byte_count(where, axes, dtype.size)
        self.promised += size
        limits.check_unpacked(self.file.name, self.promised, len(self.file.data))
        data = self.data(where, parts, axes, dtype, size)
        self.found.add(path, array(where, data, dtype.name, axes, big_endian=dtype.big_endian))

    def data(
        self, where: str, parts: dict[int, Part], axes: tuple[int, ...], dtype: Datatype, size: int
    ) -> npt.NDArray[np.uint8]:
        """The bytes of a dataset, in C order."""
        layout = parts[LAYOUT]
        layout.version(3)
        (kind,) = layout.numbers("B")
        if kind == 2:
            return self.chunked(where, parts, axes, dtype)
        if FILTERS in parts:
            raise ValueError(f"{where} has filters and no chunks")
        if kind == 0:
            (there,) = layout.numbers("H")
            data = np.frombuffer(layout.take(there), np.uint8).copy()
        elif kind == 1:
            address, there = layout.numbers("QQ")
            if address == NOWHERE and size:
                raise ValueError(f"{where} of shape {axes} has no data: it was never written")
            data = self.file.at(address, there, f"the data of {limits.shown(where)}") if size else np.empty(0, np.uint8)
            there = there if size else 0
        else:
            raise ValueError(f"{where} is made of other datasets (layout {kind}), not read")
        if there != size:
            raise ValueError(f"{where}: {dtype.name} of shape {axes} has {size} bytes, the file has {there}")
        return data

    def chunked(self, where: str, parts: dict[int, Part], axes: tuple[int, ...], dtype: Datatype) -> npt.NDArray[np.uint8]:
        layout = parts[LAYOUT]
        rank, tree = layout.numbers("BQ")
        chunk = layout.numbers(f"{rank}I")  # the last is the size of an element
        if len(chunk) != len(axes) + 1 or chunk[-1] != dtype.size or not all(chunk):
            raise ValueError(f"{where}: chunks of {chunk} bytes for shape {axes} and numbers of {dtype.size}")
        chunk, item = chunk[:-1], dtype.size
        if 0 in axes:
            return np.empty(0, np.uint8)
        grid = [-(-size // width) for size, width in zip(axes, chunk, strict=True)]
        one = limits.byte_count(where, chunk, item)
        self.promised += one * math.prod(grid)
        limits.check_unpacked(self.file.name, self.promised, len(self.file.data))
        filters = _filters(where, parts.get(FILTERS), item)
        whole = np.empty((*axes, item), np.uint8)
        seen = set()
        for corner, skipped, address, stored in self.chunks(tree, rank, where):
            places = tuple(at // width for at, width in zip(corner, chunk, strict=True))
            outside = any(at % width for at, width in zip(corner, chunk, strict=True)) or any(
                place >= count for place, count in zip(places, grid, strict=True)
            )
            if outside or places in seen:
                raise ValueError(
                    f"{where}: the chunk at {corner} is {'outside, or between others' if outside else 'there twice'}"
                )
            seen.add(places)
            raw = self.file.at(address, stored, f"a chunk of {limits.shown(where)}").tobytes()
            for number, used in reversed(list(enumerate(filters))):
                if not skipped >> number & 1:
                    raw = _undo(where, used, raw, one, item)
            if len(raw) != one:
                raise ValueError(f"{where}: the chunk at {corner} has {len(raw)} bytes, expected {one}")
            values = np.frombuffer(raw, np.uint8).reshape(*chunk, item)
            inside = tuple(slice(0, size - at) for size, at in zip(axes, corner, strict=True))
            whole[tuple(slice(at, at + width) for at, width in zip(corner, chunk, strict=True))] = values[inside]
        if len(seen) != math.prod(grid):
            raise ValueError(f"{where}: {len(seen)} of its {math.prod(grid)} chunks were written")
        return whole.reshape(-1)

    def chunks(self, address: int, rank: int, where: str) -> Iterator[tuple[tuple[int, ...], int, int, int]]:
        """Of each chunk the first index, which filters were skipped, the address, and the bytes there."""
        waiting: list[tuple[int, int | None]] = [(address, None)] if address != NOWHERE else []
        what, key = f"the chunks of {limits.shown(where)}", 8 + 8 * rank
        while waiting:
            address, expected = waiting.pop()
            node = self.file.signed(address, 24, b"TREE", what)
            kind, level, count = node.numbers("BBH16x")
            if kind != 1 or expected not in (None, level):
                raise ValueError(f"{node.where} has kind {kind} and level {level}, expected kind 1 and level {expected or 0}")
            entries = self.file.part(address + 24, count * (key + 8), what)
            for _ in range(count):
                stored, skipped, *corner, _, child = entries.numbers(f"II{rank}QQ")
                if level == 0:
                    yield tuple(corner), skipped, child, stored
                else:
                    waiting.append((child, level - 1))


def _filters(where: str, part: Part | None, item: int) -> list[int]:
    if part is None:
        return []
    version, (count,) = part.version(1, 2), part.numbers("B")
    part.take(6 if version == 1 else 0)
    found = []
    for _ in range(count):
        (kind,) = part.numbers("H")
        (name,) = part.numbers("H") if version == 1 or kind >= 256 else (0,)
        _, values = part.numbers("HH")
        part.take(name, 8 if version == 1 else 1)
        settings = part.numbers(f"{values}I")
        part.take(4 if version == 1 and values % 2 else 0)
        if kind in found:
            raise ValueError(f"{where} is packed by filter {kind} twice")
        if kind not in (DEFLATE, SHUFFLE):
            raise ValueError(f"{where} is packed by filter {kind}; read are deflate (gzip) and shuffle")
        if kind == SHUFFLE and settings != (item,):
            raise ValueError(f"{where}: bytes shuffled for numbers of {settings} bytes, they have {item}")
        found.append(kind)
    return found


def _undo(where: str, kind: int, raw: bytes, size: int, item: int) -> bytes:
    """What a filter was given, of at most `size` bytes."""
    if kind == SHUFFLE:
        if len(raw) % item:
            raise ValueError(f"{where}: {len(raw)} shuffled bytes are no numbers of {item}")
        return np.frombuffer(raw, np.uint8).reshape(item, -1).T.tobytes()
    unpacking = zlib.decompressobj()
    try:
        found = unpacking.decompress(raw, size + 1)
    except zlib.error as error:
        raise ValueError(f"{where}: a chunk cannot be unpacked: {error}") from None
    if not unpacking.eof or len(found) > size:
        raise ValueError(f"{where}: a chunk unpacks to more than {size} bytes, or is cut off")
    return found
