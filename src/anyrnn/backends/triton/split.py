"""In what blocks a launch of the steps works, by a small model of the device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from anyrnn.backends import tf32
from anyrnn.backends.triton.device import Device, interpreted
from anyrnn.backends.triton.lower import Lowered, Scatter, Term
from anyrnn.backends.triton.names import power_of_two
from anyrnn.ir.graph import reachable
from anyrnn.passes.parameters import Weight
from anyrnn.passes.plan import Kernel, Program

ROWS = 16
"""Samples of a block, the least that products of matrices take."""
FEATURES = (32, 16)
"""Features of a block of programs that read their weights: the larger where they are enough for all multiprocessors. On tensor
cores four warps make each product of the smaller one twice, and take apart what they multiply four times.
"""
HOLDING_ROWS, HOLDING_FEATURES, HOLDING_DEPTHS = (16, 32, 64), (4, 8, 16, 32, 64, 128), (512, 256, 128, 64, 32, 16)
"""The same of programs that hold their weights: they have one block of features each, and all must be there at once. And of how
many features of an operand one product is.
"""
MOST_SLICES, LEAST_DEPTH = 4, 16
"""Of a product, side by side, at the most; and how deep one is at the least."""
MANY_WARPS, LEAST_WIDE, LEAST_SHARED, MOST_OPERAND = 8, 64, 256, 16384
"""Warps that share the columns of a product of one slice, for few samples; the columns that it has then, so that each warp has
eight; samples times features, so that each thread has one; and bytes of an operand, which every warp has in registers.
"""
MOST_OPERANDS, MOST_SUMS, MOST_PARTED = 8192, 8192, 14336
"""Numbers of a product that stand in registers: operands; sums; and where operands come in three parts, sums and three times
these.
"""
MOST_COLUMNS, MOST_SHALLOW, SHALLOW = 128, 2, 64
"""Results of a product for a sample; and how many blocks of an operand in three parts are less deep than so. With more the
compiler has no registers left, and a step takes ten times as long.
"""
MOST_CODE, PARTED_CODE, PRODUCT_CODE = 108_000, 1.3, 0.03
"""Bytes of instructions of a step that holds its weights, at the most: a multiprocessor keeps 128 KB of them, and a step whose
instructions come from the second cache takes up to 13 times as long. And how many are for a number taken apart, and for a
product.
"""
READING_DEPTHS, MOST_READ = (64, 128), 256
"""Features of an operand that are read at a time with their weights, beside the usual 32; and how many numbers of a feature come
from operands, or go to sums of one operand, times these: twice as many where numbers come in one part.
"""
MOST_STACKED, MOST_TILE = 2048, 8192
"""The same of a sum that is scattered: operands, which every warp has; and weights, which warps share."""
MOST_BETWEEN = 2**24
"""Bytes that programs put in memory for each other, for two steps: a third of an H100's second cache."""
SUMMED, MOST_SUMMED = 64, 256
"""Features of a block of a sum over them: where a program adds up all rows of its block, and at the most."""
LOAD = 32
"""As how many features it counts that a block of held weights has an operand's part loaded."""
LEAST_SECONDS, SHORT = 5e-7, 2.0
"""Of a step beside all else, on an H100; and how many times as long each byte takes where few are read."""
SPEED_OF_MANY = 1.6
"""How many times as fast twice as many warps make something of sums: by their instructions (617 for 1,508), not by a clock."""
SCAN_STEPS = 64
"""Steps of a block of a scan; of fewer, a loop is as good."""
LOOPS = 2
"""With more programs than so many for each multiprocessor, a loop fills the device."""


THREE_PARTS = "bf16x6"
"""Six products of numbers of 16 bits in the place of one of float32."""


@dataclass(frozen=True)
class Blocks:
    """Rows, features and depth of a block of a product; among how many programs the features are shared."""

    rows: int = ROWS
    features: int = FEATURES[0]
    depth: int = 32
    columns: int = 1
    warps: int = 4
    scans: bool = False
    """whether scans over time are in the place of the loop"""
    holds: int = 0
    """in how many blocks of an operand's features (or of a sum's, if it is scattered) a program holds its part of the weights,
    loaded once before the steps; 0: it reads them in every step"""
    slices: int = 1
    """in how many parts, one for each warp, an operand of held weights is multiplied, or a sum that is scattered is made"""
    scatters: bool = False
    """whether sums that can be scattered are (see `lower.Scatter`)"""
    late: bool = False
    """whether what could be multiplied before the steps is multiplied in them"""
    stages: int = 3
    """how many blocks of a product are on their way at once; one where weights are held: loads might be moved before a barrier"""

    @property
    def summed(self) -> tuple[int, int]:
        """Rows and features of a block of a sum over features. Programs that share the features share its rows: each has some,
        whole, and so reads no more than it must.
        """
        rows = power_of_two(-(-self.rows // self.columns))
        return rows, min(MOST_SUMMED, SUMMED * self.rows // rows)

    def constants(self, dtype: torch.dtype, precision: str, packed: bool) -> dict[str, Any]:
        """As generated functions call them."""
        import triton.language as tl

        compute = tl.float64 if dtype is torch.float64 else tl.float32
        operand = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}.get(dtype, compute)
        if precision == THREE_PARTS:
            operand = tl.bfloat16
        if operand == tl.bfloat16 and interpreted():  # which multiplies the bits of these
            operand = compute
        return {
            "BLOCK_N": self.rows, "BLOCK_F": self.features, "BLOCK_K": self.depth, "SLICES": self.slices,
            "BLOCK_R": self.summed[1], "BLOCK_S": self.summed[0], "COLUMN_PROGRAMS": self.columns, "COMPUTE": compute,
            "OPERAND": operand, "PRECISION": precision, "PACKED": packed,
        }  # fmt: skip

    def of_scans(self, dtype: torch.dtype) -> dict[str, Any]:
        """As the functions of scans call them."""
        import triton.language as tl

        return {"BLOCK_T": SCAN_STEPS, "BLOCK_F": FEATURES[-1], "COMPUTE": tl.float64 if dtype is torch.float64 else tl.float32}


def precision_of(dtype: torch.dtype, device: Device) -> str:
    """How products of steps are made, by Triton's names: of float32 in TF32 where torch's setting allows that, and else on tensor
    cores too, with each number in three parts of 8 bits, which hold all of it.
    """
    if dtype is not torch.float32:
        return "ieee"
    return "tf32" if tf32.allowed() else THREE_PARTS if device.has_bfloat16 else "ieee"


@dataclass(frozen=True)
class StepWeights:
    """The matrices that the kernels of a step multiply by."""

    bytes: int
    """of all of them"""
    columns: int
    """of all results of products, in blocks of features; where those of an operand are held together, or of a sum that is
    scattered, by powers of two"""
    widest: int
    """the most of one operand that is read"""
    passed: int
    """vectors that a program reads of others, or writes for them"""
    depth: int
    """the features of the longest of these"""
    block_diagonal: bool
    """whether any is"""
    precision: str
    element: int
    """bytes of a number"""
    stacked: int = 0
    """the most products of one sum that is scattered, by powers of two"""
    scattered: StepWeights | None = None
    """the same where sums are scattered that can be, if there are any"""

    def of(self, blocks: Blocks) -> StepWeights:
        """As programs of such blocks have them."""
        return self.scattered if self.scattered is not None and blocks.scatters else self

    @property
    def tensor_cores(self) -> bool:
        """Whether these multiply."""
        return self.element == 2 or self.precision != "ieee"

    @property
    def held_element(self) -> int:
        """Bytes of a number that is held."""
        return 6 if self.precision == THREE_PARTS else self.element

    @property
    def products(self) -> float:
        """How much work one is, where one of 16 bits on tensor cores is one."""
        if not self.tensor_cores:
            return 16.0 if self.element == 8 else 8.0
        return {THREE_PARTS: 6.0, "tf32": 2.0}.get(self.precision, 1.0)


def choose(program: Program, weights: StepWeights, features: int, rows: int, device: Device, may_hold: bool = True) -> Blocks:
    """The blocks for so many features of the widest kernel and so many rows. `may_hold`: whether programs may hold weights."""
    waits = barriers(program) * device.barrier
    one, several = Blocks(), _of_several(features, rows, device)
    found, seconds = one, _seconds(one, weights, features, device, waits)
    together = _seconds(several, weights, features, device, waits)
    if several.columns > 1 and (not waits or together < seconds):
        found, seconds = several, together
    for blocks in (*reading(weights, features, rows, device), *(holding(weights, features, rows, device) if may_hold else ())):
        needed = _seconds(blocks, weights, features, device, waits)
        if needed < seconds or (needed == seconds and blocks.holds and not found.holds):
            found, seconds = blocks, needed
    return found


def seconds_of(program: Program, blocks: Blocks, weights: StepWeights, features: int, device: Device) -> float:
    """Of a step, by the model."""
    return _seconds(blocks, weights, features, device, barriers(program) * device.barrier)


def barriers(program: Program) -> int:
    """How often programs that share the features wait for each other in a step: between stages, and within one after what its
    other kernels read of shared rows.
    """
    within = sum(shares_rows(kernel) for stage in program.body for kernel in stage.kernels[:-1])
    return len(program.body) + within if program.waits else 0


def shares_rows(kernel: Kernel) -> bool:
    """Whether programs that share the features share the rows of a kernel, too: one of numbers, one a sample, that reads all
    features. Other numbers each program makes for itself.
    """
    needed = reachable(kernel.nodes, (i for i, _, _ in kernel.stores))
    return kernel.dim is None and any(kernel.nodes[i].row.kind == "reduction" for i in needed)


def _of_several(features: int, rows: int, device: Device) -> Blocks:
    """Of as many programs for each block of rows as the device has room for."""
    room = _room(rows, device)
    sizes = [size for size in FEATURES if -(-features // size) >= room]
    size = sizes[0] if sizes else FEATURES[-1] if room > 1 else FEATURES[0]
    return Blocks(features=size, columns=min(room, -(-features // size)))


def _room(rows: int, device: Device) -> int:
    """Programs for each block of rows."""
    return max(1, device.multiprocessors // max(1, -(-rows // ROWS)))


def reading(weights: StepWeights, features: int, rows: int, device: Device) -> Iterator[Blocks]:
    """Other blocks of programs that read their weights for products on tensor cores, where what is on its way has room."""
    if not weights.columns or not weights.tensor_cores or weights.block_diagonal:
        return
    room, parts = _room(rows, device), 1 if weights.precision == THREE_PARTS else 2
    for size in FEATURES:
        for depth in (Blocks.depth, *READING_DEPTHS):
            blocks = Blocks(features=size, depth=depth, columns=min(room, -(-features // size)))
            small = depth * max(weights.passed, weights.widest) <= parts * MOST_READ
            if depth == Blocks.depth or (small and _bytes_on_the_way(blocks, weights) <= device.shared_bytes / 2):
                yield blocks


def _bytes_on_the_way(blocks: Blocks, weights: StepWeights) -> int:
    """Of an operand and the weights that it is multiplied by."""
    return blocks.stages * blocks.depth * (blocks.rows + weights.widest * blocks.features) * weights.element


def _seconds(blocks: Blocks, weights: StepWeights, features: int, device: Device, waits: float) -> float:
    """Of a step of one program: to read what it multiplies, to multiply, to make of it what the step makes, and to wait."""
    weights = weights.of(blocks)
    padded = -(-features // blocks.features // blocks.columns) * blocks.features
    depth = -(-weights.depth // blocks.depth) * blocks.depth
    read, sums = blocks.rows * depth * weights.passed, blocks.rows * weights.columns * padded
    seconds = LEAST_SECONDS + SHORT * read * 4 / device.bytes_a_second
    products = sums * depth * weights.products / device.products_a_second
    if not blocks.holds:
        on_the_way = weights.passed * (depth // blocks.depth) * (padded // blocks.features) * device.read_block
        seconds += max(on_the_way, weights.columns * depth * padded * weights.element / device.bytes_a_second)
        if blocks.features < FEATURES[0] and weights.tensor_cores:
            products *= 4 if weights.precision == THREE_PARTS else 2
    if blocks.scatters:
        seconds += blocks.columns / device.tiles_a_second
    if weights.precision == THREE_PARTS:  # what a program reads, or makes for others
        parted = blocks.slices * blocks.rows * weights.stacked * padded if blocks.scatters else read
        seconds += parted / device.parted_a_second
    warps = 1.0 if blocks.warps == Blocks.warps else SPEED_OF_MANY
    seconds += products + sums / device.sums_a_second / warps
    return seconds + (waits if blocks.columns > 1 else 0.0)


def holding(weights: StepWeights, features: int, rows: int, device: Device, most_code: float = MOST_CODE) -> Iterator[Blocks]:
    """The blocks of programs that hold their weights, where these fit beside an operand's rows, all programs are there at once,
    and a step has no more than so many bytes of instructions: few programs first.
    """
    for blocks in could_hold(weights, features):
        programs = blocks.columns * -(-rows // blocks.rows)
        together = blocks.columns == 1 or programs <= device.multiprocessors
        few = not blocks.scatters or (blocks.columns > 1 and bytes_between(blocks, programs) <= MOST_BETWEEN)
        small = held_bytes(blocks, weights) <= device.shared_bytes and code_bytes(blocks, weights) <= most_code
        if together and few and small:
            yield blocks


def could_hold(weights: StepWeights, features: int) -> Iterator[Blocks]:
    """The same for devices of any size; those that scatter sums come last."""
    if weights.columns and not weights.block_diagonal and weights.tensor_cores:
        yield from _could_hold(weights, features)
        if weights.scattered is not None:
            yield from _could_hold(weights.scattered, features)


def _could_hold(weights: StepWeights, features: int) -> Iterator[Blocks]:
    for samples in HOLDING_ROWS:
        for size in (size for size in reversed(HOLDING_FEATURES) if size <= max(16, power_of_two(features))):
            wide, stack = size * weights.widest, size * weights.stacked
            if 0 < wide < 8 or 0 < stack < LEAST_DEPTH:  # products have no fewer
                continue
            if wide > MOST_COLUMNS or samples * stack > MOST_STACKED:
                continue
            slices, most, parted = MOST_SLICES, MOST_OPERANDS // samples, weights.precision == THREE_PARTS
            if wide:
                slices = min(MOST_SLICES, max(1, MOST_SUMS // (samples * wide)))
                most = (MOST_PARTED - slices * samples * wide) // 3 // samples if parted else most
            if stack:  # of parts, sums are there twice
                most = min(most, MOST_TILE // stack, MOST_SUMS // (1 + parted) // samples)
            depths = [d for d in HOLDING_DEPTHS if d <= most or d == LEAST_DEPTH]
            depth = min(depths, key=lambda d: -(-weights.depth // d) * (d + LOAD))
            if stack and depth < size:  # of which programs would have no features
                continue
            held = -(-weights.depth // depth)
            if wide and parted and depth < SHALLOW and held > MOST_SHALLOW:
                continue
            slices = min(slices, depth // LEAST_DEPTH)
            programs = -(-features // size)
            blocks = Blocks(samples, size, depth, programs, holds=held, slices=slices, scatters=stack > 0, stages=1)
            yield blocks
            if not parted and samples == ROWS and wide >= LEAST_WIDE and samples * size >= LEAST_SHARED:
                depth = min(depth, MOST_OPERAND // samples // weights.element)
                yield replace(blocks, depth=depth, holds=-(-weights.depth // depth), slices=1, warps=MANY_WARPS)


def code_bytes(blocks: Blocks, weights: StepWeights) -> float:
    """Of the instructions of a step that multiplies by weights that are held in three parts, all written out; others are few."""
    if weights.precision != THREE_PARTS or blocks.scatters:
        return 0.0
    depth = blocks.holds * blocks.depth
    return blocks.rows * depth * (PARTED_CODE * weights.passed + PRODUCT_CODE * weights.columns * blocks.features)


def bytes_between(blocks: Blocks, programs: int) -> int:
    """That so many programs put in memory for each other, in float32, where sums are scattered."""
    return 2 * programs * blocks.columns * blocks.rows * blocks.features * 4


def held_bytes(blocks: Blocks, weights: StepWeights) -> int:
    """Of shared memory at the most: a program's part of the weights, the rows that it multiplies them by, and what it makes."""
    weights = weights.of(blocks)
    held = weights.columns * blocks.holds * blocks.depth * blocks.features * weights.held_element
    stacked = blocks.slices * blocks.rows * weights.stacked * blocks.features * weights.held_element
    return held + stacked + 4 * blocks.rows * (blocks.depth + blocks.slices * weights.widest * blocks.features)


def worth_scans(blocks: Blocks, steps: int, rows: int, device: Device) -> bool:
    """Whether a loop without barriers has so many steps, for so few programs, that scans are better where there can be any."""
    programs = -(-rows // blocks.rows) * blocks.columns
    return steps >= SCAN_STEPS and programs <= LOOPS * device.multiprocessors


def step_weights(
    lowered: Lowered, weights: tuple[Weight, ...], sizes: dict[str, int], dtype: torch.dtype, precision: str
) -> StepWeights:
    """Those of a program."""
    given = weights, sizes, dtype, precision
    scattered = _step_weights(lowered, lowered.scatters, *given) if lowered.scatters else None
    return replace(_step_weights(lowered, {}, *given), scattered=scattered)


def _step_weights(
    lowered: Lowered,
    scatters: Mapping[tuple[int, int], Scatter],
    weights: tuple[Weight, ...],
    sizes: dict[str, int],
    dtype: torch.dtype,
    precision: str,
) -> StepWeights:
    """Where some sums are scattered."""
    groups: dict[tuple[int, str, int], list[Term]] = {}
    for kernel in (kernel for stage in lowered.loop for kernel in stage.kernels):
        sums = (i for i in kernel.affines if (id(kernel), i) not in scatters)
        for term in (term for i in sums for term in lowered.sum_of(kernel, i).terms):
            groups.setdefault((id(kernel), term.operand, term.later), []).append(term)
    together = {tuple((t.weight, t.transposed, t.operand) for t in group): group for group in groups.values()}
    terms, stacks = [term for group in together.values() for term in group], dict.fromkeys(scatters.values())
    read = {term.weight for term in (*terms, *(term for scatter in stacks for term in scatter.terms))}
    shapes = {w.name: tuple(dim.evaluate(sizes) for dim in w.shape) for w in weights if w.name in read}
    bytes = dtype.itemsize * sum(map(math.prod, shapes.values()))
    depths = [shapes[t.weight][0 if t.transposed else 1] * (1 if t.transposed else t.heads) for t in terms]
    depths += [scatter.dim.evaluate(sizes) for scatter in stacks]
    columns = [power_of_two(len(group)) for group in together.values()]
    stacked = [power_of_two(len(scatter.terms)) for scatter in stacks]
    return StepWeights(
        bytes,
        sum(columns) + sum(stacked),
        max(columns, default=0),
        len(columns) + 2 * len(stacked),
        max(depths, default=0),
        any(term.heads > 1 for term in terms),
        precision,
        dtype.itemsize,
        max(stacked, default=0),
    )
