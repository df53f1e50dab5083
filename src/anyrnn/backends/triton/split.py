"""In what blocks a launch of the steps works, by a small model of the device."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from anyrnn.backends.triton.lower import Lowered
from anyrnn.passes.parameters import Weight
from anyrnn.passes.plan import Program

ROWS = 16
"""Samples of a block, the least that products of matrices take."""
FEATURES = (32, 16)
"""Features of a block: the larger where they are enough for all multiprocessors."""
SCAN_STEPS = 64
"""Steps of a block of a scan; of fewer, a loop is as good."""
LOOPS = 2
"""With more programs than so many for each multiprocessor, a loop fills the device."""


@dataclass(frozen=True)
class Device:
    """What the model knows of a device. The rates are of an H100's data sheet and have not been measured yet."""

    multiprocessors: int
    bytes_a_second: float = 4e10
    """at which one multiprocessor reads weights of the second cache"""
    barrier: float = 1.5e-6
    """seconds that all programs wait for each other"""


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


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, for which no device is needed."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


@lru_cache(maxsize=16)
def device_of(device: torch.device) -> Device:
    """In Triton's interpreter, where programs run one after the other, one multiprocessor."""
    if device.type != "cuda":
        return Device(1)
    return Device(torch.cuda.get_device_properties(device).multi_processor_count)


def precision_of(dtype: torch.dtype) -> str:
    """How products of steps are made, by Triton's names: of float32 in TF32 where torch's setting allows that."""
    return "tf32" if dtype is torch.float32 and torch.backends.cuda.matmul.allow_tf32 else "ieee"


def choose(program: Program, weight_bytes: int, features: int, rows: int, device: Device) -> Blocks:
    """The blocks for so many features of the widest kernel, rows, and bytes of weights that a step reads."""
    row_blocks = -(-rows // ROWS)
    room = max(1, device.multiprocessors // max(1, row_blocks))
    sizes = [size for size in FEATURES if -(-features // size) >= room]
    size = sizes[0] if sizes else FEATURES[-1] if room > 1 else FEATURES[0]
    parts = min(room, -(-features // size))
    waits = len(program.body) * device.barrier if program.waits else 0.0
    alone, together = weight_bytes / device.bytes_a_second, weight_bytes / device.bytes_a_second / parts + waits
    return Blocks(features=size, columns=parts) if parts > 1 and (together < alone or not waits) else Blocks()


def worth_scans(blocks: Blocks, steps: int, rows: int, device: Device) -> bool:
    """Whether a loop without barriers has so many steps, for so few programs, that scans are better where there can be any."""
    programs = -(-rows // blocks.rows) * blocks.columns
    return steps >= SCAN_STEPS and programs <= LOOPS * device.multiprocessors


def step_bytes(lowered: Lowered, weights: tuple[Weight, ...], sizes: dict[str, int], element: int) -> int:
    """Of the matrices that the kernels of a step read."""
    kernels = [k for stage in lowered.program.body for k in stage.kernels]
    read = {term.weight for kernel in kernels for i in kernel.affines for term in lowered.sum_of(kernel, i).terms}
    shapes = [w.shape for w in weights if w.name in read]
    return element * sum(rows.evaluate(sizes) * columns.evaluate(sizes) for rows, columns in shapes)
