"""The IDX format of the MNIST files, plain or compressed by gzip."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from anyrnn.files.limits import check_unpacked, unpacked

GZIP_MAGIC = b"\x1f\x8b"
UNSIGNED_BYTES = 0x08
CHUNK = 1 << 20


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of unsigned bytes in an IDX file: two zero bytes, 0x08, the number of dimensions, big-endian sizes, the data.

    Whether the file is compressed is seen from its first bytes, not from its name.

    Raises: ValueError that names the file and says what is wrong with it.
    """
    with path.open("rb") as file:
        compressed = file.read(2) == GZIP_MAGIC
        file.seek(0)
        if not compressed:
            return _parse(path, file, dimensions)
        with gzip.GzipFile(fileobj=file) as stream:
            try:
                return _parse(path, cast(BinaryIO, stream), dimensions, path.stat().st_size)
            except EOFError:
                raise ValueError(f"{path}: the gzip data ends too early: the file is truncated") from None
            except (gzip.BadGzipFile, zlib.error) as error:
                raise ValueError(f"{path}: the gzip data is corrupt ({error})") from error


def _parse(path: Path, stream: BinaryIO, dimensions: int, compressed: int | None = None) -> NDArray[np.uint8]:
    """`compressed`: the bytes of the file, if what is read are not its own."""
    header = _read_at_most(stream, 4 + 4 * dimensions)
    expected = bytes((0, 0, UNSIGNED_BYTES, dimensions))
    if header[:4] != expected[: len(header)]:
        raise ValueError(
            f"{path}: not an IDX file of unsigned bytes with {dimensions} dimension{'s' * (dimensions > 1)}: "
            f"it starts with {header[:4].hex(' ')}, expected {expected.hex(' ')}"
        )
    if len(header) < 4 + 4 * dimensions:
        raise ValueError(f"{path}: only {len(header)} bytes, less than an IDX header: the file is truncated")
    shape = struct.unpack(f">{dimensions}I", header[4:])
    count = math.prod(shape)
    most = count if compressed is None else min(count, unpacked(compressed))
    data = _read_at_most(stream, most + 1)  # one more: it shows left-overs, and makes gzip check its sum
    if compressed is not None:
        check_unpacked(str(path), len(data), compressed)
    sizes = " x ".join(map(str, shape))
    if len(data) < count:
        raise ValueError(f"{path}: the header promises {sizes} bytes, {len(data)} follow: the file is truncated")
    if len(data) > count:
        raise ValueError(f"{path}: more bytes follow than the {sizes} that the header promises")
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)


def _read_at_most(stream: BinaryIO, count: int) -> bytes:
    """Up to `count` bytes, in chunks, so that a header's false promise costs no memory."""
    chunks: list[bytes] = []
    while count > 0 and (chunk := stream.read(min(count, CHUNK))):
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)
