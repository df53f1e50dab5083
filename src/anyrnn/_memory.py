"""Memory for native code."""

from __future__ import annotations

import math
import mmap
import os
import threading
import weakref
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


class Recycler:
    """Large blocks that are used again when the array on them is gone.

    The C library gives large blocks back to the system, which hands out memory page by page when it is first written, and clears
    it: for the output of a quick layer that takes longer than to compute it. What rests here is at most `bytes`, and never makes
    more of what was in use at one time: a new block comes in place of resting ones.
    """

    def __init__(self, bytes: int = 2**30) -> None:
        self.bytes = bytes
        self.rest: list[mmap.mmap] = []
        self._new_lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._new_lock)

    def _new_lock(self) -> None:
        self.lock = threading.RLock()  # a finalizer may run while the same thread holds it

    def array(self, bytes: int) -> npt.NDArray[Any]:
        """Uninitialised bytes at a page's beginning."""
        block = self._take(bytes)
        array = np.frombuffer(block, np.uint8, bytes)
        weakref.finalize(array, self._give, block).atexit = False  # what lives on at exit is still read
        return array

    def _take(self, bytes: int) -> mmap.mmap:
        with self.lock:
            fitting = [b for b in self.rest if bytes <= len(b) <= 2 * bytes]
            if fitting:
                best = min(fitting, key=len)
                with suppress(ValueError):  # a finalizer let it go just now
                    self.rest.remove(best)
                    return best
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
        with self.lock:
            self.rest.append(block)
            while sum(map(len, self.rest)) > self.bytes:
                self.rest.pop(0)


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
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + bytes]


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """An uninitialised array, from `LARGE` bytes on in recycled memory."""
    bytes = math.prod(shape) * dtype.itemsize
    return np.empty(shape, dtype) if bytes < LARGE else aligned(bytes).view(dtype).reshape(shape)
