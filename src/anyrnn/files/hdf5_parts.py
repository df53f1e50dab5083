"""The parts of an HDF5 file, as its format specification (version 3.0, The HDF Group) lays them out: bytes into named fields.

Only what the library writes by default is here: superblock 0 or 1, object headers and groups of version 1. Numbers are
little-endian, addresses and lengths have 8 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from anyrnn.files import limits
from anyrnn.files.content import Content

MAGIC = b"\x89HDF\r\n\x1a\n"
NOWHERE = (1 << 64) - 1
HINT = "write it with h5py's default settings (libver not given)"

SPACE, LINK_INFO, DATATYPE, LINK, EXTERNAL, LAYOUT, FILTERS = 0x1, 0x2, 0x3, 0x6, 0x7, 0x8, 0xB
ATTRIBUTE, CONTINUED, GROUP = 0xC, 0x10, 0x11
_SHARED = 0x2


class File:
    """A file's bytes. No two of its parts share any, so that all that is ever taken is at most the file."""

    def __init__(self, file: Content) -> None:
        self.name, self.data, self._taken = file.name, file.data, 0

    def at(self, address: int, size: int, what: str) -> npt.NDArray[np.uint8]:
        if address + size > len(self.data):
            raise ValueError(f"{self.name}: {what} should be {size} bytes at {address}, the file has {len(self.data)}")
        self._taken += size
        if self._taken > len(self.data):
            raise ValueError(f"{self.name}: its parts share bytes, or contain one another, found at {what} at byte {address}")
        return self.data[address : address + size]

    def part(self, address: int, size: int, what: str) -> Part:
        return Part(f"{self.name}: {what} at byte {address}", self.at(address, size, what).tobytes())

    def signed(self, address: int, size: int, signature: bytes, what: str) -> Part:
        """A part that begins with four letters and, mostly, a version; they are skipped."""
        part = self.part(address, size, what)
        if (found := part.take(4)) != signature:
            raise ValueError(f"{part.where} should begin with {signature!r}, it begins with {found!r}")
        return part


class Part:
    """Takes one field after the other from some bytes."""

    def __init__(self, where: str, data: bytes) -> None:
        self.where, self.data, self.position = where, data, 0

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def take(self, size: int, multiple: int = 1) -> bytes:
        """Some bytes; what fills them up to a multiple is skipped."""
        start = self.position
        self.position += size + -size % multiple
        if start + size > len(self.data):
            raise ValueError(
                f"{self.where} is too short: {size} bytes wanted at its byte {start}, {len(self.data) - start} there"
            )
        return self.data[start : start + size]

    def numbers(self, form: str) -> tuple[Any, ...]:
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))

    def version(self, *known: int) -> int:
        (found,) = self.numbers("B")
        if found not in known:
            raise ValueError(f"{self.where} is of version {found}, not read; {HINT}")
        return int(found)


def root(file: File) -> int:
    """The address of the root group's header."""
    start = file.part(0, min(len(file.data), 100), "the superblock")
    if start.take(8) != MAGIC:
        raise ValueError(f"{file.name}: not an HDF5 file: it begins with {start.data[:8]!r}")
    version = start.version(0, 1)
    if start.numbers("4x2Bx2H4x")[:2] != (8, 8):
        raise ValueError(f"{file.name}: addresses or lengths that have not 8 bytes, not read; {HINT}")
    base, _, end, driver = start.numbers("4x4Q" if version else "4Q")
    if base != 0 or driver != NOWHERE:
        raise ValueError(f"{file.name}: a user block or a driver of its own, not read; {HINT}")
    if end > len(file.data):
        raise ValueError(f"{file.name}: should have {end} bytes, it has {len(file.data)}: the file is truncated")
    return int(start.numbers("8xQ")[0])


def messages(file: File, address: int, what: str) -> Iterator[tuple[int, Part]]:
    """The messages of an object's header, with their types."""
    part = file.part(address, 16, f"the header of {what}")
    part.version(1)
    _, size = part.numbers("xH4xI")
    blocks = [(address + 16, size)]
    for start, length in blocks:
        block = file.part(start, length, f"the header of {what}")
        while block.left >= 8:
            kind, size, flags = block.numbers("HHB3x")
            message = Part(f"{block.where}, message {kind:#x} of {what}", block.take(size))
            if flags & _SHARED and kind in (SPACE, DATATYPE, LAYOUT, FILTERS, ATTRIBUTE):
                raise ValueError(f"{message.where} is shared with other objects (a named dtype?), not read")
            if kind == CONTINUED:
                blocks.append(message.numbers("QQ"))
            else:
                yield kind, message


class Link(NamedTuple):
    """A name in a group, and the address of what it names."""

    name: str
    address: int


def link(message: Part) -> Link:
    """What a link message of a group says; groups with names outside ASCII have those."""
    message.version(1)
    (flags,) = message.numbers("B")
    kind = message.numbers("B")[0] if flags & 8 else 0
    message.take(8 if flags & 4 else 0)
    message.take(1 if flags & 16 else 0)
    length = int.from_bytes(message.take(1 << (flags & 3)), "little")
    name = text(f"{message.where}: a name", message.take(length))
    if kind != 0:
        raise ValueError(f"{message.where}: {limits.shown(name)} is a link to a name (soft or external), not read")
    return Link(name, message.numbers("Q")[0])


def check_no_heap(message: Part) -> None:
    """Refuse a group whose links are in a heap, from its link info message."""
    message.version(0)
    (flags,) = message.numbers("B")
    message.take(8 if flags & 1 else 0)
    if message.numbers("Q") != (NOWHERE,):
        raise ValueError(f"{message.where}: a large group of the newer kind, not read; {HINT}, and names in ASCII")


def links(file: File, message: Part, what: str) -> Iterator[Link]:
    """What a group holds, from its symbol table message."""
    tree, heap = message.numbers("QQ")
    size, _, start = file.signed(heap, 32, b"HEAP", f"the names of {what}").numbers("4xQQQ")
    names = file.at(start, size, f"the names of {what}").tobytes()
    for leaf in _leaves(file, tree, what):
        node = file.signed(leaf, 8, b"SNOD", f"a node of {what}")
        (count,) = node.numbers("2xH")
        entries = file.part(leaf + 8, 40 * count, f"a node of {what}")
        for _ in range(count):
            offset, address, cached = entries.numbers("QQI20x")
            end = names.find(b"\0", offset, offset + limits.NAME + 1) if offset < len(names) else -1
            if end < 0:
                raise ValueError(f"{entries.where}: a name in {what} has no end")
            name = text(f"{entries.where}: a name in {what}", names[offset:end])
            if cached == 2:
                raise ValueError(f"{file.name}: {limits.shown(name)} in {what} is a link to a name (soft or external), not read")
            yield Link(name, address)


def _leaves(file: File, address: int, what: str) -> Iterator[int]:
    """The leaves of a group's tree, from left to right."""
    waiting: list[tuple[int, int | None]] = [(address, None)]
    while waiting:
        address, expected = waiting.pop()
        if expected == -1:
            yield address
            continue
        node = file.signed(address, 24, b"TREE", f"the tree of {what}")
        kind, level, count = node.numbers("BBH16x")
        if kind != 0 or expected not in (None, level):
            raise ValueError(f"{node.where} has kind {kind} and level {level}, expected kind 0 and level {expected or 0}")
        children = file.part(address + 24, 16 * count, f"the tree of {what}").numbers(f"{2 * count}Q")[1::2]
        waiting += [(child, level - 1) for child in reversed(children)]


def text(where: str, raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} is not UTF-8 at its byte {error.start}: {limits.shown(raw)}") from None
