"""What generated kernels call: elementwise functions that Triton has not, or not for every number; random choices; waiting.

NaN in is NaN out. Everything works on float32 and float64; numbers of 16 bits are widened when they are loaded.
"""

from __future__ import annotations

import triton
import triton.language as tl

# mypy: ignore-errors

LOADED = tl.constexpr(4096)
"""Numbers that are loaded at once where many are added up: registers have room for them."""
THREADS = tl.constexpr(128)
"""Of a program with the warps of `Blocks`."""
MOST_DOUBLED = tl.constexpr(8)
"""Of one operand a kernel makes at most 2 ** 8 sums at once."""


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
def divided(x, y, COMPUTE: tl.constexpr):
    """x / y to the last bit; of float32 `/` may be off by two."""
    if tl.float32 == COMPUTE:
        return tl.div_rn(x, y)
    else:
        return x / y


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
def parts(x, OPERAND: tl.constexpr, PRECISION: tl.constexpr):
    """What tensor cores multiply in the place of `x`: three bfloat16 that add up to its 24 bits, or one number three times. Of an
    infinity the rest is NaN.
    """
    if PRECISION == "bf16x6" and tl.bfloat16 == OPERAND:
        first = rounded(x)
        rest = x - first
        second = rounded(rest)
        return upper_half(first), upper_half(second), upper_half(rest - second)
    else:
        return x.to(OPERAND), x.to(OPERAND), x.to(OPERAND)


@triton.jit
def rounded(x):
    """To 8 bits, as a float32, without a conversion: devices have fewer units for these than for integers."""
    return ((x.to(tl.int32, bitcast=True) + 0x8000) & -0x10000).to(tl.float32, bitcast=True)


@triton.jit
def upper_half(x):
    """A float32 of 8 bits as a bfloat16."""
    return (x.to(tl.int32, bitcast=True) >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def product(a, b, total, PRECISION: tl.constexpr, COMPUTE: tl.constexpr):
    """`total + a b` of parts. Of three of each, six products; what the others would add is below a float32's last bit. They are
    added up by themselves, small ones first, since tensor cores cut what they add to a large number.
    """
    if PRECISION == "bf16x6" and a[0].dtype == tl.bfloat16:
        found = tl.dot(a[2], b[0])
        found = tl.dot(a[1], b[1], found)
        found = tl.dot(a[0], b[2], found)
        found = tl.dot(a[1], b[0], found)
        found = tl.dot(a[0], b[1], found)
        return total + tl.dot(a[0], b[0], found)
    else:
        # in the interpreter, which has no products of bfloat16, numbers have no parts
        how: tl.constexpr = "ieee" if PRECISION == "bf16x6" else PRECISION
        if len(a[0].shape) == 3:
            if a[0].shape[0] == 1:
                found = tl.dot(flat(a[0]), flat(b[0]), flat(total), input_precision=how, out_dtype=COMPUTE)
                return tl.reshape(found, total.shape)
            else:
                return tl.dot(a[0], b[0], total, input_precision=how, out_dtype=COMPUTE)
        else:
            return tl.dot(a[0], b[0], total, input_precision=how, out_dtype=COMPUTE)


@triton.jit
def flat(x):
    """[1, N, F] -> [N, F]. Of one slice Triton lets each warp make all of the product."""
    return tl.reshape(x, (x.shape[1], x.shape[2]))


@triton.jit
def together(a, b):
    """Columns of two tiles in turn: [S, K, F] and [S, K, F] -> [S, K, 2 F]"""
    return tl.reshape(tl.join(a, b), (a.shape[0], a.shape[1], 2 * a.shape[2]))


@triton.jit
def apart(x):
    """The same undone: [N, 2 F] -> [N, F] and [N, F]"""
    return tl.split(tl.reshape(x, (x.shape[0], x.shape[1] // 2, 2)))


@triton.jit
def spread(x, address, nowhere):
    """`x` [N, C F] as it is (but for signs of zeros), its numbers spread over all threads, where a sum has left each to several
    warps. Triton lays out what comes of different operands as the last load is: this one, of `address` [N, F], loads nothing.
    """
    if address.shape[0] * address.shape[1] >= THREADS:  # loads of fewer numbers do not decide: they are repeated in any layout
        nothing = tl.load(address, mask=nowhere, other=0.0).to(x.dtype)
        for _ in tl.static_range(MOST_DOUBLED):
            if x.shape[1] > nothing.shape[1]:
                nothing = tl.reshape(tl.join(nothing, nothing), (x.shape[0], 2 * nothing.shape[1]))
        x += nothing
    return x


@triton.jit
def scatter(
    products,
    into,
    block,
    column,
    BLOCK_N: tl.constexpr,
    BLOCK_F: tl.constexpr,
    BLOCK_K: tl.constexpr,
    COLUMN_PROGRAMS: tl.constexpr,
):
    """Store what program `column` has made of a block of features of a sum [S, BLOCK_N, BLOCK_K / S], for the programs that have
    these. `into` has a tile [BLOCK_N, BLOCK_F] from each program for each program.
    """
    TILES: tl.constexpr = BLOCK_K // BLOCK_F
    SIZE: tl.constexpr = BLOCK_N * BLOCK_F
    tiles = tl.reshape(tl.permute(products, (1, 0, 2)), (BLOCK_N, TILES, BLOCK_F))
    tiles = tl.reshape(tl.permute(tiles, (1, 0, 2)), (TILES, SIZE))
    program = (block * TILES + tl.arange(0, TILES))[:, None]
    place = (column * COLUMN_PROGRAMS + program) * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(into + place, tiles, mask=program < COLUMN_PROGRAMS)


@triton.jit
def reduced(into, column, BLOCK_N: tl.constexpr, BLOCK_F: tl.constexpr, COLUMN_PROGRAMS: tl.constexpr, COMPUTE: tl.constexpr):
    """What all programs have stored for program `column`, added up: [BLOCK_N, BLOCK_F]."""
    SIZE: tl.constexpr = BLOCK_N * BLOCK_F
    TILES: tl.constexpr = LOADED // SIZE
    total = tl.zeros((TILES, SIZE), COMPUTE)
    for first in tl.static_range(0, COLUMN_PROGRAMS, TILES):
        program = (first + tl.arange(0, TILES))[:, None]
        place = (program * COLUMN_PROGRAMS + column) * SIZE + tl.arange(0, SIZE)[None, :]
        total += tl.load(into + place, mask=program < COLUMN_PROGRAMS, other=0.0, cache_modifier=".cg")
    return tl.reshape(tl.sum(total, axis=0), (BLOCK_N, BLOCK_F))


@triton.jit
def arrive(counter, COLUMN_PROGRAMS: tl.constexpr):
    """Tell the programs of the same rows that what this one wrote is there. Its own threads see it without waiting."""
    tl.debug_barrier()
    if COLUMN_PROGRAMS > 1:
        tl.atomic_add(counter, 1, sem="release")


@triton.jit
def wait(counter, target, COLUMN_PROGRAMS: tl.constexpr):
    """Until programs have arrived `target` times; then what they wrote before is seen."""
    if COLUMN_PROGRAMS > 1:
        while tl.atomic_add(counter, 0, sem="acquire") < target:
            pass
        tl.debug_barrier()


@triton.jit
def leave(counter, arrived, COLUMN_PROGRAMS: tl.constexpr):
    """The last program to leave sets the counter back to zero, for the next launch. Each has waited for the last arrival of all
    (to leave counts as another one).
    """
    if COLUMN_PROGRAMS > 1:
        is_last = tl.atomic_add(counter, 1, sem="relaxed") == arrived + COLUMN_PROGRAMS - 1
        if is_last:
            tl.atomic_xchg(counter, 0, sem="relaxed")


@triton.jit
def slots_of(border, row, rows, PACKED: tl.constexpr):
    """Where each row stands between two steps: a number, or where sequences end at different steps a table's."""
    if PACKED:
        return tl.load(border + row, mask=row < rows, other=0)
    else:
        return tl.cast(border, tl.int64)


@triton.jit
def copy(
    of, of_row, of_feature, into, into_row, row, rows, features, column, BLOCK_F: tl.constexpr, COLUMN_PROGRAMS: tl.constexpr
):
    """Copy a program's own features of its rows, past the nearest cache: numbers, one a sample, may be another program's. (Tests
    of how threads share loads leave out what is called `copied`.)
    """
    for block in range(column, tl.cdiv(features, BLOCK_F), COLUMN_PROGRAMS):
        feature = (block * BLOCK_F + tl.arange(0, BLOCK_F)).to(tl.int64)[None, :]
        inside = (row < rows) & (feature < features)
        copied = tl.load(of + row * of_row + feature * of_feature, mask=inside, other=0.0, cache_modifier=".cg")
        tl.store(into + row * into_row + feature, copied, mask=inside)


@triton.jit
def wait_often(counter, times, COLUMN_PROGRAMS: tl.constexpr):
    """What is measured of waiting."""
    arrived = 0
    for _ in range(times):
        arrive(counter, COLUMN_PROGRAMS)
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
def added_2(a, b, c, d):
    """Two numbers and two."""
    return a + c, b + d


@triton.jit
def added_3(a, b, c, d, e, f):
    """The same of three."""
    return a + d, b + e, c + f


@triton.jit
def added_4(a, b, c, d, e, f, g, h):
    """And of four."""
    return a + e, b + f, c + g, d + h


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
