"""The machine: what it is, and what it allows."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from benchmarks.arithmetic import Arithmetic
from benchmarks.result import Ceilings

PACKAGES = ("anyrnn", "numpy", "llvmlite", "torch", "onnx", "onnxruntime", "jax", "jaxlib")
PRODUCT_SIZE = 2048
LEAST_READ_BYTES = 1 << 28
DEFAULT_CACHE_BYTES = 1 << 26


class Probe:
    """Measures the ceilings, a block at a time all through a run; the best block counts."""

    def __init__(self, dtype: torch.dtype, threads: int, reads: bool) -> None:
        size = PRODUCT_SIZE
        self.left, self.right = torch.randn(size, size, dtype=dtype), torch.randn(size, size, dtype=dtype)
        self.product = torch.empty(size, size, dtype=dtype)
        self.flops = 2 * size**3
        self.arithmetic = Arithmetic(str(dtype).removeprefix("torch."), threads)
        self.arithmetic_rate, self.product_rate, self.read_rate = 0.0, 0.0, 0.0
        self.array = None
        if reads:
            columns = 4096
            rows = max(4 * last_cache_bytes(), LEAST_READ_BYTES) // (columns * dtype.itemsize)
            self.array = torch.ones(rows, columns, dtype=dtype)
            self.vector = torch.ones(columns, dtype=dtype)

    def block(self) -> None:
        """Measure again."""
        time.sleep(0.030)
        self.arithmetic_rate = max(self.arithmetic_rate, *[self.arithmetic.rate() for _ in range(3)])
        seconds = _best(lambda: torch.mm(self.left, self.right, out=self.product))
        self.product_rate = max(self.product_rate, self.flops / seconds)
        if self.array is not None:
            array, vector = self.array, self.vector
            seconds = min(_best(array.sum), _best(lambda: torch.mv(array, vector)))
            self.read_rate = max(self.read_rate, array.nbytes / seconds)

    @property
    def ceilings(self) -> Ceilings:
        return Ceilings(self.arithmetic_rate or None, self.product_rate or None, self.read_rate or None)


def _best(call: Callable[[], object], warm_up: int = 1, calls: int = 2) -> float:
    times = []
    for _ in range(warm_up + calls):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times[warm_up:])


def describe() -> dict[str, Any]:
    """The processor, how many of its cores this process may use, and what they can do."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "features": sorted(name for name, present in features.items() if present),
        "cache_bytes": last_cache_bytes(),
        "system": platform.platform(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def versions() -> dict[str, str]:
    """Of Python and every library that is installed, and which commit of anyrnn."""
    found = {"python": platform.python_version(), **{package: _version(package) for package in PACKAGES}, "commit": _commit()}
    return {name: number for name, number in found.items() if number}


def last_cache_bytes() -> int:
    """The size of the largest cache that is shared by cores, or a guess."""
    sizes = [DEFAULT_CACHE_BYTES]
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        match = re.fullmatch(r"(\d+)([KMG])", file.read_text().strip())
        if match:
            sizes.append(int(match[1]) << {"K": 10, "M": 20, "G": 30}[match[2]])
    return max(sizes[1:], default=sizes[0])


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1] if match else platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    here = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=here, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() or None
