"""Makes Triton's interpreter quicker. Sums and scans of several values at once are made a whole array at a time: it would call
the function that two are joined with for every number, which took most of the time of these tests. Random words are drawn by the
other backends' function, as ten rounds of it operator by operator took most of the time of those with random choices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import triton.language as tl
from triton.runtime import interpreter

from anyrnn.ir.philox import philox

PHILOX = tl.philox_impl


def combined(self: Any, left: list[Any], right: list[Any], like: Any) -> list[Any]:
    """Two of each value as one, by the function; arrays."""
    tensors = [self.to_tensor(array, one.dtype) for array, one in zip((*left, *right), (*like, *like), strict=True)]
    found = self.combine_fn.fn(*tensors)
    return [one.handle.data for one in (found if isinstance(found, tuple) else (found,))]


def reduced(self: Any, input: Any) -> list[Any]:
    """In the place of `ReduceOps.generic_reduce`: halves are added up, and their halves."""
    assert self.axis is not None
    assert not self.keep_dims
    arrays = [np.moveaxis(one.handle.data, self.axis, 0) for one in input]
    while len(arrays[0]) > 1:
        half = len(arrays[0]) // 2
        arrays = combined(self, [a[:half] for a in arrays], [a[half:] for a in arrays], input)
    return [self.to_tensor(a[0], one.dtype) for a, one in zip(arrays, input, strict=True)]


def scanned(self: Any, input: Any) -> list[Any]:
    """In the place of `ScanOps.generic_scan`: each with the one before it, then with the one before these two, and so on."""
    arrays = [np.moveaxis(one.handle.data, self.axis, 0) for one in input]
    distance = 1
    while distance < len(arrays[0]):
        later = combined(self, [np.roll(a, distance, 0) for a in arrays], arrays, input)
        arrays = [np.concatenate([a[:distance], b[distance:]]) for a, b in zip(arrays, later, strict=True)]
        distance *= 2
    return [self.to_tensor(np.moveaxis(a, 0, self.axis), one.dtype) for a, one in zip(arrays, input, strict=True)]


def called(self: Any, *arguments: Any, **named: Any) -> Any:
    """In the place of `InterpretedFunction.__call__`, of what a launched function calls: for ours, which have the same language,
    that is patched already; Triton's own have another name for it.
    """
    if "tl" not in self.fn.__globals__:
        interpreter._patch_lang(self.fn)
    return self.rewrite()(*arguments, **named)


def drawn(*words: Any) -> tuple[Any, ...]:
    """In the place of `tl.philox_impl`, of 32 bits."""
    c0, c1, c2, c3, k0, k1 = (word.handle.data.astype(np.uint64) for word in words)
    found = [word.astype(np.uint32) for word in philox((c0, c1, c2, c3), (k0, k1))]
    handles = [interpreter.TensorHandle(word, tl.uint32) for word in found]
    return tuple(tl.core.tensor(handle, tl.block_type(tl.uint32, list(handle.data.shape))) for handle in handles)


DTYPES: dict[str, Any] = {}
FIND_DTYPE = interpreter._get_np_dtype


def dtype_of(of: Any) -> Any:
    """In the place of `interpreter._get_np_dtype`, which makes a table of all of them each time."""
    name = of.scalar.name
    if name not in DTYPES:
        DTYPES[name] = FIND_DTYPE(of)
    return DTYPES[name]


def make_quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter.InterpretedFunction, "__call__", called)
    monkeypatch.setattr(interpreter, "_get_np_dtype", dtype_of)
    monkeypatch.setattr(tl, "philox_impl", drawn)
    monkeypatch.setattr(interpreter.ReduceOps, "generic_reduce", reduced)
    monkeypatch.setattr(interpreter.ScanOps, "generic_scan", scanned)
