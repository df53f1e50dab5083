"""What generated kernels call: elementwise functions that Triton has not, or not for every number; random choices; waiting.

NaN in is NaN out. Everything works on float32 and float64; numbers of 16 bits are widened when they are loaded.
"""

from __future__ import annotations

import triton
import triton.language as tl

# mypy: ignore-errors


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x))"""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def tanh(x):
    """A rational function near zero, where the difference of exponentials would cancel; Cephes' for float64."""
    square = x * x
    below = (-9.64399179425052238628e-1 * square - 9.92877231001918586564e1) * square - 1.61468768441708447952e3
    above = ((square + 1.12811678491632931402e2) * square + 2.23548839060100448583e3) * square + 4.84406305325125486048e3
    near = x + x * square * (below / above)
    far = 1.0 - 2.0 / (tl.exp(2.0 * tl.abs(x)) + 1.0)
    return tl.where(tl.abs(x) < 0.625, near, tl.where(x < 0.0, -far, far))


@triton.jit
def log1p(x):
    """log(1 + x) for x from 0 to 1"""
    total = 1.0 + x
    rest = total - 1.0
    return tl.where(rest == 0.0, x, tl.log(total) * (x / tl.where(rest == 0.0, 1.0, rest)))


@triton.jit
def softplus(x):
    """log(1 + exp(x))"""
    return maximum(x, 0.0) + log1p(tl.exp(-tl.abs(x)))


@triton.jit
def maximum(x, y):
    """NaN where either is."""
    return tl.where((x > y) | (x != x), x, y)


@triton.jit
def minimum(x, y):
    """NaN where either is."""
    return tl.where((x < y) | (x != x), x, y)


@triton.jit
def relu(x):
    """max(x, 0)"""
    return tl.where(x < 0.0, 0.0, x)


@triton.jit
def sign(x):
    """-1, 0, 1, or NaN"""
    return tl.where(x > 0.0, 1.0, tl.where(x < 0.0, -1.0, x))


@triton.jit
def kept(feature, sample, step, seed, stream, threshold):
    """Whether a random choice takes its first operand: see `anyrnn.ir.philox`. Integers; `feature` [1, F], `sample` and `step`
    [N, 1], the others numbers; `seed` is where that stands.
    """
    key = tl.load(seed)
    nothing = feature * 0 + sample * 0
    group = (nothing + feature // 4).to(tl.uint32)
    samples = (nothing + sample).to(tl.uint32)
    steps = (nothing + step).to(tl.uint32)
    streams = (nothing + stream).to(tl.uint32)
    first_key, second_key = (nothing + key).to(tl.uint32), (nothing + (key >> 32)).to(tl.uint32)
    w0, w1, w2, w3 = tl.philox_impl(group, samples, steps, streams, first_key, second_key)
    place = nothing + feature % 4
    word = tl.where(place == 0, w0, tl.where(place == 1, w1, tl.where(place == 2, w2, w3)))
    return word.to(tl.int64) >= threshold


@triton.jit
def wait(counter, target, COLUMN_PROGRAMS: tl.constexpr):
    """Until all programs of the same rows have come here `target / COLUMN_PROGRAMS` times; then what they wrote is seen."""
    tl.debug_barrier()
    if COLUMN_PROGRAMS > 1:
        tl.atomic_add(counter, 1, sem="release")
        while tl.atomic_add(counter, 0, sem="acquire") < target:
            pass
        tl.debug_barrier()


@triton.jit
def wait_often(counter, times, COLUMN_PROGRAMS: tl.constexpr):
    """What is measured of waiting."""
    arrived = 0
    for _ in range(times):
        arrived += COLUMN_PROGRAMS
        wait(counter, arrived, COLUMN_PROGRAMS)


@triton.jit
def read_often(numbers, sums, times, BLOCK: tl.constexpr):
    """What is measured of reading: each program a row of `numbers` [programs, BLOCK] each time, past the nearest cache."""
    place = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for time in range(times):
        row = (tl.program_id(0) + time) % tl.num_programs(0)
        total += tl.load(numbers + row * BLOCK + place, cache_modifier=".cg")
    tl.store(sums + tl.program_id(0) * BLOCK + place, total)


@triton.jit
def after_1(factor, term, next_factor, next_term):
    """`x -> factor x + term`, and then the next: see `scans`."""
    return next_factor * factor, next_factor * term + next_term


@triton.jit
def after_2(f00, f01, f10, f11, t0, t1, n00, n01, n10, n11, s0, s1):
    """The same of two numbers: `f` and `n` are matrices, `t` and `s` vectors."""
    return (
        n00 * f00 + n01 * f10,
        n00 * f01 + n01 * f11,
        n10 * f00 + n11 * f10,
        n10 * f01 + n11 * f11,
        n00 * t0 + n01 * t1 + s0,
        n10 * t0 + n11 * t1 + s1,
    )
