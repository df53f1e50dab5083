"""What `explain` says of the programs of a launch: where they have their weights, why, and what would be faster."""

from __future__ import annotations

import math

import torch

from anyrnn.backends.triton.device import Device
from anyrnn.backends.triton.split import Blocks, StepWeights, could_hold, held_bytes, holding


def of_weights(blocks: Blocks, weights: StepWeights, features: int, rows: int, device: Device, refused: bool) -> str:
    """`refused`: Triton found less room than was reckoned with."""
    if not weights.columns:
        return ""
    room = f"{device.shared_bytes / 1024:.0f} KB of a multiprocessor"
    if blocks.holds:
        where = f"weights are held on chip, in {held_bytes(blocks, weights) / 1024:.0f} of the {room}"
        return where + ("; sums are made where their operands are, and their parts passed on" if blocks.scatters else "")
    least = min((held_bytes(b, weights) for b in could_hold(weights, features)), default=0)
    if blocks.late:
        why = "there are few of these, and the input is multiplied in them too"
    elif refused:
        why = f"Triton found no room for a part of them in the {room}"
    elif weights.block_diagonal:
        why = "block-diagonal ones always are"
    elif not weights.tensor_cores:
        why = "all are that tensor cores do not multiply"
    elif least > device.shared_bytes:
        why = f"even the smallest part takes {least / 1024:.0f} KB, more than the {room}"
    elif not any(holding(weights, features, rows, device, math.inf)):
        why = f"{device.multiprocessors} multiprocessors are too few to hold a part each, for all samples at once"
    elif not any(holding(weights, features, rows, device)):
        why = "a step that held them would have more instructions than a multiprocessor keeps"
    else:
        why = "holding them would take as long"
    return f"weights are read in every step: {why}"


def of_speed(blocks: Blocks, weights: StepWeights, rows: int, dtype: torch.dtype, device: Device) -> list[str]:
    """What would make the steps faster."""
    found = []
    if weights.columns and dtype is torch.float32 and weights.precision != "tf32":
        found.append(
            f"products are {weights.products:.0f} of 16 bits each; TF32 (torch.set_float32_matmul_precision('high')) takes 2"
        )
    programs = -(-rows // blocks.rows) * blocks.columns
    if not blocks.scans and 2 * programs <= device.multiprocessors:
        found.append(f"a larger batch is free: {programs} of {device.multiprocessors} multiprocessors have work")
    return found
