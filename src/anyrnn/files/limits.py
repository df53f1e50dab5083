"""What a file may ask for: one place for the limits of all readers, and the checks that keep to them.

A file is untrusted. Readers allocate by what is there, not by what a header promises: a file of `size` bytes may become up to
`unpacked(size)` bytes of arrays where its format compresses, and a few times `size` elsewhere.
"""

from __future__ import annotations

import math
from typing import Any

DEPTH = 100
"""Levels of nesting, of JSON, msgpack and groups. Keras's nested models need about 30."""

DIMENSIONS = 32
"""Axes of an array, what NumPy 1 has."""

NAME = 4096
"""Characters of one name, groups included."""

NAMES = 1_000_000
"""Arrays in a file."""

TREE = 20
"""How much larger than the file the names of what is in it may be, as Python's objects."""

HEADER = 100_000_000
"""Bytes of a safetensors header, as its own library has it."""

FREE = 16 << 20
"""Bytes that any file may unpack to."""

INFLATION = 100
"""How much larger what is unpacked may be than the file. Weights shrink by a tenth, zeros by deflate to a thousandth."""

MAX_BYTES = (1 << 63) - 1


def unpacked(size: int) -> int:
    """How many bytes of arrays a file of `size` bytes may unpack to."""
    return FREE + INFLATION * size


def check_unpacked(where: str, promised: int, size: int) -> None:
    """Refuse what unpacks to far more than there is: `promised` bytes, of a file of `size`."""
    if promised > unpacked(size):
        raise ValueError(
            f"{where}: unpacks to {promised} bytes, and the file has {size}; more than {INFLATION} times the file and "
            f"{FREE >> 20} MiB is refused as a decompression bomb (store the arrays uncompressed if they are meant)"
        )


def byte_count(where: str, shape: Any, item: int) -> int:
    """The bytes of an array of a shape that a file gives, with `item` bytes an element. Allocates nothing.

    Raises: ValueError for what is no shape, and shapes whose sizes overflow even where one of them is 0.
    """
    if not isinstance(shape, (list, tuple)):
        raise ValueError(f"{where}: a shape should be a list of sizes, got {shown(shape)}")
    if len(shape) > DIMENSIONS:
        raise ValueError(f"{where}: {len(shape)} dimensions, at most {DIMENSIONS} are read")
    for size in shape:
        if type(size) is not int or not 0 <= size <= MAX_BYTES:
            raise ValueError(f"{where}: a size in the shape should be a number from 0 to 2**63 - 1, got {shown(size)}")
    if math.prod(size or 1 for size in shape) * item > MAX_BYTES:
        raise ValueError(f"{where}: shape {list(shape)} is more than an address can hold")
    return math.prod(shape) * item


def check_name(where: str, name: str) -> None:
    """Refuse names that cannot be written down again, and endless ones."""
    if len(name) > NAME:
        raise ValueError(f"{where}: a name of {len(name)} characters, at most {NAME} are read: {shown(name)}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{where}: the name {shown(name)} is not valid Unicode (half of a surrogate pair)") from None


def shown(value: object) -> str:
    """A value from a file, short enough for a message."""
    if isinstance(value, (list, tuple, dict)):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value[:80]) if isinstance(value, (str, bytes)) else repr(value)
    return text if len(text) <= 100 else text[:80] + "..."
