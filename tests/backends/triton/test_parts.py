"""The parts of float32 that tensor cores multiply."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from anyrnn.backends.triton import functions


@triton.jit  # type: ignore[untyped-decorator]
def take_apart(x, found, N: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.arange(0, N)
    first, second, third = functions.parts(tl.load(x + place), tl.bfloat16, "bf16x6")
    tl.store(found + place, first.to(tl.float32))
    tl.store(found + N + place, second.to(tl.float32))
    tl.store(found + 2 * N + place, third.to(tl.float32))


def test_parts_hold_all_bits() -> None:
    """They add up to the number, have 8 bits each, and are so small that what is not multiplied is below the last bit."""
    torch.manual_seed(0)
    x, found = torch.randn(1024) * torch.logspace(-10, 10, 1024), torch.empty(3, 1024)
    take_apart[(1,)](x, found, 1024)
    assert torch.equal(found.double().sum(0), x.double())
    assert torch.equal(found.bfloat16().float(), found)
    assert (found[1] / found[0]).abs().max() <= 2**-8
    assert (found[2] / found[0]).abs().max() <= 2**-16
