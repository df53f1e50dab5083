"""Emits scalar kernels: one value a row, by scalar arithmetic and by reductions that read whole rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from anyrnn.backends.llvm import math
from anyrnn.backends.llvm.block import Layout
from anyrnn.backends.llvm.builder import Function, Module, Value, const, i64, vector
from anyrnn.backends.llvm.covering import cover
from anyrnn.backends.llvm.element import Element
from anyrnn.backends.llvm.emitter import Emitter, Key, is_callers
from anyrnn.backends.llvm.lanes import first_lanes
from anyrnn.backends.llvm.target import Machine
from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import SINGLE, reachable
from anyrnn.passes.plan import Kernel, Program

ROWS = 4
"""So many samples are summed together: the additions of one wait for each other."""


class Way(NamedTuple):
    """How a reduction makes one number of two; and of none."""

    both: Callable[[Function, Value, Value, str], Value]
    of_none: float


WAYS = {"sum": Way(Function.fadd, 0.0), "largest": Way(math.maximum, -inf)}
"""By op."""


@dataclass
class Row:
    """A sample in a tile."""

    index: Value
    at: dict[Key, Value]
    """Where its values stand, by buffer."""
    values: dict[int, Value] = field(default_factory=dict)
    """Its numbers, by node."""
    features: dict[int, Value] = field(default_factory=dict)
    """Those that are the only feature of a vector."""


class ScalarKernel(Emitter):
    """One value a row: scalar arithmetic, and reductions that read whole rows."""

    def __init__(
        self, module: Module, layout: Layout, program: Program, element: Element, machine: Machine, kernel: Kernel
    ) -> None:
        super().__init__(module, layout, program, element, machine, kernel)
        self.needed = sorted(reachable(self.nodes, (i for i, _, _ in kernel.stores)))
        self.emit()

    def emit(self) -> None:
        for i in self.needed:
            if self.nodes[i].op == "load":
                self.locate(*self.nodes[i].attributes)
            elif (
                not self.nodes[i].per_sample
                and self.nodes[i].op in ("size", "scale", "probability", "parameter")
                and self.nodes[i].shape == ()
            ):
                self.parameter_scalar(i)
        for _, buffer, later in self.kernel.stores:
            self.locate(buffer, later)
        sums = [i for i in self.needed if self.nodes[i].row.kind == "reduction"]
        self.counts = {dim: self.size(dim) for dim in dict.fromkeys(self.summed(i) for i in sums)}
        cover(self.b, self.rows, (ROWS, 1) if sums else (1,), self.tile)
        self.b.ret()

    def summed(self, i: int) -> Dim:
        """The features that a reduction adds."""
        return self.nodes[self.nodes[i].inputs[0]].shape[0]

    def tile(self, first: Value, height: int) -> None:
        """Some rows at once."""
        indices = [self.b.add(first, k, "row") if k else first for k in range(height)]
        rows = [Row(i, {key: self.row_at(key, base, i, i) for key, base in self.bases.items()}) for i in indices]
        done = rows[0].values
        waiting = [i for i in self.needed if self.nodes[i].shape == ()]
        while waiting:
            ready = [i for i in waiting if self.nodes[i].row.kind != "reduction" and all(s in done for s in self.nodes[i].inputs)]
            for i in ready:
                for row in rows:
                    row.values[i] = self.scalar(i, row)
            waiting = [i for i in waiting if i not in done]
            sums = [i for i in waiting if self.nodes[i].row.kind == "reduction" and self.kernel.numbers_in[i] <= done.keys()]
            assert ready or sums, "a scalar kernel cannot be ordered"
            single = [i for i in sums if self.is_single(i)]
            for i in single:
                for row in rows:
                    row.values[i] = self.only_feature(self.nodes[i].inputs[0], row)
            others = [i for i in sums if i not in single]
            for dim in dict.fromkeys(self.summed(i) for i in others):
                self.reduce([i for i in others if self.summed(i) == dim], self.counts[dim], rows)
            waiting = [i for i in waiting if i not in done]
        for i, buffer, later in self.kernel.stores:
            for row in rows:
                self.b.store(row.values[i], row.at[buffer, later], self.element.bytes)

    def scalar(self, i: int, row: Row) -> Value:
        node = self.nodes[i]
        if node.op == "constant":
            return const(self.element.type, node.attributes[0])
        if node.op == "load":
            return self.b.load(self.element.type, row.at[node.attributes], self.label(i), self.element.bytes)
        if not node.per_sample:
            return self.parameter_scalar(i)
        return self.elementwise(node, self.label(i), [row.values[s] for s in node.inputs])

    def is_single(self, i: int) -> bool:
        """Whether a reduction is of a vector of one feature, which is computed as the number that it is. Random choices are made
        for whole vectors.
        """
        inside = reachable(self.nodes, [self.nodes[i].inputs[0]])
        return (self.summed(i),) == SINGLE and not any(self.nodes[j].op == "choose" for j in inside)

    def only_feature(self, i: int, row: Row) -> Value:
        for j in sorted(j for j in reachable(self.nodes, [i]) if self.nodes[j].shape and j not in row.features):
            node, name = self.nodes[j], self.label(j)
            if node.op == "load":
                row.features[j] = self.b.load(self.element.type, row.at[node.attributes], name, self.element.bytes)
            elif not node.per_sample:
                weight = node.attributes[0]
                row.features[j] = self.b.load(self.element.type, self.pointer(self.layout.weight(weight), weight), name)
            else:
                operands = [row.features[s] if self.nodes[s].shape else row.values[s] for s in node.inputs]
                row.features[j] = self.elementwise(node, name, operands)
        return row.features[i]

    def reduce(self, reductions: list[int], count: Value, rows: Sequence[Row]) -> None:
        """Several sums over the features of some rows, or the largest: a loop over their full panels, and what is left."""
        b, e = self.b, self.element
        inside = sorted({j for i in reductions for j in reachable(self.nodes, [self.nodes[i].inputs[0]]) if self.nodes[j].shape})
        weights = {j: self.nodes[j].attributes[0] for j in inside if not self.nodes[j].per_sample}
        weights_at = {j: self.pointer(self.layout.weight(name), name) for j, name in weights.items()}
        scalars = dict.fromkeys(s for i in reductions for s in self.kernel.numbers_in[i])
        spread = [{s: b.splat(row.values[s], e.lanes, self.label(s)) for s in scalars} for row in rows]
        pairs = [(i, k) for i in reductions for k in range(len(rows))]
        ways = {i: WAYS[self.nodes[i].op] for i in reductions}
        of_none = {i: const(e.vector, ways[i].of_none) for i in reductions}
        partials, full = [of_none[i] for i, _ in pairs], b.binary("and", count, i64(-e.lanes), "full")
        for first, end in ((i64(0), full), (full, count)):
            names = [f"{self.label(i)}.lanes" for i, _ in pairs]
            loop = b.loop("feature", first, end, e.lanes, list(zip(names, partials, strict=True)))
            mask = None if end == full else first_lanes(b, b.sub(count, loop.index, "left"), e.lanes)
            vectors = self.vectors(inside, weights_at, rows, spread, loop.index, mask)
            following = []
            for (i, k), partial in zip(pairs, loop.values, strict=True):
                value = vectors[k][self.nodes[i].inputs[0]]
                value = b.select(mask, value, of_none[i], "kept") if mask else value
                following.append(ways[i].both(b, partial, value, "partial"))
            partials = b.end(loop, following)
        for (i, k), partial in zip(pairs, partials, strict=True):
            rows[k].values[i] = horizontal(b, partial, e, self.label(i), ways[i])

    def vectors(
        self,
        inside: list[int],
        weights_at: dict[int, Value],
        rows: Sequence[Row],
        spread: list[dict[int, Value]],
        feature: Value,
        mask: Value | None,
    ) -> list[dict[int, Value]]:
        """For each row what is to be added from `feature` on, and what that is made of; `mask` says which lanes there are."""
        b, e = self.b, self.element

        def load(at: Value, name: str, align: int | None = None) -> Value:
            return b.masked_load(e.vector, at, mask, name) if mask else b.load(e.vector, at, name, align)

        weights = {j: load(b.at(at, feature, e.type), self.label(j)) for j, at in weights_at.items()}
        found = [{**weights, **scalars} for scalars in spread]
        panel = b.binary("sdiv", feature, i64(e.lanes), "panel")
        panels = {
            key: b.mul(self.panel_bytes[key[0]], panel)
            for key in (self.nodes[j].attributes for j in inside if self.nodes[j].op == "load")
        }
        for j in (j for j in inside if j not in weights):
            node = self.nodes[j]
            for row, values in zip(rows, found, strict=True):
                if node.op == "load":
                    buffer = node.attributes[0]
                    at = self.advance(row.at[node.attributes], panels[node.attributes], buffer)
                    values[j] = load(at, buffer, None if is_callers(self.program, buffer) else e.panel_row)
                else:
                    operands = [values[s] if s in values else const(e.vector, self.nodes[s].attributes[0]) for s in node.inputs]
                    values[j] = self.elementwise(node, self.label(j), operands, feature, row.index)
        return found


def horizontal(b: Function, value: Value, e: Element, name: str, way: Way) -> Value:
    """All lanes as one, by halves."""
    lanes = e.lanes
    while lanes > 1:
        lanes //= 2
        type = vector(e.type, lanes * 2)
        halves = []
        for start in (0, lanes):
            indices = ", ".join(f"i32 {start + k}" for k in range(lanes))
            halves.append(
                b.value(
                    vector(e.type, lanes), f"shufflevector {type} {value}, {type} poison, <{lanes} x i32> <{indices}>", "half"
                )
            )
        value = way.both(b, halves[0], halves[1], "halves")
    return b.value(e.type, f"extractelement {vector(e.type, 1)} {value}, i64 0", name)
