"""The machine: what it is, and what it allows."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import anyrnn
from benchmarks.arithmetic import Arithmetic
from benchmarks.job import Job
from benchmarks.measure import Blocks, Reference
from benchmarks.pointwise import Pointwise
from benchmarks.reading import Reading, packed_weights
from benchmarks.result import FEW_SAMPLES, Ceilings, Result
from benchmarks.suite import STREAMS

PACKAGES = ("anyrnn", "numpy", "llvmlite", "torch", "onnx", "onnxruntime", "jax", "jaxlib", "torchrecurrent")
PRODUCT_SIZES = (2048, 1024)
"""Of large products; the second is timed beside rows where it has the first's rate: it takes an eighth of the time."""
MEMORY_BYTES = 2**28
"""Of an array that is read from memory, at the least."""
SECOND_CACHE_BYTES = 1 << 20


class Probe:
    """What the machine allows. Calls of products and of reading are timed in turn with each row, for neighbours slow down both;
    the arithmetic that is possible is measured all through a run, and the best counts.
    """

    def __init__(self, dtype: torch.dtype, threads: int) -> None:
        self.arithmetic, self.reading = Arithmetic(str(dtype).removeprefix("torch."), threads), Reading(threads)
        self.arithmetic_rate, self.memory_rate = 0.0, 0.0
        self.pointwise = Pointwise(str(dtype).removeprefix("torch."), threads)
        self.ops: Mapping[str, float] = {}
        self.product = _large_product(dtype)

    def block(self) -> None:
        """Measure arithmetic again."""
        time.sleep(Blocks().pause)
        self.arithmetic_rate = max(self.arithmetic_rate, *[self.arithmetic.rate() for _ in range(3)])
        self.ops = self.pointwise.seconds()

    def memory(self) -> None:
        """Measure reading an array that no cache holds."""
        reference = self.reading.reference(max(MEMORY_BYTES, 4 * last_cache_bytes()), 0, 0)
        self.memory_rate = reference.amount / _best(reference.call)

    def references(self, result: Result, job: Job) -> dict[str, Reference]:
        """Which to time in turn with a row."""
        row = result.row
        if row.mode in STREAMS or row.steps == row.samples == 1:
            return {}
        if row.samples <= FEW_SAMPLES and row.mode == "inference" and result.step_bytes:
            weights = packed_weights(job.module)
            reading = self.reading.reference(result.once_bytes, result.step_bytes, row.steps - 1, weights)
            return {"product": self.product, "read": reading}
        return {"product": self.product}

    @property
    def ceilings(self) -> Ceilings:
        return Ceilings(self.arithmetic_rate or None, self.memory_rate or None, self.ops)


def _large_product(dtype: torch.dtype) -> Reference:
    largest, smaller = (_product(size, dtype) for size in PRODUCT_SIZES)
    rates = [reference.amount / _best(reference.call, calls=4) for reference in (largest, smaller)]
    return smaller if rates[1] > 0.98 * rates[0] else largest


def _product(size: int, dtype: torch.dtype) -> Reference:
    """By torch's default library or by oneDNN, whichever is quicker."""
    left, right, product = (torch.randn(size, size, dtype=dtype) for _ in range(3))
    calls: list[Callable[[], object]] = [lambda: torch.mm(left, right, out=product)]
    onednn = _onednn_product(left, right)
    calls += [onednn] if onednn is not None else []
    return Reference(min(calls, key=_best), 2 * size**3)


def _onednn_product(left: torch.Tensor, right: torch.Tensor) -> Callable[[], object] | None:
    """The same product by oneDNN, which torch carries too and which knows processors that its default library does not."""
    if not torch.backends.mkldnn.is_available() or left.dtype != torch.float32:
        return None
    a, b, bias = left.to_mkldnn(), right.to_mkldnn(), torch.zeros(len(right)).to_mkldnn()
    return lambda: torch._C._nn.mkldnn_linear(a, b, bias)


def _best(call: Callable[[], object], calls: int = 2) -> float:
    """The least seconds of some calls, after one that warms up."""
    times = []
    for _ in range(1 + calls):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def describe() -> dict[str, Any]:
    """The processor, how many of its cores this process may use, and what they can do."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return {
        "cpu": f"{_cpu_model()} ({llvm.get_host_cpu_name()})",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "features": sorted(name for name, present in features.items() if present),
        "second_cache_bytes": cache_bytes(2),
        "last_cache_bytes": last_cache_bytes(),
        "system": platform.platform(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def versions() -> dict[str, str]:
    """Of Python and every library that is installed, which commit of anyrnn, and a digest of what is measured and measures, which
    may have been changed since.
    """
    found = {"python": platform.python_version(), **{package: _version(package) for package in PACKAGES}}
    found |= {"commit": _commit(), "sources": _digest_of_sources()}
    return {name: number for name, number in found.items() if number}


def cache_bytes(level: int) -> int:
    """The size of a core's cache of some level; where the system does not say, a guess for the second and zero for others."""
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        match = re.fullmatch(r"(\d+)([KMG])", (folder / "size").read_text().strip())
        if match and (folder / "level").read_text().strip() == str(level):
            return int(match[1]) << {"K": 10, "M": 20, "G": 30}[match[2]]
    return SECOND_CACHE_BYTES if level == 2 else 0


def last_cache_bytes() -> int:
    """The size of the last cache, which cores share; zero where the system does not say."""
    return max(cache_bytes(level) for level in (2, 3, 4))


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


def _digest_of_sources() -> str:
    """Of the files of the package and of the benchmarks."""
    found, top = hashlib.sha256(), Path(__file__).parent
    for folder in (top, Path(anyrnn.__file__).parent):
        for path in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".ll")):
            found.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:12]


def _commit() -> str | None:
    here = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=here, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() or None
