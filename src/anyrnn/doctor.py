"""What `anyrnn doctor` prints: what is installed, what the machine offers, and what can run on it."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import anyrnn
from anyrnn import _cache

Row = tuple[str, str]

CORE = ("numpy", "llvmlite")
EXTRAS = {"torch": "torch", "safetensors": "torch", "onnx": "onnx"}
EXTRAS |= {"jax": "jax", "keras": "keras", "matplotlib": "plot", "scikit-learn": "all", "tqdm": "all"}
"""Optional libraries, and the extra that brings each."""
PEERS = ("triton", "onnxruntime")
"""Libraries told of only where they are installed."""
COMMANDS = "anyrnn cells, show, check, train, compare, convert, inspect, doctor"
FEATURES = ("avx512f", "avx512vl", "avx512bf16", "amx-bf16", "avx2", "fma", "f16c", "neon", "sve", "bf16")
"""What the kernels are shaped by, or could gain from."""
BROKEN = (ImportError, OSError, RuntimeError, AttributeError, subprocess.SubprocessError)
"""What a library that is missing, damaged or too old raises."""


def report() -> str:
    """What is installed, what the machine offers, and which backends and front-ends can run here, with the reasons.

    Nothing that is missing or broken makes it raise. torch is not imported, only looked for; another process asks it for devices.
    """
    sections = [("versions", _versions()), ("machine", _machine()), ("backends", _backends()), ("front-ends", _front_ends())]
    width = max(len(label) for _, rows in sections for label, _ in rows)
    blocks = [f"anyrnn {anyrnn.__version__}"]
    for title, rows in sections:
        blocks.append("\n".join([title, *(f"  {label:<{width}}  {value}" for label, value in rows)]))
    return "\n\n".join(blocks)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _versions() -> list[Row]:
    rows = [("python", f"{platform.python_version()} ({platform.python_implementation()}, {platform.platform(terse=True)})")]
    rows += [(name, _version(name) or f"not installed: pip install {name}") for name in CORE]
    rows += [("LLVM", _said_by(_llvm_version))]
    rows += [(name, _version(name) or f'not installed: pip install "anyrnn[{extra}]"') for name, extra in EXTRAS.items()]
    return rows + [(name, version) for name in PEERS if (version := _version(name)) is not None]


def _said_by(question: Callable[[], str]) -> str:
    """An answer, or why there is none."""
    try:
        return question()
    except BROKEN as error:
        return f"unknown: {error}"


def _llvm_version() -> str:
    import llvmlite.binding as llvm

    return ".".join(map(str, llvm.llvm_version_info)) + f", for {llvm.get_default_triple()}"


def _machine() -> list[Row]:
    questions = (
        ("processor", _processor),
        ("features", _features),
        ("vectors", _vectors),
        ("threads", _threads),
        ("devices", _devices),
        ("cache", _cache.describe),
    )
    return [(label, _said_by(question)) for label, question in questions]


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8", errors="replace").splitlines() if information.exists() else []
    models = [value.strip() for key, _, value in (line.partition(":") for line in lines) if key.strip() == "model name"]
    name = models[0] if models else platform.processor()
    return f"{name} ({platform.machine()})" if name and name != platform.machine() else platform.machine() or "unknown"


def _features() -> str:
    from anyrnn.backends.llvm import target

    found = target.machine().features
    return " ".join(name for name in FEATURES if name in found) or "none that kernels are shaped by"


def _vectors() -> str:
    from anyrnn.backends.llvm import target

    machine = target.machine()
    fused = "fused multiply-add" if machine.fused else "no fused multiply-add"
    numbers = f"{machine.lanes(4)} float32 or {machine.lanes(8)} float64"
    return f"{machine.vector_bytes} bytes ({numbers}), {machine.registers} registers, {fused}"


def _threads() -> str:
    from anyrnn.backends.llvm import threads

    described = threads.describe()
    return described if "torch" in described or not _has("torch") else f"{described}; once torch is imported, torch's"


DEVICES = """
import torch
found = torch.cuda.is_available() and [torch.cuda.get_device_properties(k) for k in range(torch.cuda.device_count())]
names = [f"{d.name} (capability {d.major}.{d.minor}, {d.total_memory / 2**30:.0f} GiB)" for d in found or ()]
more = f"; CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}" if names else ""
print(", ".join(names) + more if names else f"no CUDA device that torch {torch.__version__} finds")
"""


def _devices() -> str:
    if not _has("torch"):
        return "not known without torch"
    done = subprocess.run([sys.executable, "-c", DEVICES], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip() or f"not known: {(done.stderr.strip().splitlines() or ['torch ended without a word'])[-1]}"


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _backends() -> list[Row]:
    why = _why_no_llvm()
    llvm = f"not usable: {why}" if why else "usable: native CPU kernels, float32 and float64, forward and backward"
    on_devices = "for the CUDA devices above" if _has("torch") else "not usable without torch"
    return [
        ("llvm", llvm),
        ("reference", "usable: the interpreter, any cell, on NumPy or on any device of torch"),
        ("triton", on_devices if _has("triton") else "not usable: triton not installed (it comes with torch for CUDA)"),
        ("cudnn", on_devices),
    ]


def _why_no_llvm() -> str | None:
    """Why no kernel can be made here, or None: a small one is."""
    try:
        from anyrnn.backends.llvm import target

        target.assembly("define void @nothing() {\n  ret void\n}\n")
    except ImportError as error:
        return f"llvmlite cannot be imported ({error}): pip install llvmlite"
    except BROKEN as error:
        return f"LLVM makes no code for this machine ({error})"
    return None


def _front_ends() -> list[Row]:
    return [
        ("numpy", "usable: anyrnn.Recurrent, anyrnn.runtime"),
        ("onnx", _usable(("onnx",), "anyrnn.onnx.export, read")),
        ("torch", _usable(("torch",), "anyrnn.torch.Recurrent, RNN, LSTM, GRU")),
        ("jax", _usable(("jax",), "anyrnn.jax.Recurrent")),
        ("keras", _usable(("keras",), "anyrnn.keras.LSTM, GRU, SimpleRNN, Recurrent, where KERAS_BACKEND is torch or jax")),
        ("command line", _usable(("torch", "safetensors", "matplotlib", "sklearn", "tqdm"), COMMANDS, "train, compare ")),
    ]


def _usable(modules: Sequence[str], what: str, part: str = "") -> str:
    missing = [name for name in modules if not _has(name)]
    if not missing:
        return f"usable: {what}"
    names = [{"sklearn": "scikit-learn"}.get(name, name) for name in missing]
    extras = {EXTRAS[name] for name in names}
    extra = extras.pop() if len(extras) == 1 else "all"
    return f'{part}not usable: {", ".join(names)} not installed: pip install "anyrnn[{extra}]"'
