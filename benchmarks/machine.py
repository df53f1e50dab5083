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
from benchmarks.reading import Reading
from benchmarks.result import Ceilings

PACKAGES = ("anyrnn", "numpy", "llvmlite", "torch", "onnx", "onnxruntime", "jax", "jaxlib")
PRODUCT_SIZE = 2048
SECOND_CACHE_BYTES = 1 << 20


class Probe:
    """Measures the ceilings, a block at a time all through a run; the best block counts."""

    def __init__(self, dtype: torch.dtype, threads: int) -> None:
        size = PRODUCT_SIZE
        self.left, self.right = torch.randn(size, size, dtype=dtype), torch.randn(size, size, dtype=dtype)
        self.product = torch.empty(size, size, dtype=dtype)
        self.flops = 2 * size**3
        self.onednn = _onednn_product(self.left, self.right)
        self.arithmetic = Arithmetic(str(dtype).removeprefix("torch."), threads)
        self.reading = Reading(threads)
        self.arithmetic_rate, self.product_rate = 0.0, 0.0
        self.reads: dict[int, float] = {}

    def block(self) -> None:
        """Measure arithmetic and products again."""
        time.sleep(0.030)
        self.arithmetic_rate = max(self.arithmetic_rate, *[self.arithmetic.rate() for _ in range(3)])
        seconds = _best(lambda: torch.mm(self.left, self.right, out=self.product))
        if self.onednn is not None:
            seconds = min(seconds, _best(self.onednn))
        self.product_rate = max(self.product_rate, self.flops / seconds)

    def read(self, bytes: int) -> None:
        """Measure reading an array of so many bytes."""
        if bytes:
            self.reads[bytes] = max(self.reads.get(bytes, 0.0), self.reading.rate(bytes))

    @property
    def ceilings(self) -> Ceilings:
        return Ceilings(self.arithmetic_rate or None, self.product_rate or None, self.reads)


def _onednn_product(left: torch.Tensor, right: torch.Tensor) -> Callable[[], object] | None:
    """The same product by oneDNN, which torch carries too and which knows processors that its default library does not."""
    if not torch.backends.mkldnn.is_available() or left.dtype != torch.float32:
        return None
    a, b, bias = left.to_mkldnn(), right.to_mkldnn(), torch.zeros(len(right)).to_mkldnn()
    return lambda: torch._C._nn.mkldnn_linear(a, b, bias)


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
        "second_cache_bytes": cache_bytes(2),
        "last_cache_bytes": max(cache_bytes(level) for level in (2, 3, 4)),
        "system": platform.platform(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def versions() -> dict[str, str]:
    """Of Python and every library that is installed, and which commit of anyrnn."""
    found = {"python": platform.python_version(), **{package: _version(package) for package in PACKAGES}, "commit": _commit()}
    return {name: number for name, number in found.items() if number}


def cache_bytes(level: int) -> int:
    """The size of a core's cache of some level; where the system does not say, a guess for the second and zero for others."""
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        match = re.fullmatch(r"(\d+)([KMG])", (folder / "size").read_text().strip())
        if match and (folder / "level").read_text().strip() == str(level):
            return int(match[1]) << {"K": 10, "M": 20, "G": 30}[match[2]]
    return SECOND_CACHE_BYTES if level == 2 else 0


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
