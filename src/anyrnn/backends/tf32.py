"""Whether float32 products on CUDA devices may be made in TF32. One of torch's settings says it for all that a layer does,
whoever runs it: that of matrix products, `torch.set_float32_matmul_precision("high")` or the newer `fp32_precision`.

cuDNN's recurrent networks have another, which allows by default what that one does not. While a layer calls them it is taken back
where products may not be made so; what it forbids by itself stays forbidden.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from anyrnn._locks import ForkedLock

LOCK = ForkedLock()
EXACT: list[Any] = []
"""Of each call of cuDNN that is without TF32 now, what the setting was before: it is the whole process's."""


def allowed() -> bool:
    """In products. The older of torch's two ways of asking raises where a program has used the newer one."""
    products = torch.backends.cuda.matmul
    said = getattr(products, "fp32_precision", "none")
    return said == "tf32" if said != "none" else bool(products.allow_tf32)


def settings(dtype: torch.dtype) -> tuple[bool, bool]:
    """Whether it is allowed in products of numbers of a kind, and in cuDNN's recurrent networks, as a layer calls them."""
    products = dtype is torch.float32 and allowed()
    return products, products and _cudnn_setting() in ("tf32", True)


def as_in_products(dtype: torch.dtype) -> AbstractContextManager[None]:
    """Around calls of cuDNN's recurrent networks of numbers of a kind. Others that run meanwhile in this process have no TF32
    either.
    """
    return _as_in_products() if dtype is torch.float32 else nullcontext()


@contextmanager
def _as_in_products() -> Iterator[None]:
    if allowed():
        yield
        return
    with LOCK.now:
        before = EXACT[0] if EXACT else _cudnn_setting()
        if not EXACT:
            _set_cudnn("ieee" if isinstance(before, str) else False)
        EXACT.append(before)
    try:
        yield
    finally:
        with LOCK.now:
            EXACT.pop()
            if not EXACT:
                _set_cudnn(before)


def _cudnn_setting() -> str | bool:
    """In the newer way, or in the older one where torch has no other."""
    networks = getattr(torch.backends.cudnn, "rnn", None)
    return bool(torch.backends.cudnn.allow_tf32) if networks is None else str(networks.fp32_precision)


def _set_cudnn(value: str | bool) -> None:
    if isinstance(value, str):
        networks: Any = torch.backends.cudnn.rnn
        networks.fp32_precision = value
    else:
        torch.backends.cudnn.allow_tf32 = value
