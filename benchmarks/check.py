"""Are two systems' results the same?"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

# of the largest magnitude in an array: for results, for gradients
ALLOWED = {torch.float32: (1e-4, 1e-3), torch.float64: (1e-10, 1e-9), torch.bfloat16: (2e-2, 4e-2)}


TURNED = 0.05
"""The same for single numbers of gradients of functions with kinks. Of millions of numbers some lie next to a kink, where
rounding decides whether one term is part of a gradient or not; so those are held to the norm of all numbers.
"""
FARTHER, TIMES = 10.0, 3.0
"""How far rounding alone may carry two systems from the exact results, in what is allowed between them, and ours in the distance
of the other: some cells make much of a small difference.
"""
OTHER_NAMES = ("torchrecurrent",)
"""Peers whose parameters are others than ours, so that of the gradients only the input's can be compared."""


def difference(
    ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], peer: str, dtype: torch.dtype, kinks: bool = False
) -> str | None:
    """What differs, in words; None when everything that both give agrees. `kinks`: the cell has some, as relu has.

    Names of gradients begin with `d_`.
    """
    other = otherwise_made(ours, theirs, peer)
    if other is not None:
        return other
    for name in _compared(ours, theirs, peer):
        a, b = ours[name].double(), theirs[name].double()
        if not a.numel():
            continue
        allowed = ALLOWED[dtype][name.startswith("d_")]
        if kinks and name.startswith("d_") and float((a - b).norm()) <= allowed * float(b.norm()):
            allowed = TURNED
        largest = float(b.abs().max())
        apart = float((a - b).abs().max())
        if not apart <= allowed * largest:  # NaN differs from everything
            share = apart / largest if largest else float("inf")
            return f"{name} differs from {peer}'s by {share:.1e} of its largest magnitude (allowed: {allowed:.0e})"
    return None


def otherwise_made(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], peer: str) -> str | None:
    """What only one of them gives, or gives in another shape, in words."""
    if "output" not in ours or "output" not in theirs:
        return f"there is no output to compare with {peer}'s"
    wanted = {name for name in ours if peer not in OTHER_NAMES or name in ("output", "d_input")}
    missing = sorted(name for name in wanted ^ set(theirs) if name.startswith("d_") or name == "output")
    if missing:
        return f"only one of anyrnn and {peer} gives {', '.join(missing)}"
    for name in _compared(ours, theirs, peer):
        if ours[name].shape != theirs[name].shape:
            return f"{name} is {list(ours[name].shape)}, {peer}'s is {list(theirs[name].shape)}"
    return None


def _compared(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], peer: str) -> list[str]:
    """Of a peer with other parameters, no gradients but that of the input."""
    others = peer in OTHER_NAMES
    return [name for name in ours if name in theirs and not (others and name.startswith("d_") and name != "d_input")]


def rounding_explains(
    ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], exact: Mapping[str, Tensor], peer: str, dtype: torch.dtype
) -> bool:
    """Whether two systems that differ are both near the exact results, of the same numbers in double precision, and ours about as
    near as the other.
    """
    for name in _compared(ours, theirs, peer):
        largest = float(exact[name].abs().max())
        mine, other = (float((a[name].double() - exact[name]).abs().max()) for a in (ours, theirs))
        allowed = ALLOWED[dtype][name.startswith("d_")] * largest
        if not (max(mine, other) <= FARTHER * allowed and mine <= max(TIMES * other, allowed)):
            return False
    return True
