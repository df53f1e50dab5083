"""The backends, and which of them can run a network. A backend's libraries are imported when it is first asked for."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anyrnn.sequence.network import Network

NAMES = ("auto", "llvm", "reference")
TORCH_NAMES = ("auto", "llvm", "triton", "reference")
"""What can be asked for, of NumPy's layers and of torch's."""


@lru_cache(maxsize=1)
def _llvm() -> tuple[ModuleType | None, str]:
    try:
        import_module("llvmlite.binding")
    except ImportError as error:
        return None, f"llvmlite cannot be imported ({error}): pip install llvmlite"
    return import_module("anyrnn.backends.llvm.run"), ""


def native() -> ModuleType:
    """The native backend. Raises ImportError where llvmlite is missing."""
    module, reason = _llvm()
    if module is None:
        raise ImportError(reason)
    return module


@lru_cache(maxsize=1024)
def why_not_native(network: Network, dtype: str) -> str | None:
    """Why the native backend cannot run a network in a dtype, or None when it can."""
    module, reason = _llvm()
    if module is None:
        return reason
    why: str | None = module.why_not(network, dtype)
    return why
