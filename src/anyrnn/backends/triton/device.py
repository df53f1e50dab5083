"""What the model of `split` knows of a device: what it is told, and what was measured once for its kind and kept on disk."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import torch

from anyrnn._cache import remembered
from anyrnn._locks import ForkedLock

LOCK = ForkedLock()
ROUNDS = 5
TIMES = 200, 1200
"""How often a kernel does what is measured: the difference counts, so that a launch does not."""
READ = 2**13
"""How many float32 each program reads at a time: all together are 4 MB for 132 programs, which the second cache holds."""
PLAUSIBLE = 1e-7, 1e-4
"""Seconds of a barrier, or of reading so much, at the least and at the most."""
MEASURED: dict[int, Device] = {}


class ImplausibleError(Exception):
    """A measurement that cannot be right."""


@dataclass(frozen=True)
class Device:
    """A device. The rates here are what an H100's steps came to; where it can be, `bytes_a_second` and `barrier` are measured."""

    multiprocessors: int
    shared_bytes: int = 232448
    """that a program may have on its multiprocessor"""
    bytes_a_second: float = 5.6e10
    """at which one multiprocessor reads what is in the second cache, when it reads much"""
    products_a_second: float = 8.8e11
    """of 16 bits, that the four warps of one make and add up on tensor cores"""
    read_block: float = 3e-7
    """seconds of a block of an operand and of the weights that it is multiplied by, where both are read"""
    sums_a_second: float = 8.3e8
    """of products, that one makes something of: a step's elementwise values"""
    parted_a_second: float = 1e10
    """float32 that one takes apart"""
    tiles_a_second: float = 2.7e7
    """of a sum that is scattered, that one puts down for another program, and that it adds up"""
    barrier: float = 1e-6
    """seconds that all programs wait for each other"""
    has_bfloat16: bool = True
    """whether tensor cores multiply it"""


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, for which no device is needed."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def device_of(device: torch.device) -> Device:
    """In Triton's interpreter, where programs run one after the other, one multiprocessor, which holds nothing. While a graph of
    launches is captured nothing is measured, but what was is known.
    """
    if device.type != "cuda":
        return Device(1, shared_bytes=0)
    index = torch.cuda.current_device() if device.index is None else device.index
    if index not in MEASURED:
        if torch.cuda.is_current_stream_capturing():
            return _told(index)
        with LOCK.now:
            MEASURED[index] = MEASURED.get(index) or _measured(index)
    return MEASURED[index]


@lru_cache(maxsize=16)
def _told(index: int) -> Device:
    from triton.runtime import driver

    shared_bytes = driver.active.utils.get_device_properties(index)["max_shared_mem"]
    properties = torch.cuda.get_device_properties(index)
    return Device(properties.multi_processor_count, shared_bytes, has_bfloat16=properties.major >= 8)


def _measured(index: int) -> Device:
    """Without what cannot be, as of a device that others use, or could not be measured."""
    import triton

    told, name = _told(index), torch.cuda.get_device_name(index)
    try:
        with torch.cuda.device(index):
            key = f"{name} {told} triton {triton.__version__}"
            barrier, rate = remembered("device", key, partial(measure, told.multiprocessors))
    except Exception:  # noqa: BLE001  (whatever a device or a driver refuses: the calls that ask can be made without)
        return told
    return replace(told, barrier=barrier, bytes_a_second=rate)


def measure(programs: int, device: str = "cuda") -> tuple[float, float]:
    """Seconds of a barrier of so many programs, and the bytes a second that each reads of the second cache when all do. Raises:
    ImplausibleError.
    """
    from anyrnn.backends.triton import functions

    how: dict[str, Any] = {} if interpreted() else {"num_warps": 8, "launch_cooperative_grid": True}
    counter = torch.zeros(1, dtype=torch.int32, device=device)
    numbers, sums = (torch.zeros(programs, READ, device=device) for _ in range(2))

    def wait(times: int) -> None:
        counter.zero_()
        functions.wait_often[(programs,)](counter, times, COLUMN_PROGRAMS=programs, **how)

    def read(times: int) -> None:
        functions.read_often[(programs,)](numbers, sums, times, BLOCK=READ, **how)

    return _each(wait), READ * numbers.element_size() / _each(read)


def _each(run: Callable[[int], None]) -> float:
    """Seconds of one of the times that a kernel does something."""
    few, many = TIMES
    found = (milliseconds(partial(run, many)) - milliseconds(partial(run, few))) / 1e3 / (many - few)
    if not PLAUSIBLE[0] <= found <= PLAUSIBLE[1]:
        raise ImplausibleError(f"{found} seconds")
    return found


def milliseconds(run: Callable[[], object]) -> float:
    """The median of some runs after two that may compile, by the device's clock."""
    for _ in range(2):
        run()
    found = []
    for _ in range(ROUNDS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end))
    return float(statistics.median(found))
