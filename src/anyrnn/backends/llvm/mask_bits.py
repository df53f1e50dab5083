"""The masks of random choices: of each row and vector of a choice a bit for each feature that is kept.

Before anything reads them they are drawn into buffers [row][panel], see `draws`: those that are the same in all steps once a
call, those of each step chunk by chunk. Of the latter a training pass leaves the masks for the backward pass.
"""

from __future__ import annotations

from anyrnn.backends.llvm.builder import Function, Value, i64


def mask_bytes(lanes: int) -> int:
    """Of a vector's mask."""
    return max(1, lanes // 8)


def row_bytes(features: int, lanes: int) -> int:
    """Of the masks of a row."""
    return -(-features // lanes) * mask_bytes(lanes)


def mask_at(b: Function, row_at: Value, feature: Value, lanes: int) -> Value:
    """Of a row's masks, that of a vector."""
    panel = b.binary("lshr", feature, i64(lanes.bit_length() - 1), "panel")
    return b.at(row_at, b.mul(panel, mask_bytes(lanes)), "i8", "mask_at")


def load_mask(b: Function, at: Value, lanes: int) -> Value:
    count = max(8, lanes)
    bits = b.load(f"i{count}", at, "bits", 1)
    narrow = b.cast("trunc", bits, f"i{lanes}", "bits") if lanes < count else bits
    return b.cast("bitcast", narrow, f"<{lanes} x i1>", "kept")


def store_mask(b: Function, mask: Value, at: Value, lanes: int) -> None:
    bits = b.cast("bitcast", mask, f"i{lanes}", "bits")
    b.store(b.cast("zext", bits, "i8", "bits") if lanes < 8 else bits, at, 1)
