"""In what blocks a launch of the steps works, by a small model of the device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from anyrnn.backends import tf32
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
    stages: int = 3
    """how many blocks of a product are on their way at once; one where weights are held: loads might be moved before a barrier"""

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
    return "tf32" if dtype is torch.float32 and tf32.allowed() else "ieee"


@dataclass(frozen=True)
class StepWeights:
    """The matrices that the kernels of a step multiply by: their bytes; how many there are, the features of the longest operand,
    and the bytes of a number. `block_diagonal`: whether any is. `tensor_cores`: whether these multiply.
    """

    bytes: int
    count: int
    depth: int
    element: int
    block_diagonal: bool
    tensor_cores: bool

    @property
    def speed(self) -> float:
        """How many products are made while one of float32 is made without tensor cores: by data sheets."""
        if self.tensor_cores:
            return 16.0 if self.element == 2 else 8.0
        return 0.5 if self.element == 8 else 1.0


def choose(program: Program, weights: StepWeights, features: int, rows: int, device: Device, may_hold: bool = True) -> Blocks:
    """The blocks for so many features of the widest kernel and so many rows. `may_hold`: whether programs may hold weights."""
    waits = len(program.body) * device.barrier if program.waits else 0.0
    one, several = Blocks(), _of_several(features, rows, device)
    found, seconds = one, _seconds(one, weights, features, device, waits)
    together = _seconds(several, weights, features, device, waits)
    if several.columns > 1 and (not waits or together < seconds):
        found, seconds = several, together
    for blocks in holding(weights, features, rows, device) if may_hold else ():
        needed = _seconds(blocks, weights, features, device, waits)
        if needed < seconds or (needed == seconds and not found.holds):
            found, seconds = blocks, needed
    return found


def _of_several(features: int, rows: int, device: Device) -> Blocks:
    """Of as many programs for each block of rows as the device has room for, which read their weights in every step."""
    row_blocks = -(-rows // ROWS)
    room = max(1, device.multiprocessors // max(1, row_blocks))
    sizes = [size for size in FEATURES if -(-features // size) >= room]
    size = sizes[0] if sizes else FEATURES[-1] if room > 1 else FEATURES[0]
    return Blocks(features=size, columns=min(room, -(-features // size)))


def _seconds(blocks: Blocks, weights: StepWeights, features: int, device: Device, waits: float) -> float:
    """Of a step of one program: to read its weights or to multiply by them, whichever takes longer, and to wait."""
    padded = -(-features // blocks.features // blocks.columns) * blocks.features
    depth = -(-weights.depth // blocks.depth) * blocks.depth
    multiplied = blocks.rows * weights.count * depth * padded / (device.products_a_second * weights.speed)
    if blocks.holds:
        read = weights.count * depth * padded * weights.element / device.held_bytes_a_second
    else:
        read = weights.bytes / blocks.columns / device.bytes_a_second
    return max(read, multiplied) + (waits if blocks.columns > 1 else 0.0)


def holding(weights: StepWeights, features: int, rows: int, device: Device) -> Iterator[Blocks]:
    """The blocks of programs that hold their weights, where these fit beside an operand's rows and all programs are there at
    once: few programs first.
    """
    for blocks in could_hold(weights, features):
        together = blocks.columns == 1 or blocks.columns * -(-rows // blocks.rows) <= device.multiprocessors
        if together and held_bytes(blocks, weights) <= device.shared_bytes:
            yield blocks


def could_hold(weights: StepWeights, features: int) -> Iterator[Blocks]:
    """The same for devices of any size."""
    if not weights.count or weights.block_diagonal:
        return
    depth = max(16, _power_of_two(weights.depth))
    for samples in HOLDING_ROWS:
        for size in (size for size in reversed(HOLDING_FEATURES) if size <= max(16, _power_of_two(features))):
            warps = min(MOST_WARPS, max(4, samples * size // (128 if weights.tensor_cores else 32)))
            numbers = samples * size // (32 * warps)
            if weights.tensor_cores or numbers == 1 or numbers * depth <= FACTORS:
                yield Blocks(samples, size, depth, columns=-(-features // size), warps=warps, holds=True, stages=1)


def held_bytes(blocks: Blocks, weights: StepWeights) -> int:
    """Of shared memory at the most: a program's part of the weights, the rows that it multiplies them by, and what it makes."""
    sums = max(4, weights.element)
    held = weights.count * blocks.depth * blocks.features * weights.element
    return held + blocks.rows * (blocks.depth + blocks.features) * sums


def _power_of_two(size: int) -> int:
    """That a block of so many numbers has."""
    return 1 << max(0, size - 1).bit_length()


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
    block_diagonal = any(term.heads > 1 for term in terms.values())
    return StepWeights(bytes, len(terms), depth, element, block_diagonal, tensor_cores)
