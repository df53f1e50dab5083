"""How fast the machine reads: one array once and another again and again, each thread its own part, as a recurrent network of
one sample reads its weights. The rate depends on which caches hold the arrays.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import numpy.typing as npt
from torch import nn

from anyrnn._memory import ALIGNMENT, aligned
from anyrnn.backends.llvm.builder import Module, const, i64, vector
from anyrnn.backends.llvm.target import compile_module, machine
from anyrnn.torch.packed_weights import KNOWN
from benchmarks.measure import Reference

Bytes = npt.NDArray[np.uint8]

UNROLLED = 8
LEAST_SECONDS = 0.02


class Reading:
    """The loop, for a number of threads."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.bytes = machine().vector_bytes * UNROLLED
        """of a round"""
        lanes = machine().lanes(4)
        all_lanes = vector("float", lanes)
        module = Module(fused=machine().fused)
        b = module.function("read", [("ptr", "place"), ("i64", "rounds"), ("i64", "times"), ("ptr", "out")], internal=False)
        place, rounds, times, out = b.arguments
        zeros = [(f"sum.{k}", const(all_lanes, 0.0)) for k in range(UNROLLED)]
        again = b.loop("time", 0, times, 1, zeros, once=True)
        loop = b.loop("round", 0, rounds, 1, [(name, v) for (name, _), v in zip(zeros, again.values, strict=True)], once=True)
        here = b.at(place, b.mul(loop.index, i64(self.bytes)), "i8", "here")
        values = [b.load(all_lanes, b.at(here, k * machine().vector_bytes, "i8"), "v", 4) for k in range(UNROLLED)]
        done = b.end(loop, [b.fadd(total, v, "sum") for total, v in zip(loop.values, values, strict=True)])
        total, *others = b.end(again, done)
        for value in others:
            total = b.fadd(total, value)
        b.store(total, out, 4)
        b.ret()
        (address,) = compile_module(module, "read")
        self.function: Callable[..., None] = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p, ctypes.c_int64] * 2)(address)
        self.pool = ThreadPoolExecutor(threads)
        self.out = [aligned(machine().vector_bytes) for _ in range(threads)]

    def reference(self, once: int, again: int, steps: int, memory: Bytes | None = None) -> Reference:
        """A call that reads `once` bytes and then `steps` times some `again` bytes, all of it as often as takes some time: from
        the beginning and the end of some memory, or arrays of its own. Where a block of memory happens to stand decides which
        part of it the last cache holds: one of 28 MB was read at 125 GB/s again and again, another beside it at 165.
        """
        parts = [(bytes, often, at_end) for bytes, often, at_end in ((once, 1, False), (again, steps, True)) if bytes and often]
        arrays = [(self._array(bytes, memory, at_end), often) for bytes, often, at_end in parts]

        def read(times: int) -> None:
            list(self.pool.map(partial(self._part, arrays, times), range(self.threads)))

        times, seconds = 1, 0.0
        while seconds < LEAST_SECONDS / 2:
            start = time.perf_counter()
            read(times)
            seconds = time.perf_counter() - start
            times = max(times + 1, min(10**6, int(times * LEAST_SECONDS / seconds) + 1))
        return Reference(partial(read, times), times * sum(array.size * often for array, often in arrays))

    def _array(self, bytes: int, memory: Bytes | None, at_end: bool) -> Bytes:
        """Of about so many bytes: every thread has a whole number of rounds."""
        size = max(1, bytes // self.threads // self.bytes) * self.threads * self.bytes
        if memory is not None and len(memory) >= size:
            start = (len(memory) - size) // ALIGNMENT * ALIGNMENT if at_end else 0
            return memory[start : start + size]
        array: Bytes = aligned(size).view(np.uint8)
        array.fill(0)
        return array

    def _part(self, arrays: Sequence[tuple[Bytes, int]], times: int, part: int) -> None:
        for _ in range(times):
            for array, often in arrays:
                bytes = array.size // self.threads
                self.function(array.ctypes.data + part * bytes, bytes // self.bytes, often, self.out[part].ctypes.data)


def packed_weights(module: nn.Module) -> Bytes | None:
    """The memory in which a module's calls without gradients have packed its weights, those of the input first; None where they
    read them where they stand.
    """
    own = set(map(id, module.parameters()))
    found = [packed.memory for w in KNOWN.values() if not own.isdisjoint(w.tensors) for packed in w.resting]
    return found[-1].view(np.uint8) if found else None
