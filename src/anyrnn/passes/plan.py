"""What a backend sees: programs of kernels over buffers. Pure data, hashable, structure only: no size is in it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import Node, affine_parts, reachable

MOVES = ("slice", "concat")
"""Ops that make features of features that stand elsewhere: what they read stands in memory, as products' operands do."""
Store = tuple[int, str, int]
"""(node of the kernel, buffer, how many steps later than the current one)"""


@dataclass(frozen=True)
class Buffer:
    """An array of one vector (or, with `dim` None, one scalar) for every step and sample.

    Roles: `stream` is the caller's array, read at each step; `cotangent` too, but it may be given for some steps only;
    `output` the caller's, written; `state` goes from step to step;
    `saved` is kept from forward to backward; `cross` crosses stages within a step, or the border of a step in a rotated loop;
    `chunk` holds the steps of a chunk, for what is done before or after the steps; what is stored to a `sum` is added to what
    the steps before have stored there; `history` is what a scan writes: a state before every step and after the last.
    """

    name: str
    role: str
    dim: Dim | None


@dataclass(frozen=True)
class Kernel:
    """A stage's work on the features of one size: products first, pointwise work on their results, stores.

    `nodes` is a graph whose leaves are loads, parameters and constants. With `dim` None it computes scalars, one row after
    the other, and its reductions read whole rows.
    """

    name: str
    dim: Dim | None
    nodes: tuple[Node, ...]
    stores: tuple[Store, ...]

    @property
    def loads(self) -> list[tuple[int, str, int]]:
        """(node, buffer, steps later) of each load."""
        return [(i, *n.attributes) for i, n in enumerate(self.nodes) if n.op == "load"]

    @property
    def affines(self) -> list[int]:
        return [i for i, n in enumerate(self.nodes) if n.op == "affine"]

    @property
    def moved(self) -> set[int]:
        """The operands of all that moves features."""
        return {s for n in self.nodes if n.op in MOVES for s in n.inputs}

    @cached_property
    def numbers_in(self) -> dict[int, set[int]]:
        """The numbers that the argument of each reduction is made with."""
        nodes, found = self.nodes, dict[int, set[int]]()
        for i in (i for i, node in enumerate(nodes) if node.row.kind == "reduction"):
            inside = reachable(nodes, [nodes[i].inputs[0]])
            found[i] = {s for j in inside if nodes[j].shape for s in nodes[j].inputs if nodes[s].shape == ()}
        return found

    def read_in_place(self, needed: Iterable[int]) -> set[int]:
        """Of what some nodes read, and of what is stored, that whose features become the same features: neither operands of
        products nor what is moved, unless that is one number for all features.
        """
        nodes = self.nodes
        read = {s for i in needed if nodes[i].op not in ("affine", *MOVES) for s in nodes[i].inputs}
        return read | {i for i, _, _ in self.stores} | {s for s in self.moved if nodes[s].op == "fill"}


def joined_at(nodes: Sequence[Node], node: Node) -> list[Dim]:
    """Which feature of a join the first one of each operand becomes, and behind these how many features it has."""
    return list(accumulate((nodes[s].shape[0] for s in node.inputs), initial=Dim()))


def beyond_kernels(nodes: Sequence[Node], spelled: Container[str]) -> str | None:
    """What of a kernel's nodes a backend with spellings for some ops cannot run, or None."""
    for node in nodes:
        if not node.per_sample:
            continue
        if node.op == "affine" and any(not nodes[operand].per_sample for _, operand, _, _ in affine_parts(node)[0]):
            return "a product in blocks, of parameters alone, beside others"
        if node.row.kind == "elementwise" and node.op not in spelled and node.op != "choose":
            return f"the op {node.op}"
    return None


@dataclass(frozen=True)
class Stage:
    """Kernels that need no barrier between them. The first ones may be scalar kernels (`dim` None), which every thread runs for
    the rows it works on.
    """

    kernels: tuple[Kernel, ...]


@dataclass(frozen=True)
class GradientProduct:
    """weight gradient += sum over steps and samples of left (x) right; both are (buffer, steps later)."""

    weight: str
    left: tuple[str, int]
    right: tuple[str, int]
    heads: int


@dataclass(frozen=True)
class GradientSum:
    """weight gradient += sum over steps and samples of what a buffer holds; a `sum` holds what steps have added up."""

    weight: str
    value: tuple[str, int]


@dataclass(frozen=True)
class Scan:
    """What takes the place of a loop for states that depend on each other alone, and as a sum: of each state times a factor, and
    a term. Buffers; None where one is zero.
    """

    states: tuple[str, ...]
    factors: tuple[tuple[str | None, ...], ...]
    """for each new state, those of all states"""
    terms: tuple[str | None, ...]

    @property
    def coefficients(self) -> tuple[str, ...]:
        """All buffers that it reads."""
        return tuple(name for name in (*self.terms, *(f for row in self.factors for f in row)) if name is not None)


@dataclass(frozen=True)
class Program:
    """One pass over time.

    For each chunk of steps: `before` for all its steps at once; step by step `body`; then `after`, and the gradients, for all
    its steps. A rotated loop runs `entry` instead of the first stage of `body` in its first step, and `exit` after its last.
    `states` are carried: (buffer); the loop reads the value before a step and writes the one after it. With `scans` there is no
    loop: they are done between `before` and `after`.
    """

    reverse: bool
    buffers: tuple[Buffer, ...]
    states: tuple[str, ...]
    before: tuple[Stage, ...]
    entry: Stage | None
    body: tuple[Stage, ...]
    exit: Stage | None
    after: tuple[Stage, ...]
    products: tuple[GradientProduct, ...] = ()
    sums: tuple[GradientSum, ...] = ()
    stages: int = 0
    """All-feature dependencies on the longest cycle through one step."""
    scans: tuple[Scan, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether threads that share a step's columns wait for each other after each of its stages: for features that others
        make, or before the next step's numbers take the place of numbers (one a sample) that another thread still reads.
        """
        return self.stages > 0 or any(kernel.dim is None for stage in self.body for kernel in stage.kernels)

    @property
    def kernels(self) -> list[Kernel]:
        """Of all stages."""
        stages = (*self.before, *filter(None, (self.entry, self.exit)), *self.body, *self.after)
        return [kernel for stage in stages for kernel in stage.kernels]

    @cached_property
    def choices(self) -> dict[str, Dim]:
        """The random choices that are made for features, and of how many."""
        nodes = (node for kernel in self.kernels for node in kernel.nodes)
        return {n.attributes[0]: n.shape[0] for n in nodes if n.op == "choose"}

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """The buffers that are the caller's, to be written."""
        return tuple(b.name for b in self.buffers if b.role == "output")

    @property
    def read_by_gradients(self) -> list[tuple[str, int]]:
        """(buffer, steps later) of all that products and sums of gradients read."""
        return [side for p in self.products for side in (p.left, p.right)] + [s.value for s in self.sums]

    def is_pointwise(self, buffer: str) -> bool:
        """Whether no product, no gradient's sum and nothing that moves features reads a buffer as it stands."""
        read = {name for name, _ in self.read_by_gradients}
        for kernel in self.kernels:
            for i in kernel.affines:
                operands = (operand for _, operand, _, _ in affine_parts(kernel.nodes[i])[0])
                read |= {kernel.nodes[operand].attributes[0] for operand in operands}
            read |= {kernel.nodes[i].attributes[0] for i in kernel.moved if kernel.nodes[i].op == "load"}
        return buffer not in read

    def is_sum(self, buffer: str) -> bool:
        """Whether what is stored to a buffer is added to what is there."""
        return self.role(buffer) == "sum"

    def buffer(self, name: str) -> Buffer:
        return self._by_name[name]

    def role(self, buffer: str) -> str:
        """Empty for what is no buffer of the program's: the first values of states."""
        return self._by_name[buffer].role if buffer in self._by_name else ""

    @cached_property
    def _by_name(self) -> dict[str, Buffer]:
        return {b.name: b for b in self.buffers}
