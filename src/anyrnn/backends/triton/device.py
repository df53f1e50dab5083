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

ROUNDS = 5
TIMES = 200, 1200
"""How often a kernel does what is measured: the difference counts, so that a launch does not."""
READ = 2**13
"""How many float32 each program reads at a time: all together are 4 MB for 132 programs, which the second cache holds."""


@dataclass(frozen=True)
class Device:
    """A device. The rates here are of an H100's data sheet, in the place of those that are not measured."""

    multiprocessors: int
    shared_bytes: int = 232448
    """that a program may have on its multiprocessor"""
    bytes_a_second: float = 4e10
    """at which one multiprocessor reads weights of the second cache"""
    held_bytes_a_second: float = 2e11
    """and those that it holds; not measured"""
    barrier: float = 1.5e-6
    """seconds that all programs wait for each other"""


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, for which no device is needed."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def device_of(device: torch.device) -> Device:
    """In Triton's interpreter, where programs run one after the other, one multiprocessor, which holds nothing. While a graph of
    launches is captured nothing is measured.
    """
    if device.type != "cuda":
        return Device(1, shared_bytes=0)
    index = torch.cuda.current_device() if device.index is None else device.index
    return _told(index) if torch.cuda.is_current_stream_capturing() else _measured(index)


@lru_cache(maxsize=16)
def _told(index: int) -> Device:
    from triton.runtime import driver

    shared_bytes = driver.active.utils.get_device_properties(index)["max_shared_mem"]
    return Device(torch.cuda.get_device_properties(index).multi_processor_count, shared_bytes)


@lru_cache(maxsize=16)
def _measured(index: int) -> Device:
    import triton

    told, name = _told(index), torch.cuda.get_device_name(index)
    with torch.cuda.device(index):
        barrier, rate = remembered("device", f"{name} {told} triton {triton.__version__}", partial(measure, told.multiprocessors))
    return replace(told, barrier=barrier, bytes_a_second=rate)


def measure(programs: int, device: str = "cuda") -> tuple[float, float]:
    """Seconds of a barrier of so many programs, and the bytes a second that each reads of the second cache when all do."""
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
    return max(1e-9, (milliseconds(partial(run, many)) - milliseconds(partial(run, few))) / 1e3 / (many - few))


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
