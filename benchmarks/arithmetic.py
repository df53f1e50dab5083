"""How fast the machine multiplies and adds when nothing has to come from memory: a loop over registers.

The rate of a library's large product depends on how well the library knows the processor; this does not.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from anyrnn.backends.llvm import run
from anyrnn.backends.llvm.builder import Function, Module, const, i64
from anyrnn.backends.llvm.factors import add_product, weight_at
from anyrnn.backends.llvm.target import compile_module, machine

ROUNDS = 1_000_000


class Arithmetic:
    """The loop, for one element type and a number of threads."""

    def __init__(self, dtype: str, threads: int) -> None:
        narrow = run.IN_PAIRS if run.multiplies_pairs() else "float32"
        self.element = run.element(narrow if dtype == "bfloat16" else dtype)
        self.threads = threads
        self.chains = min(24, machine().registers - 4)
        """sums that do not wait for each other: enough to hide the latency, as many as registers hold"""
        module = Module(fused=machine().fused)
        self._write(module.function("multiply_and_add", [("ptr", "place"), ("i64", "rounds")], internal=False))
        (address,) = compile_module(module, "multiply_and_add")
        self.function: Callable[[int, int], None] = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(address)
        self.pool = ThreadPoolExecutor(threads)

    def _write(self, b: Function) -> None:
        (place, rounds), e = b.arguments, self.element
        factor = weight_at(b, e, place, 0, e.bytes)
        loop = b.loop("round", 0, rounds, 1, [(f"sum.{k}", const(e.vector, 0.0)) for k in range(self.chains)])
        total, *others = b.end(loop, [add_product(b, factor, factor, value) for value in loop.values])
        for value in others:
            total = b.fadd(total, value)
        b.store(total, b.at(place, i64(e.lanes), e.type), e.bytes)
        b.ret()

    def rate(self) -> float:
        """Flops a second, of all threads together."""
        places = [ctypes.create_string_buffer(4 * machine().vector_bytes) for _ in range(self.threads)]
        start = time.perf_counter()
        list(self.pool.map(lambda place: self.function(ctypes.addressof(place), ROUNDS), places))
        return (
            2 * self.element.together * self.element.lanes * self.chains * ROUNDS * self.threads / (time.perf_counter() - start)
        )
