"""The bytes of a file under its name, and what is found in them."""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from anyrnn.files import limits

Array = npt.NDArray[Any]


BFLOAT16 = "bfloat16"
_NAMES = "float64 float32 float16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool complex64 complex128"
DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(name) for name in _NAMES.split()}


class Content(NamedTuple):
    """What is in a file, in memory of its own that may be written to."""

    name: str
    data: npt.NDArray[np.uint8]


Source = str | os.PathLike[str] | bytes | Content
"""A path, or what is in a file."""


def regular(source: str | os.PathLike[str]) -> Path:
    """The path of a file that may be opened: opening a folder says so, but opening a pipe waits for ever, and a device may have
    no end.

    Raises: OSError; ValueError for what is no regular file.
    """
    path = Path(source)
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ValueError(f"{path}: not a regular file")
    return path


def content(source: Source) -> Content:
    """All bytes of a file, in one read.

    Raises: OSError; ValueError for what is no regular file, or changes while it is read.
    """
    if isinstance(source, Content):
        return source
    if isinstance(source, bytes):
        return Content("the bytes", np.frombuffer(source, np.uint8).copy())
    path = regular(source)
    with path.open("rb", buffering=0) as file:
        data = np.empty(os.fstat(file.fileno()).st_size, np.uint8)
        view, done = data.data, 0
        while done < len(view) and (count := file.readinto(view[done:])):
            done += count
        if done < len(view) or file.read(1):
            raise ValueError(f"{path}: its size changed while it was read")
    return Content(str(path), data)


def size_of(dtype: str) -> int:
    """The bytes of one number of a dtype in `DTYPES`, or of `BFLOAT16`."""
    return 2 if dtype == BFLOAT16 else DTYPES[dtype].itemsize


def array(where: str, data: npt.NDArray[np.uint8], dtype: str, shape: tuple[int, ...], *, big_endian: bool = False) -> Array:
    """Bytes as an array in this machine's byte order, aligned, in C order; shares their memory where it can.

    bfloat16, which NumPy has not, becomes float32, which holds the same numbers. Raises: ValueError that begins with `where`
    for a bool that is neither 0 nor 1, which NumPy would take.
    """
    if dtype == "bool" and data.max(initial=0) > 1:
        raise ValueError(f"{where}: a bool should be 0 or 1, got {data.max()}")
    there = np.dtype("u2") if dtype == BFLOAT16 else DTYPES[dtype]
    if data.ctypes.data % there.alignment:
        data = data.copy()
    found = data.view(there.newbyteorder(">" if big_endian else "<")).reshape(shape).astype(there, copy=False)
    return (found.astype(np.uint32) << 16).view(np.float32) if dtype == BFLOAT16 else found


class Cursor:
    """Takes one thing after the other from a file, and never more than there is."""

    def __init__(self, file: Content) -> None:
        self.name, self._data, self.at = file.name, file.data, 0

    @property
    def left(self) -> int:
        return len(self._data) - self.at

    def take(self, size: int, what: str) -> npt.NDArray[np.uint8]:
        if size > self.left:
            raise ValueError(f"{self.name}: {what} at byte {self.at} should have {size} bytes, {self.left} follow: truncated")
        self.at += size
        return self._data[self.at - size : self.at]

    def numbers(self, form: str, what: str) -> tuple[Any, ...]:
        """Numbers in `struct`'s notation."""
        return struct.unpack(form, self.take(struct.calcsize(form), what).data)

    def text(self, size: int, what: str) -> str:
        at = self.at
        try:
            return self.take(size, what).tobytes().decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.name}: {what} is not UTF-8 at byte {at + error.start}") from None


class Collected:
    """Arrays by name, and the names of what is no array, from a nested file whose names may be long and many."""

    def __init__(self, file: str, size: int) -> None:
        self.arrays: dict[str, Array] = {}
        self._file, self._room, self._left_out, self._count = file, limits.FREE + limits.TREE * size, list[str](), 0

    @property
    def metadata(self) -> dict[str, Any]:
        """`{"left out": [...]}` with at most 100 names, if there are any."""
        more = self._count - len(self._left_out)
        names = [*self._left_out, *([f"and {more} more"] if more else [])]
        return {"left out": names} if names else {}

    def add(self, name: str, value: Array) -> None:
        self.check(name)
        if name in self.arrays:
            raise ValueError(f"{self._file}: the name {limits.shown(name)} is there twice")
        self.arrays[name] = value

    def leave_out(self, name: str) -> None:
        self.check(name)
        self._count += 1
        if len(self._left_out) < 100:
            self._left_out.append(name)

    def check(self, name: str) -> None:
        """Count a name. Nested groups repeat the names of those above, so that they can take far more than the file."""
        limits.check_name(self._file, name)
        self._room -= 100 + len(name)
        if self._room < 0:
            raise ValueError(f"{self._file}: the names of all that is in it take more than {limits.TREE} times its size")
