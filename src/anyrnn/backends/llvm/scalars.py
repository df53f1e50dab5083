"""Emits scalar kernels: one value a row, by scalar arithmetic and by reductions that read whole rows."""

from __future__ import annotations

from anyrnn.backends.llvm.block import Layout
from anyrnn.backends.llvm.builder import Function, Module, Value, const, i64, vector
from anyrnn.backends.llvm.emitter import Element, Emitter, is_callers, lanes_left, load_lanes
from anyrnn.ir.graph import reachable
from anyrnn.passes.plan import Kernel, Program


class ScalarKernel(Emitter):
    """One value a row: scalar arithmetic, and reductions that read whole rows."""

    def __init__(self, module: Module, layout: Layout, program: Program, element: Element, kernel: Kernel) -> None:
        super().__init__(module, layout, program, element, kernel)
        self.needed = sorted(reachable(self.nodes, (i for i, _, _ in kernel.stores)))
        self.emit()

    def emit(self) -> None:
        b = self.b
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
        self.sizes = {
            self.nodes[self.nodes[i].inputs[0]].shape[0]: None for i in self.needed if self.nodes[i].row.kind == "reduction"
        }
        counts = {dim: self.size(dim) for dim in self.sizes}
        loop = b.loop("row", 0, self.rows)
        row = self.row = loop.index
        self.rows_at = {key: self.row_at(key, base, row, row) for key, base in self.bases.items()}
        values: dict[int, Value] = {}
        waiting = [i for i in self.needed if self.nodes[i].shape == ()]
        while waiting:
            ready = [
                i for i in waiting if self.nodes[i].row.kind != "reduction" and all(s in values for s in self.nodes[i].inputs)
            ]
            for i in ready:
                values[i] = self.scalar(i, values)
            waiting = [i for i in waiting if i not in values]
            sums = [i for i in waiting if self.nodes[i].row.kind == "reduction" and self.can_reduce(i, values)]
            assert ready or sums, "a scalar kernel cannot be ordered"
            for dim in dict.fromkeys(self.nodes[self.nodes[i].inputs[0]].shape[0] for i in sums):
                self.reduce([i for i in sums if self.nodes[self.nodes[i].inputs[0]].shape[0] == dim], counts[dim], values)
            waiting = [i for i in waiting if i not in values]
        for i, buffer, later in self.kernel.stores:
            b.store(values[i], self.rows_at[buffer, later], self.element.bytes)
        b.end(loop)
        b.ret()

    def scalar(self, i: int, values: dict[int, Value]) -> Value:
        node = self.nodes[i]
        if node.op == "constant":
            return const(self.element.type, node.attributes[0])
        if node.op == "load":
            return self.b.load(self.element.type, self.rows_at[node.attributes], self.label(i), self.element.bytes)
        if not node.per_sample:
            return self.parameter_scalar(i)
        return self.elementwise(node, self.label(i), [values[s] for s in node.inputs])

    def vector_inputs(self, i: int) -> set[int]:
        """The scalars that a reduction's argument is made with."""
        inside = reachable(self.nodes, [self.nodes[i].inputs[0]])
        return {s for j in inside if self.nodes[j].shape for s in self.nodes[j].inputs if self.nodes[s].shape == ()}

    def can_reduce(self, i: int, values: dict[int, Value]) -> bool:
        return self.vector_inputs(i) <= values.keys()

    def reduce(self, reductions: list[int], count: Value, scalars: dict[int, Value]) -> None:
        """Several sums over the features of one row, in one loop over its panels."""
        b, e = self.b, self.element
        spread = {s: b.splat(scalars[s], e.lanes, self.label(s)) for i in reductions for s in self.vector_inputs(i)}
        inside = sorted({j for i in reductions for j in reachable(self.nodes, [self.nodes[i].inputs[0]]) if self.nodes[j].shape})
        zero = const(e.vector, 0.0)
        loop = b.loop("feature", 0, count, e.lanes, [(f"{self.label(i)}.lanes", zero) for i in reductions])
        panel = b.binary("sdiv", loop.index, i64(e.lanes), "panel")
        lanes = lanes_left(b, b.sub(count, loop.index, "left"), e.lanes)
        values = dict(spread)
        for j in inside:
            node = self.nodes[j]
            if node.op == "load":
                buffer = node.attributes[0]
                at = self.advance(self.rows_at[node.attributes], b.mul(self.panel_bytes[buffer], panel), buffer)
                values[j] = (
                    load_lanes(b, e, at, lanes, buffer)
                    if is_callers(self.program, buffer)
                    else b.load(e.vector, at, buffer, e.panel_row)
                )
            elif not node.per_sample:
                address = self.pointer(self.layout.weight(node.attributes[0]), node.attributes[0])
                values[j] = load_lanes(b, e, b.at(address, loop.index, e.type), lanes, node.attributes[0])
            else:
                operands = [values[s] if s in values else const(e.vector, self.nodes[s].attributes[0]) for s in node.inputs]
                values[j] = self.elementwise(node, self.label(j), operands, loop.index, self.row)
        following = []
        for i, partial in zip(reductions, loop.values, strict=True):
            kept = b.select(lanes.mask, values[self.nodes[i].inputs[0]], zero, "kept")
            following.append(b.fadd(partial, kept, "partial"))
        for i, total in zip(reductions, b.end(loop, following), strict=True):
            scalars[i] = horizontal_sum(b, total, e, self.label(i))


def horizontal_sum(b: Function, value: Value, e: Element, name: str) -> Value:
    """The sum of all lanes, by halves."""
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
        value = b.fadd(halves[0], halves[1], "halves")
    return b.value(e.type, f"extractelement {vector(e.type, 1)} {value}, i64 0", name)
