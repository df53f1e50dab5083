"""Numbers as integers of eight bits, for products: the definition.

They are taken in blocks of `BLOCK` along the last axis. A block's scale is the largest magnitude over `MOST`, and a number
becomes the nearest multiple of it; a block of less than `LEAST` counts as zero. The scale of one with a number that is infinite
or NaN is NaN, and so are its products. A product is that of the numbers so rounded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

BLOCK = 512
"""Of so many products of two such integers the sum is below 2 ** 24: float32 has it exactly."""
MOST = 127
LEAST = 2.0**-100
"""A block whose largest magnitude is less is zero, so that no reciprocal of a scale is infinite."""


def rounded(numbers: Array) -> tuple[Array, Array]:
    """The integers, and the scales of their blocks in float32."""
    integers = np.empty(numbers.shape, np.int8)
    scales = np.empty((*numbers.shape[:-1], -(-numbers.shape[-1] // BLOCK)), np.float32)
    for k in range(scales.shape[-1]):
        here = (..., slice(k * BLOCK, (k + 1) * BLOCK))
        most = np.abs(numbers[here]).max(-1).astype(np.float32)
        some = ~(most < LEAST)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            reciprocal = np.where(some, np.float32(MOST) / most, np.float32(0)).astype(np.float64)
            integers[here] = np.nan_to_num(np.rint(numbers[here] * reciprocal[..., None]))  # 0 where the scale says all
            scales[..., k] = np.where(some, most / np.float32(MOST) + (most - most), np.float32(0))
    return integers, scales


def numbers_of(integers: Array, scales: Array, dtype: npt.DTypeLike = np.float32) -> Array:
    """What they stand for."""
    apart = np.repeat(scales, BLOCK, -1)[..., : integers.shape[-1]]
    return np.asarray(integers.astype(dtype) * apart.astype(dtype))
