"""Masks of weights that are kept at random, drawn by native code: they are as many as the weights."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from anyrnn._cache import remembered
from anyrnn.backends.llvm import target
from anyrnn.backends.llvm.builder import I64, Module, const
from anyrnn.backends.llvm.random import are_kept, keys_of, random_words

LANES = 16
"""Numbers that are drawn at once; a row of a mask is rounded up to so many."""
ARGUMENTS = ("rows", "columns", "seed", "stream", "threshold")


def draw(seed: int, stream: int, threshold: int, rows: int, columns: int) -> npt.NDArray[np.bool_]:
    """What `ir.philox.Chances.kept` gives for weights, [rows, columns]."""
    mask = np.empty((rows, -(-columns // LANES) * LANES), np.bool_)
    signed = ctypes.c_int64(seed).value
    _native()(mask.ctypes.data, rows, mask.shape[1], signed, stream, threshold)
    return mask[:, :columns]


@lru_cache(maxsize=1)
def _native() -> Callable[..., None]:
    text = _text()
    binary = remembered("mask", f"{text} {target.identity()}", lambda: target.object_code(text))
    (address,) = target.load(binary, "mask")
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * len(ARGUMENTS))(address)


def _text() -> str:
    """`mask(ptr out, i64 rows, i64 columns, i64 seed, i64 stream, i64 threshold)`: a byte for each, 1 if kept."""
    module = Module(fused=False)
    b = module.function("mask", [("ptr", "out"), *[("i64", name) for name in ARGUMENTS]], internal=False)
    out, rows, columns, seed, stream, threshold = b.arguments
    keys = keys_of(b, seed, LANES)
    row = b.loop("row", 0, rows)
    column = b.loop("column", 0, columns, LANES)
    words = random_words(b, keys, column.index, row.index, const(I64, 0), stream, LANES)
    kept = are_kept(b, words, threshold, LANES)
    at = b.at(out, b.add(b.mul(row.index, columns), column.index), "i8", "at")
    b.store(b.cast("zext", kept, f"<{LANES} x i8>", "bytes"), at, 1)
    b.end(column)
    b.end(row)
    b.ret()
    return str(module)
