"""Whether float32 products on a CPU may be of numbers rounded to bfloat16. Torch's settings say it: autocast to bfloat16, or the
precision of matrix products, `torch.set_float32_matmul_precision("medium")` or `torch.backends.mkldnn.matmul.fp32_precision`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.compiler import assume_constant_result

SETTING: Callable[[str, str], str] = torch._C._get_fp32_precision_getter
PRODUCTS, ALLOWED = ("mkldnn", "matmul"), "bf16"
"""What gives the setting (the name behind torch's public ones, which take ten times as long), of what, and what allows it."""


def allowed() -> bool:
    """In products, whichever way it was set."""
    cast = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.bfloat16
    return cast or _allows()


def is_set() -> bool:
    """Whatever autocast is."""
    return SETTING(*PRODUCTS) == ALLOWED


_constant: Any = assume_constant_result
_allows: Callable[[], bool] = _constant(is_set)
"""Torch's compiler cannot look into it. It compiles again where `set_float32_matmul_precision` has changed from or to "highest",
not from "high" to "medium" or back, nor where `fp32_precision` has changed.
"""
