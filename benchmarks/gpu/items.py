"""What there is to do on a device, part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Items = Iterator[tuple[str, Callable[[], Any]]]


NOT_HERE, FAILED = "NOT HERE", "FAILED"
"""Begin what is said of an item that was not done, and of one that raised or did not come to an end."""


def failed(error: Exception) -> str:
    return f"{FAILED} {type(error).__name__}: {(str(error).strip().splitlines() or [''])[-1][:300]}"


def is_the_devices(error: Exception) -> bool:
    """Whether everything after it fails too. Torch tells of it, or Triton, whichever asks the device first."""
    text = str(error)
    of_triton = "[CUDA]" in text and any(what in text for what in OF_DEVICE)
    return "CUDA error" in text or of_triton or type(error).__name__ == "AcceleratorError"


OF_DEVICE = ("illegal", "misaligned", "unspecified launch failure", "assert", "uncorrectable")
"""What Triton's errors say that are not of a launch which could not be made."""


class NotHereError(Exception):
    """An item that cannot be done on this machine, or is not done at all, with the reason."""


def parts() -> dict[str, Callable[[], Items]]:
    """By name. Those that are timed are in the order in which they are measured."""
    from benchmarks.gpu import checks, speeds, steps

    return {
        "checks": checks.items,
        "choice": checks.choice,
        "barriers": speeds.barriers,
        "ceilings": speeds.ceilings,
        "targets": speeds.targets,
        "kernels": steps.kernels,
        "compiled": speeds.compiled,
        "rows": speeds.rows,
    }


CHECKS = ("checks", "choice")
TIMED = ("barriers", "ceilings", "targets", "kernels", "compiled", "rows")
