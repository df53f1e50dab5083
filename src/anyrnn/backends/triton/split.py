"""In what blocks a launch of the steps works, by a small model of the device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from anyrnn.backends.triton.device import Device, interpreted
from anyrnn.backends.triton.lower import Lowered
from anyrnn.passes.parameters import Weight
from anyrnn.passes.plan import Program

ROWS = 16
"""Samples of a block, the least that products of matrices take."""
FEATURES = (32, 16)
"""Features of a block: the larger where they are enough for all multiprocessors."""
HOLDING_ROWS, HOLDING_FEATURES = (16, 32, 64), (16, 32, 64, 128)
"""The same of programs that hold their weights: they have one block of features each, and all must be there at once."""
MOST_WARPS = 16
FACTORS = 256
"""Of products without tensor cores, a thread that makes more than one number of a block has at most so many factors of weights
for each matrix: with more Triton keeps them in registers that there are not (compiled for compute capability 9.0).
"""
SCAN_STEPS = 64
"""Steps of a block of a scan; of fewer, a loop is as good."""
LOOPS = 2
"""With more programs than so many for each multiprocessor, a loop fills the device."""


@dataclass(frozen=True)
class Blocks:
    """Rows, features and depth of a block of a product; the features of a block of a reduction, which are part of the order of
    its sum; among how many programs the features are shared.
    """

    rows: int = ROWS
    features: int = FEATURES[0]
    depth: int = 32
    reduced: int = 64
    columns: int = 1
    warps: int = 4
    scans: bool = False
    """whether scans over time are in the place of the loop"""
    holds: bool = False
    """whether a program loads the weights of its features once, before the steps; then its blocks are as deep as any product"""

    def constants(self, dtype: torch.dtype, precision: str, packed: bool) -> dict[str, Any]:
        """As generated functions call them."""
        import triton.language as tl

        compute = tl.float64 if dtype is torch.float64 else tl.float32
        operand = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}.get(dtype, compute)
        if dtype is torch.bfloat16 and interpreted():  # which multiplies the bits of these
            operand = compute
        return {
            "BLOCK_N": self.rows, "BLOCK_F": self.features, "BLOCK_K": self.depth, "BLOCK_R": self.reduced,
            "COLUMN_PROGRAMS": self.columns, "COMPUTE": compute, "OPERAND": operand, "PRECISION": precision, "PACKED": packed,
        }  # fmt: skip

    def of_scans(self, dtype: torch.dtype) -> dict[str, Any]:
        """As the functions of scans call them."""
        import triton.language as tl

        return {"BLOCK_T": SCAN_STEPS, "BLOCK_F": FEATURES[-1], "COMPUTE": tl.float64 if dtype is torch.float64 else tl.float32}


def precision_of(dtype: torch.dtype) -> str:
    """How products of steps are made, by Triton's names: of float32 in TF32 where torch's setting allows that."""
    return "tf32" if dtype is torch.float32 and torch.backends.cuda.matmul.allow_tf32 else "ieee"


@dataclass(frozen=True)
class StepWeights:
    """The matrices that the kernels of a step multiply by: their bytes; how many there are, the features of the longest operand,
    and the bytes of a number. `blocks`: whether any is block-diagonal. `tensor_cores`: whether these multiply.
    """

    bytes: int
    count: int
    depth: int
    element: int
    blocks: bool
    tensor_cores: bool


def choose(program: Program, weights: StepWeights, features: int, rows: int, device: Device) -> Blocks:
    """The blocks for so many features of the widest kernel and so many rows."""
    waits = len(program.body) * device.barrier if program.waits else 0.0
    found, seconds = _reading(weights, features, rows, device, waits)
    for blocks in holding(weights, features, rows, device):
        needed = weights.bytes / blocks.columns / device.held_bytes_a_second + (waits if blocks.columns > 1 else 0.0)
        if needed < seconds:
            found, seconds = blocks, needed
    return found


def holding(weights: StepWeights, features: int, rows: int, device: Device) -> Iterator[Blocks]:
    """The blocks of programs that hold their weights, where these fit beside an operand's rows: few programs first."""
    if not weights.count or weights.blocks:
        return
    depth = max(16, triton_size(weights.depth))
    for samples in HOLDING_ROWS:
        for size in (size for size in reversed(HOLDING_FEATURES) if size <= max(16, triton_size(features))):
            warps = min(MOST_WARPS, max(4, size // 8) if weights.tensor_cores else samples * size // 32)
            blocks = Blocks(samples, size, depth, columns=-(-features // size), warps=warps, holds=True)
            numbers = samples * size // (32 * warps)
            if numbers > 1 and numbers * depth > FACTORS and not weights.tensor_cores:
                continue
            together = blocks.columns == 1 or blocks.columns * -(-rows // samples) <= device.multiprocessors
            if together and held_bytes(blocks, weights) <= device.shared_bytes:
                yield blocks


def held_bytes(blocks: Blocks, weights: StepWeights) -> int:
    """Of shared memory at the most: a program's part of the weights, the rows that it multiplies them by, and what it makes."""
    sums = max(4, weights.element)
    held = weights.count * blocks.depth * blocks.features * weights.element
    return held + blocks.rows * (blocks.depth + blocks.features) * sums


def told_of_weights(blocks: Blocks, weights: StepWeights, device: Device) -> str:
    """Where programs have the weights of the steps, and why."""
    if not weights.count:
        return ""
    room = f"{device.shared_bytes / 1024:.0f} KB of a multiprocessor"
    if blocks.holds:
        return f"weights are held on chip, in {held_bytes(blocks, weights) / 1024:.0f} of the {room}"
    if weights.blocks:
        return "weights are read in every step, as block-diagonal ones are"
    if blocks.columns == 1:
        return f"weights are read in every step, {weights.bytes / 1024:.0f} KB: to share them would cost more than to read them"
    return f"weights are read in every step, as {weights.bytes / blocks.columns / 1024:.0f} KB for each do not fit the {room}"


def told_of_speed(blocks: Blocks, weights: StepWeights, rows: int, dtype: torch.dtype, device: Device) -> str:
    """What would make the steps faster."""
    found = []
    if weights.count and dtype is torch.float32 and not weights.tensor_cores:
        found.append("products in TF32 (torch.set_float32_matmul_precision('high')), or bfloat16, go to tensor cores")
    if dtype is torch.float64:
        found.append("float32 is many times as fast")
    programs = -(-rows // blocks.rows) * blocks.columns
    if not blocks.scans and 2 * programs <= device.multiprocessors:
        found.append(f"a larger batch is free: {programs} of {device.multiprocessors} multiprocessors have work")
    return "; ".join(found)


def triton_size(size: int) -> int:
    """The power of two that a block of so many numbers has."""
    return 1 << max(0, size - 1).bit_length()


def _reading(weights: StepWeights, features: int, rows: int, device: Device, waits: float) -> tuple[Blocks, float]:
    """The blocks of programs that read their weights in every step, and the seconds that it takes."""
    row_blocks = -(-rows // ROWS)
    room = max(1, device.multiprocessors // max(1, row_blocks))
    sizes = [size for size in FEATURES if -(-features // size) >= room]
    size = sizes[0] if sizes else FEATURES[-1] if room > 1 else FEATURES[0]
    parts = min(room, -(-features // size))
    alone, together = weights.bytes / device.bytes_a_second, weights.bytes / device.bytes_a_second / parts + waits
    if parts > 1 and (together < alone or not waits):
        return Blocks(features=size, columns=parts), together
    return Blocks(), alone


def worth_scans(blocks: Blocks, steps: int, rows: int, device: Device) -> bool:
    """Whether a loop without barriers has so many steps, for so few programs, that scans are better where there can be any."""
    programs = -(-rows // blocks.rows) * blocks.columns
    return steps >= SCAN_STEPS and programs <= LOOPS * device.multiprocessors


def step_weights(lowered: Lowered, weights: tuple[Weight, ...], sizes: dict[str, int], dtype: torch.dtype) -> StepWeights:
    """Those of a program."""
    element = dtype.itemsize
    terms = {(term.weight, term.transposed): term for term in lowered.late_terms}
    read = {term.weight for term in terms.values()}
    shapes = {w.name: tuple(dim.evaluate(sizes) for dim in w.shape) for w in weights if w.name in read}
    bytes = element * sum(map(math.prod, shapes.values()))
    depth = max(
        (shapes[t.weight][0 if t.transposed else 1] * (1 if t.transposed else t.heads) for t in terms.values()), default=0
    )
    tensor_cores = element == 2 or precision_of(dtype) != "ieee"
    return StepWeights(bytes, len(terms), depth, element, any(term.heads > 1 for term in terms.values()), tensor_cores)
