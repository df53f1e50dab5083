"""Memory for native code."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn._locks import ForkedLock

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


def _find_madvise() -> Any:
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    function = getattr(ctypes.CDLL(None), "madvise", None)
    if function is not None:
        function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function


_madvise = _find_madvise()
_c = ctypes.CDLL(None if os.name == "posix" else "msvcrt")
_memcmp = _c.memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def same_bytes(one: int, other: int, count: int) -> bool:
    """Whether as many bytes from two addresses on are the same."""
    return not _memcmp(one, other, count)


def in_large_pages(address: int, bytes: int) -> None:
    """Ask the system to give memory that was never touched in large pages: it comes page by page when it is first written, and
    in small pages `LARGE` arrays take up to a fifth of a call. Nothing where the system has none.
    """
    start = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    whole = (address + bytes - start) // mmap.PAGESIZE * mmap.PAGESIZE
    if _madvise is not None and whole > 0:
        _madvise(start, whole, mmap.MADV_HUGEPAGE)


@cache
def keep_what_is_freed() -> None:
    """Let the C library keep arrays of up to 32 MB that were freed for the next ones. Else it gives them back to the system,
    which hands them out anew, page by page: at 28x200x28x256 in up to 30 of 50 calls of a layer, .8 to 5 ms each.

    glibc learns to (see M_MMAP_THRESHOLD in mallopt's manual page) when a block of up to 32 MB is freed. What a training call
    keeps would be one, but rests in a `Recycler`. It learns nothing where a user has set its thresholds.
    """
    _c.free(_c.malloc(LEARNT))


LEARNT = 2**25 - 2**16
"""Bytes: the most that it learns from."""
MAPPED = 2**17
"""Bytes from which on it gives blocks back until it has learnt."""
_c.malloc.restype = ctypes.c_void_p
_c.malloc.argtypes = [ctypes.c_size_t]
_c.free.argtypes = [ctypes.c_void_p]


def _memory_of_machine() -> int:
    """Bytes; a guess where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE
    except (AttributeError, OSError, ValueError):
        return 2**33


class _Lent(weakref.ref["npt.NDArray[Any]"]):
    """A reference that has the block on which the array is. It takes a third less time than `weakref.finalize`, which is felt
    where Python's own code is in no cache: once in each training call.
    """

    __slots__ = ("block",)
    block: mmap.mmap


class Recycler:
    """Large blocks that are used again when the array on them is gone.

    The C library gives every block above 32 MB back to the system at once, and touching it anew for each training step costs a
    tenth of the step, of gigabytes a third of its forward pass. What rests here is at most `bytes` in all (by default an eighth
    of the machine's memory), and a new block comes in place of resting ones. Of what rests beside a gigabyte the system may take
    the pages when it is short of memory.
    """

    def __init__(self, bytes: int | None = None) -> None:
        self.bytes = _memory_of_machine() // 8 if bytes is None else bytes
        self.rest: list[mmap.mmap] = []
        self.lent: dict[int, _Lent] = {}
        """by their identity: a reference cannot be hashed where the array cannot"""
        self.lock = ForkedLock(threading.RLock)  # an array may end while the same thread holds it

    def array(self, bytes: int) -> npt.NDArray[Any]:
        """Uninitialised bytes at a page's beginning."""
        block = self._take(bytes)
        array = np.frombuffer(block, np.uint8, bytes)
        lent = _Lent(array, self._return)
        lent.block = block
        self.lent[id(lent)] = lent
        return array

    def _return(self, lent: _Lent) -> None:
        del self.lent[id(lent)]
        self._give(lent.block)

    def _take(self, bytes: int) -> mmap.mmap:
        with self.lock.now:
            fitting = [b for b in self.rest if bytes <= len(b) <= 2 * bytes]
            if fitting:
                best = min(fitting, key=len)
                try:
                    self.rest.remove(best)
                    return best
                except ValueError:  # an array that ended let it go just now
                    pass
            released = 0
            while self.rest and released < bytes:
                released += len(self.rest.pop(0))
        try:
            block = mmap.mmap(-1, bytes, **PRIVATE)
        except OSError as error:
            raise MemoryError(f"anyrnn: the system has no {bytes} bytes of memory") from error
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a kernel without them
                block.madvise(mmap.MADV_HUGEPAGE)
        return block

    def _give(self, block: mmap.mmap) -> None:
        with self.lock.now:
            if hasattr(mmap, "MADV_FREE") and sum(map(len, self.rest)) + len(block) > SURELY_KEPT:
                with suppress(OSError):  # a kernel without it
                    block.madvise(mmap.MADV_FREE)
            self.rest.append(block)
            while sum(map(len, self.rest)) > self.bytes:
                self.rest.pop(0)


SURELY_KEPT = 2**30
"""Bytes. To say that pages may be taken costs some 50 us, and writing them anew a little."""
PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
"""A forked child gets a copy; Python's default is to share."""
LARGE = 4 * 2**20
"""Bytes from which on it pays."""
RECYCLER = Recycler()


def aligned(bytes: int) -> npt.NDArray[Any]:
    """Uninitialised bytes that begin at a multiple of `ALIGNMENT`, from `LARGE` on in recycled memory."""
    if bytes >= LARGE:
        return RECYCLER.array(bytes)
    raw = np.empty(bytes + ALIGNMENT, np.uint8)
    start = -addresses([raw])[0] % ALIGNMENT
    return raw[start : start + bytes]


def _by_ctypes(arrays: Iterable[npt.NDArray[Any]]) -> list[int]:
    return [array.ctypes.data for array in arrays]


def _from_structures(arrays: Iterable[npt.NDArray[Any]]) -> list[int]:
    """From where the C structures of NumPy have them, as code does that was compiled for any version of it: just behind the
    head of a Python object. To be told one takes a microsecond.
    """
    at, head = ctypes.c_size_t.from_address, object.__basicsize__
    return [at(id(array) + head).value for array in arrays]


def _structures_are_known() -> bool:
    some: list[npt.NDArray[Any]] = [np.zeros(3, np.float32), np.zeros((4, 5))[1:, 2:]]
    return sys.implementation.name == "cpython" and _from_structures(some) == _by_ctypes(some)


addresses: Callable[[Iterable[npt.NDArray[Any]]], list[int]] = _from_structures if _structures_are_known() else _by_ctypes
"""Where the numbers of arrays begin; of nothing but arrays, which is not looked at."""
SMALL = 2**15
"""Bytes of arrays whose calls are so short that the 2 us for finding an aligned place would be felt."""


def empty(shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """As np.empty, but aligned where it is not small: NumPy begins an array at any multiple of 16 bytes, so that each vector
    of it would stand in two lines of cache.
    """
    type = np.dtype(dtype)
    bytes = math.prod(shape) * type.itemsize
    return np.empty(shape, type) if bytes < SMALL else aligned(bytes).view(type).reshape(shape)
