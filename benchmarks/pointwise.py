"""How long the machine takes for arithmetic that is no product: one function after another, of vectors in the nearest cache."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from anyrnn._memory import aligned
from anyrnn.backends.llvm.builder import Function, Module, Value, const, i64, vector
from anyrnn.backends.llvm.spelling import SPELLINGS
from anyrnn.backends.llvm.target import compile_module, machine
from anyrnn.ir.ops import TABLE

COSTLY = tuple(op.name for op in TABLE.values() if op.costly and op.name in SPELLINGS)
"""The others are one instruction, as a multiplication and an addition are."""
VECTORS, ROUNDS, TIMES = 64, 2000, 3
CHAINS = 4
"""Sums that do not wait for each other."""


class Pointwise:
    """A loop for each costly op, and one that only reads and adds."""

    def __init__(self, dtype: str, threads: int) -> None:
        self.type, self.bytes = ("double", 8) if dtype == "float64" else ("float", 4)  # in 16 bits too
        self.lanes, self.threads = machine().lanes(self.bytes), threads
        module = Module(fused=machine().fused)
        for name in ("nothing", *COSTLY):
            self._write(module.function(name, [("ptr", "place"), ("i64", "rounds")], internal=False), name)
        self.addresses = dict(zip(("nothing", *COSTLY), compile_module(module, "nothing", *COSTLY), strict=True))
        self.pool = ThreadPoolExecutor(threads)
        self.least: dict[str, float] = {}

    def _write(self, b: Function, op: str) -> None:
        place, rounds = b.arguments
        all_lanes = vector(self.type, self.lanes)
        sums = [(f"sum.{k}", const(all_lanes, 0.0)) for k in range(CHAINS)]
        again = b.loop("round", 0, rounds, 1, sums)
        carried = [(name, value) for (name, _), value in zip(sums, again.values, strict=True)]
        inner = b.loop("vector", 0, i64(VECTORS), CHAINS, carried)
        here, following = b.at(place, b.mul(inner.index, self.lanes * self.bytes), "i8"), []
        for k, total in enumerate(inner.values):
            value = b.load(all_lanes, b.at(here, k * self.lanes * self.bytes, "i8"), "v", self.bytes)
            made = value if op == "nothing" else self._applied(b, op, value)
            following.append(b.fadd(total, made, "sum"))
        first, *others = b.end(again, b.end(inner, following))
        for other in others:
            first = b.fadd(first, other)
        b.store(first, place, self.bytes)
        b.ret()

    def _applied(self, b: Function, op: str, value: Value) -> Value:
        return SPELLINGS[op](b, op, *[value] * (TABLE[op].arity or 1))

    def seconds(self) -> Mapping[str, float]:
        """For each costly op, of one element, when all threads work: the least of what was seen, now and before, without what the
        loop takes by itself.
        """
        for name in ("nothing", *COSTLY):
            self.least[name] = min(self._seconds(name), self.least.get(name, math.inf))
        return {name: max(0.0, self.least[name] - self.least["nothing"]) for name in COSTLY}

    def _seconds(self, name: str) -> float:
        function: Callable[..., None] = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(self.addresses[name])
        arrays = [aligned(VECTORS * self.lanes * self.bytes).view(f"f{self.bytes}") for _ in range(self.threads)]
        found = []
        for _ in range(TIMES):
            for array in arrays:
                array[:] = np.linspace(0.5, 2.0, array.size)
            start = time.perf_counter()
            list(self.pool.map(partial(self._part, function), arrays))
            found.append(time.perf_counter() - start)
        return min(found) / (ROUNDS * VECTORS * self.lanes * self.threads)

    def _part(self, function: Callable[..., None], array: np.ndarray) -> None:  # type: ignore[type-arg]
        function(array.ctypes.data, ROUNDS)
