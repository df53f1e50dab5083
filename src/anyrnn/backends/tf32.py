"""Whether float32 products on CUDA devices may be made in TF32. One of torch's settings says it for all that a layer does,
whoever runs it: that of matrix products, `torch.set_float32_matmul_precision("high")` or the newer `fp32_precision`.

cuDNN's recurrent networks have another, which allows by default what that one does not. While a layer calls them it is taken back
where products may not be made so; what it forbids by itself stays forbidden. What was not set before is set afterwards, to what
it was by default, as after torch's own `torch.backends.cudnn.flags`: torch has no way back. (Settings are asked and set by the
names behind torch's public ones, which take ten times as long.)
"""

from __future__ import annotations

import torch

from anyrnn._locks import ForkedLock

LOCK = ForkedLock()
ALLOWED = "tf32"
EXACT: list[str] = []
"""Of each call of cuDNN that is without TF32 now, what the setting was before: it is the whole process's."""


def allowed() -> bool:
    """In products, whichever way it was set."""
    return bool(torch._C._get_fp32_precision_getter("cuda", "matmul") == ALLOWED)


def settings(dtype: torch.dtype) -> tuple[bool, bool]:
    """Whether it is allowed in products of numbers of a kind, and in cuDNN's recurrent networks, as a layer calls them."""
    products = dtype is torch.float32 and allowed()
    return products, products and _cudnn_setting() == ALLOWED


class AsInProducts:
    """Around calls of cuDNN's recurrent networks of numbers of a kind. Others that run meanwhile in this process have no TF32
    either. (A class: a generator's frame and its wrapper cost each small call more than the rest of it.)
    """

    __slots__ = ("exact",)

    def __init__(self, dtype: torch.dtype) -> None:
        self.exact = dtype is torch.float32 and not allowed()

    def __enter__(self) -> None:
        if self.exact:
            with LOCK.now:
                before = EXACT[0] if EXACT else _cudnn_setting()
                if not EXACT and before == ALLOWED:
                    _set_cudnn("ieee")
                EXACT.append(before)

    def __exit__(self, *_: object) -> None:
        if self.exact:
            with LOCK.now:
                before = EXACT.pop()
                if not EXACT and before == ALLOWED:
                    _set_cudnn(before)


def _cudnn_setting() -> str:
    said: str = torch._C._get_fp32_precision_getter("cuda", "rnn")
    return said


def _set_cudnn(value: str) -> None:
    torch._C._set_fp32_precision_setter("cuda", "rnn", value)
