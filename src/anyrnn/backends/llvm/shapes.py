"""How each kernel of a program is shaped for a machine: which products share an operand, how wide and how high its tile is,
what is packed for it, and where its sums begin.

A tile is `rows` samples times `width` panels of `lanes` features times the accumulators that one operand's products go to, all in
registers; the kernel's others wait in the strip. A product whose operand is known before the loop (an input) can be folded into
the step, or made before it for a chunk of steps at once (hoisted); the sum then begins from what was stored in an `init` buffer
instead of from the biases. Both give the same bits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from anyrnn.backends.llvm.target import Machine
from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import affine_parts
from anyrnn.passes.plan import Kernel, Program

T = TypeVar("T")
TILE_VECTORS = 4
"""Vectors of weights that a tile multiplies, at the most. With more it has few rows, and weights come too slowly from the second
cache; with fewer a single row's sums wait for each other.
"""
HIGHEST = 8
"""Rows of a tile at the most."""
STRIP_ROWS = 48
"""Of a strip at the most, in whole tiles."""
INIT = "sums."
"""Begins the names of init buffers; no cell's value can have it in its name."""


def is_init(buffer: str) -> bool:
    return buffer.startswith(INIT)


def tile_heights(machine: Machine, vectors: int) -> tuple[int, ...]:
    """Rows of a tile of so many vectors: as many as the registers hold beside all weights and a factor, or all factors and a
    weight, then less for what is left.
    """
    most = machine.most_rows or HIGHEST
    if not vectors:
        return (4, 1) if most >= 4 else (1,)
    fitting = (h for h in range(min(most, HIGHEST), 1, -1) if h * vectors + min(h, vectors) + 1 <= machine.multiplying)
    highest = next(fitting, 1)
    return tuple(dict.fromkeys([highest, *(h for h in (4, 2, 1) if 3 * h <= 2 * highest), 1]))


def parted(uses: list[T]) -> list[list[T]]:
    """Some uses of one operand, in as few parts as fit in tiles, which are multiplied one after the other."""
    parts = -(-len(uses) // TILE_VECTORS)
    ends = [len(uses) * k // parts for k in range(parts + 1)]
    return [uses[first:end] for first, end in pairwise(ends)]


OF_ZEROS = 1
"""Behind the weights of a group stands room for so many k more: what the group's weights give when they multiply zeros."""


@dataclass(frozen=True)
class MatrixPack:
    """Weights for one operand: [group of `width` panels][k][accumulator][width * lanes], zero where there is no feature.

    Where weights are not transposed, a group ends with its product with zeros: zeros too, unless a weight is infinite or NaN. Of
    block-diagonal weights (`heads` blocks) a group has those k that its features' blocks have, with zeros between the blocks; at
    other k there is nothing. Those of integers are packed otherwise, see `int8`.
    """

    name: str
    weights: tuple[tuple[str, bool], ...]
    """(weight, transposed) for each accumulator"""
    size: Dim
    depth: Dim
    width: int
    heads: int

    stands: str | None
    """How weights that stand in memory relate to packed ones: `rows`, where what is packed are pieces of the rows of one weight,
    or `squares` that have to be transposed; None where kernels cannot read them there. In a call that does, the address of
    the pack is that of its first weight, which packing and kernels compare.
    """


@dataclass(frozen=True)
class BiasPack:
    """The sum of some bias vectors: [panels * lanes], zero where there is no feature."""

    name: str
    weights: tuple[str, ...]
    size: Dim


@dataclass(frozen=True)
class OperandKey:
    """What the sums of a kernel may have in common: an operand, which is then read once for all of them."""

    buffer: str
    later: int
    early: bool
    """known before the loop"""
    heads: int
    copy: int = 0
    """above zero where sums want it in different places"""


def in_common_order(sums: Sequence[Sequence[OperandKey]]) -> tuple[list[OperandKey], list[list[OperandKey]]]:
    """The operands of all sums, where those of each stand in its own order, so that a sum has the same bits whatever other sums
    share its kernel; and those of each sum. One that a sum wants behind what it stands before comes again, as a copy.
    """
    together: list[OperandKey] = []
    found: list[list[OperandKey]] = [[] for _ in sums]
    for position in sorted(range(len(sums)), key=lambda i: len(sums[i]), reverse=True):
        at = 0
        for place, key in enumerate(sums[position], 1):
            while key in together[:at]:
                key = replace(key, copy=key.copy + 1)
            if key not in together:
                following = (together.index(k, at) for k in sums[position][place:] if k in together[at:])
                together.insert(next(following, len(together)), key)
            at = together.index(key) + 1
            found[position].append(key)
    return together, found


@dataclass(frozen=True)
class Operand:
    """A vector in memory that a kernel multiplies, and the accumulators that its products go to. `zeros_first`: where the caller
    gives no array for it, it is zero in the first step. `weights`, `stands` and `heads` are the pack's.
    """

    buffer: str
    later: int
    depth: Dim
    foldable: bool
    accumulators: tuple[int, ...]
    pack: str
    zeros_first: bool
    weights: tuple[str, ...]
    stands: str | None
    heads: int


@dataclass(frozen=True)
class Accumulator:
    """An affine node. `bias` is a BiasPack's name. Where products may be hoisted, `init` is (buffer, steps later)."""

    node: int
    init: tuple[str, int] | None
    bias: str | None


@dataclass(frozen=True)
class Shaped:
    """A column kernel with its tile."""

    kernel: Kernel
    accumulators: tuple[Accumulator, ...]
    operands: tuple[Operand, ...]
    width: int
    heights: tuple[int, ...]
    """rows of the tile, the highest first, one last"""
    strip_rows: int
    """of a strip at the most, in whole tiles"""

    @property
    def inits(self) -> tuple[tuple[str, int], ...]:
        """The buffers of sums that begin with hoisted products, and how many steps later each is read."""
        return tuple(dict.fromkeys(a.init for a in self.accumulators if a.init))

    @property
    def all_may_be_hoisted(self) -> bool:
        """Whether steps may find all sums made."""
        return all(o.foldable for o in self.operands) and all(a.init for a in self.accumulators)


@dataclass(frozen=True)
class Init:
    """Where the sums of hoisted products stand."""

    buffer: str
    bias: str
    size: Dim


class Shaper:
    """Shapes kernels one by one; collects the packs and the init buffers that they share."""

    def __init__(self, program: Program, machine: Machine, zeros_first: frozenset[str], standing: Collection[str]) -> None:
        """`zeros_first`: the states that begin as zeros where the caller does not give them; `standing`: how weights may be read
        where they stand, see `MatrixPack.stands`.
        """
        self.program, self.machine, self.zeros_first, self.standing = program, machine, zeros_first, standing
        self.packs: dict[tuple[object, ...], MatrixPack] = {}
        self.biases: dict[tuple[object, ...], BiasPack] = {}
        self.inits: dict[tuple[object, ...], Init] = {}
        self.roles = {b.name: b.role for b in program.buffers}
        made_before = {b for s in program.before for k in s.kernels for _, b, _ in k.stores}
        self.early = made_before | {name for name, role in self.roles.items() if role in ("stream", "cotangent")}

    def shape(self, kernel: Kernel, in_loop: bool) -> Shaped:
        """`in_loop`: products of what is known before the loop may be hoisted."""
        affines = kernel.affines
        count = len(affines)
        width = max(1, TILE_VECTORS // count) if count else 1
        depths: dict[OperandKey, Dim] = {}
        accumulators, sums = [], []
        for i in affines:
            terms, biases = affine_parts(kernel.nodes[i])
            early, keys = [], []
            for matrix, operand, transposed, heads in terms:
                buffer, later = kernel.nodes[operand].attributes
                weight = kernel.nodes[matrix].attributes[0]
                foldable = in_loop and buffer in self.early
                if foldable:
                    early.append((weight, transposed, buffer, later))
                keys.append(OperandKey(buffer, later, foldable, heads))
                depths[keys[-1]] = kernel.nodes[operand].shape[0]
            sums.append(keys)
            accumulators.append(self._begin(kernel, i, early, tuple(kernel.nodes[b].attributes[0] for b in biases)))
        grouped: dict[OperandKey, list[tuple[int, str, bool]]] = {}
        together, sums = in_common_order(sums)
        for position, (i, keys) in enumerate(zip(affines, sums, strict=True)):
            for key, (matrix, _, transposed, _) in zip(keys, affine_parts(kernel.nodes[i])[0], strict=True):
                grouped.setdefault(key, []).append((position, kernel.nodes[matrix].attributes[0], transposed))
        operands = []
        parts = [(k, uses) for k in sorted(together, key=lambda k: not k.early) for uses in parted(grouped[k])]
        for key, uses in parts:
            depth = depths[replace(key, copy=0)]
            assert kernel.dim is not None
            pack = self._matrix_pack(tuple((w, transposed) for _, w, transposed in uses), kernel.dim, depth, width, key.heads)
            zeros = key.buffer in self.zeros_first and key.later == 0 and not any(transposed for _, _, transposed in uses)
            zeros = zeros and pack.heads == 1
            accumulators_of = tuple(p for p, _, _ in uses)
            weights = tuple(w for w, _ in pack.weights)
            where = key.buffer, key.later, depth, key.early
            operands.append(Operand(*where, accumulators_of, pack.name, zeros, weights, pack.stands, pack.heads))
        vectors = width * max((len(operand.accumulators) for operand in operands), default=0)
        heights = tile_heights(self.machine, vectors)
        tiles = min(STRIP_ROWS // heights[0], -(-(self.machine.most_rows or STRIP_ROWS) // heights[0]))
        return Shaped(kernel, tuple(accumulators), tuple(operands), width, heights, tiles * heights[0])

    def _begin(self, kernel: Kernel, node: int, early: list[tuple[str, bool, str, int]], biases: tuple[str, ...]) -> Accumulator:
        size = kernel.nodes[node].shape[0]
        if early:
            (later,) = {t[3] for t in early}
            signature = (tuple(t[:3] for t in early), biases)
            if signature not in self.inits:
                self.inits[signature] = Init(f"{INIT}{len(self.inits)}", self._bias_pack(biases, size), size)
            return Accumulator(node, (self.inits[signature].buffer, later), self.inits[signature].bias)
        return Accumulator(node, None, self._bias_pack(biases, size) if biases else None)

    def _bias_pack(self, weights: tuple[str, ...], size: Dim) -> str:
        key = (weights, size)
        if key not in self.biases:
            self.biases[key] = BiasPack(f"bias{len(self.biases)}", weights, size)
        return self.biases[key].name

    def _matrix_pack(self, weights: tuple[tuple[str, bool], ...], size: Dim, depth: Dim, width: int, heads: int) -> MatrixPack:
        key = (weights, size, depth, width, heads)
        if key not in self.packs:
            transposed = [t for _, t in weights]
            stands = "rows" if transposed == [True] else "squares" if not any(transposed) else None
            stands = stands if heads == 1 and stands in self.standing else None
            self.packs[key] = MatrixPack(f"pack{len(self.packs)}", weights, size, depth, width, heads, stands)
        return self.packs[key]
