"""What of a program is done by generated kernels, and what by a library of large products.

Of a product in the loop, the operands that are known before the steps are multiplied before them, for all steps of a chunk at
once, and so are all operands of what is done before and after the steps. The kernels begin from these sums (`Early`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import affine_parts
from anyrnn.passes.plan import Kernel, Program, Stage


@dataclass(frozen=True)
class Term:
    """A product: of a weight, maybe transposed or made of blocks, with a buffer some steps later than the current one."""

    weight: str
    operand: str
    later: int
    transposed: bool
    heads: int


@dataclass(frozen=True)
class Early:
    """A sum made before the steps, of products with what is known there, and of biases. It stands in a buffer of its name."""

    name: str
    dim: Dim
    biases: tuple[str, ...]
    terms: tuple[Term, ...]


@dataclass(frozen=True)
class Sum:
    """An affine of a kernel: what it begins from (an early sum some steps later than the current one, or biases), and the
    products that are added in the kernel.
    """

    early: Early | None
    later: int
    biases: tuple[str, ...]
    terms: tuple[Term, ...]


@dataclass(frozen=True)
class Scatter:
    """A sum of products that can be made where the operands are: each program multiplies the features of them that it has made,
    gives every other what belongs to its features of the sum, and adds up what it is given. The sum is read in the step that
    makes its operands or in the next, so that memory for two steps is enough.
    """

    name: str
    dim: Dim
    terms: tuple[Term, ...]
    """all at the same step"""
    kernels: frozenset[int]
    """by identity, those that store the last of the operands; they multiply"""


LEAST_SCATTERED = 3
"""Products of a sum that is scattered: with as many features everywhere, reading their operands is as good for two."""


class Lowered:
    """A program with its affines taken apart. `late`: what could be multiplied before the steps is multiplied in them."""

    def __init__(self, program: Program, late: bool = False) -> None:
        self.program, self.late = program, late
        self.sums: dict[tuple[int, int], Sum] = {}
        """by the identity of a kernel, and the node"""
        self.earlies: dict[tuple[object, ...], Early] = {}
        self.early_of: dict[int, list[Early]] = {}
        """by the identity of a stage, those that its kernels begin from"""
        self.written = {b for stage in self.loop for kernel in stage.kernels for _, b, _ in kernel.stores}
        for stage in self.loop:
            self._take_apart(stage, in_loop=True)
        for stage in (*program.before, *program.after):
            self._take_apart(stage, in_loop=False)

    @cached_property
    def loop(self) -> tuple[Stage, ...]:
        """The stages in the steps."""
        program = self.program
        return tuple(filter(None, (program.entry, *program.body, program.exit)))

    @cached_property
    def _kernels(self) -> tuple[Kernel, ...]:
        return tuple(kernel for stage in self.loop for kernel in stage.kernels)

    def is_product(self, kernel: Kernel) -> bool:
        """Whether all that a kernel outside of the loop stores are sums of products, which no kernel need be written for."""
        outside = all(kernel is not one for stage in self.loop for one in stage.kernels)
        return outside and all(kernel.nodes[i].op == "affine" for i, _, _ in kernel.stores)

    def sum_of(self, kernel: Kernel, node: int) -> Sum:
        return self.sums[id(kernel), node]

    @cached_property
    def scatters(self) -> dict[tuple[int, int], Scatter]:
        """By the identity of a kernel of the loop, and the node."""
        by_terms: dict[tuple[object, ...], Scatter] = {}
        found = {}
        for kernel in self._kernels:
            for i in kernel.affines:
                terms, dim = self.sum_of(kernel, i).terms, kernel.nodes[i].shape[0]
                kernels = self._multiplying(terms)
                if kernels:
                    key = dim, *((t.weight, t.operand, t.transposed) for t in terms)
                    name = f"products_of_{terms[0].operand}" + (f"_{len(by_terms)}" if by_terms else "")
                    found[id(kernel), i] = by_terms.setdefault(key, Scatter(name, dim, terms, kernels))
        return found

    def _multiplying(self, terms: tuple[Term, ...]) -> frozenset[int]:
        """The kernels that store the last of the operands of a sum, by identity; none where it cannot be scattered: where an
        operand comes from outside of the steps, or some are of other steps or sizes.
        """
        program, operands = self.program, {t.operand for t in terms}
        plain = len({t.later for t in terms}) == 1 and all(t.heads == 1 for t in terms)
        carried = any(program.buffer(name).role == "state" for name in operands)
        if len(terms) < LEAST_SCATTERED or not plain or carried:
            return frozenset()
        found = set()
        for first in filter(None, (program.entry, program.body[0])):
            kernels = [kernel for stage in (first, *program.body[1:]) for kernel in stage.kernels]
            made = [
                (kernel, buffer) for kernel in kernels for _, buffer, later in kernel.stores if buffer in operands and not later
            ]
            if {buffer for _, buffer in made} != operands or any(kernel.dim != made[-1][0].dim for kernel, _ in made):
                return frozenset()
            found.add(id(made[-1][0]))
        return frozenset(found)

    def of_stages(self, stages: Iterable[Stage]) -> list[Early]:
        """Each once."""
        return list(dict.fromkeys(early for stage in stages for early in self.early_of[id(stage)]))

    def _take_apart(self, stage: Stage, in_loop: bool) -> None:
        """In the loop, what is made in it is late; and what is made early is of one step, which may be later than the current."""
        late_buffers = {b.name for b in self.program.buffers if b.role in ("state", "cross")}
        late_buffers |= self.written if in_loop else set()
        found: list[Early] = []
        for kernel in stage.kernels:
            for i in kernel.affines:
                nodes, dim = kernel.nodes, kernel.nodes[i].shape[0]
                parts, bias_nodes = affine_parts(nodes[i])
                terms = [
                    Term(nodes[m].attributes[0], nodes[o].attributes[0], nodes[o].attributes[1], transposed, heads)
                    for m, o, transposed, heads in parts
                ]
                biases = tuple(nodes[b].attributes[0] for b in bias_nodes)
                early = [t for t in terms if t.operand not in late_buffers and not (in_loop and self.late)]
                first = early[0].later if early and in_loop else 0
                early = [t for t in early if t.later == first or not in_loop]
                late = tuple(t for t in terms if t not in early)
                if not early:
                    self.sums[id(kernel), i] = Sum(None, 0, biases, late)
                    continue
                here = tuple(Term(t.weight, t.operand, t.later - first, t.transposed, t.heads) for t in early)
                key = (dim, biases, here)
                if key not in self.earlies:
                    name = nodes[i].name or "v"
                    taken = {e.name for e in self.earlies.values()} | {b.name for b in self.program.buffers}
                    name = next(n for n in (f"early_{name}", *(f"early_{name}_{k}" for k in range(999))) if n not in taken)
                    self.earlies[key] = Early(name, dim, biases, here)
                found.append(self.earlies[key])
                self.sums[id(kernel), i] = Sum(self.earlies[key], first, (), late)
        self.early_of[id(stage)] = found
