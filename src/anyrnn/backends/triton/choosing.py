"""In which blocks the steps of a layer run: those that the model chooses, but for what a device has refused."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch

from anyrnn.backends.triton import launch, telling
from anyrnn.backends.triton.device import Device, device_of
from anyrnn.backends.triton.memory import Extent
from anyrnn.backends.triton.split import Blocks, StepWeights, choose, precision_of, seconds_of, step_weights, worth_scans
from anyrnn.passes.compile import Plan
from anyrnn.sequence.network import Network

NOT_SCATTERED: set[object] = set()
"""What of `_key` scatters no sums, though the model thought that there is room."""
TOO_LARGE: set[object] = set()
"""What of `_key` holds no weights, though the model thought that they fit."""
NOT_AHEAD: set[object] = set()
"""What of `_key` has no room for more than one block of a product."""
FEW_STEPS, FEW_ROWS, MOST_LATER = 4, 64, 3e-5
"""Steps, and rows of all of them, of a call without gradients whose inputs may be multiplied in the steps, and seconds that this
may take more there: a product and a sum of biases before them took the processor beside an H100 50 us, and the device 10.
"""


def _key(
    network: Network, which: str, layer: int, extent: Extent, dtype: torch.dtype, device: torch.device
) -> tuple[Plan, str, tuple[tuple[str, int], ...], int, torch.dtype, str, int, Device]:
    """What the blocks of a layer's loop depend on. The last but one: the steps of a call of few."""
    sizes = tuple(sorted(network.layer_sizes(layer).items()))
    found, few = device_of(device), which == "inference" and extent.steps <= FEW_STEPS and extent.total <= FEW_ROWS
    return network.plan, which, sizes, extent.rows, dtype, precision_of(dtype, found), extent.steps * few, found


@lru_cache(maxsize=256)
def _wanted(
    plan: Plan, which: str, sizes: tuple[tuple[str, int], ...], dtype: torch.dtype, precision: str, late: bool
) -> tuple[StepWeights, int]:
    """What the steps of a layer multiply by, in products of a kind, and the features of the widest kernel."""
    lowered = launch.lowered(plan, which, late=late)
    kernels = [kernel for stage in lowered.loop for kernel in stage.kernels]
    widest = max((kernel.dim.evaluate(dict(sizes)) for kernel in kernels if kernel.dim is not None), default=1)
    return step_weights(lowered, plan.phase.weights, dict(sizes), dtype, precision), widest


@lru_cache(maxsize=256)
def _chosen(
    plan: Plan,
    which: str,
    sizes: tuple[tuple[str, int], ...],
    rows: int,
    dtype: torch.dtype,
    precision: str,
    steps: int,
    device: Device,
    may_hold: bool,
    may_scatter: bool,
) -> Blocks:
    """`steps`: of few; of others it does not matter how many they are."""
    program, kind = getattr(plan, which), (plan, which, sizes, dtype, precision)
    weights, features = _wanted(*kind, late=False)
    weights = weights if may_scatter else replace(weights, scattered=None)
    blocks = choose(program, weights, features, rows, device, may_hold)
    if not steps:
        return blocks
    of_late, _ = _wanted(*kind, late=True)
    late = choose(program, of_late, features, rows, device, may_hold=False)  # to hold them would be to read them once, too
    later = seconds_of(program, late, of_late, features, device) - seconds_of(program, blocks, weights, features, device)
    return replace(late, late=True) if steps * later <= MOST_LATER else blocks


def precision(dtype: torch.dtype, device: torch.device) -> str:
    """How products of steps are made there, see `precision_of`."""
    return precision_of(dtype, device_of(device))


def refuse(
    blocks: Blocks, network: Network, which: str, layer: int, extent: Extent, dtype: torch.dtype, device: torch.device
) -> None:
    """Say that Triton found less room on chip than was reckoned with: no sums are scattered, or weights are read, or not ahead,
    from then on.
    """
    refusals = NOT_SCATTERED if blocks.scatters else TOO_LARGE if blocks.holds else NOT_AHEAD
    refusals.add(_key(network, which, layer, extent, dtype, device))


def blocks_of(network: Network, which: str, layer: int, extent: Extent, dtype: torch.dtype, device: torch.device) -> Blocks:
    """The blocks in which the steps of a layer run."""
    program, key = getattr(network.plan, which), _key(network, which, layer, extent, dtype, device)
    blocks = _chosen(*key, key not in TOO_LARGE, key not in NOT_SCATTERED)
    worth = not program.waits and extent.counts is None and worth_scans(blocks, extent.steps, extent.rows, device_of(device))
    blocks = replace(blocks, stages=1) if key in NOT_AHEAD else blocks
    return replace(blocks, scans=worth and launch.program_of(network.plan, which, scans=True) is not None)


def told(
    network: Network, which: str, layer: int, extent: Extent, dtype: torch.dtype, device: torch.device
) -> tuple[str, list[str]]:
    """Where the programs of a layer have the weights of the steps, and why; and what would be faster."""
    key = plan, _, sizes, rows, _, precision, _, found = _key(network, which, layer, extent, dtype, device)
    blocks = blocks_of(network, which, layer, extent, dtype, device)
    weights, widest = _wanted(plan, which, sizes, dtype, precision, blocks.late)
    where = telling.of_weights(blocks, weights, widest, rows, found, key in TOO_LARGE)
    return where, telling.of_speed(blocks, weights, rows, dtype, found)
