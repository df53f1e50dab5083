"""Checks that a program is legal: its kernels by themselves, and that it reads nothing that has not been written.

Tests run them over every cell; nothing else does, as a plan that is not legal is a defect of this package.
"""

from __future__ import annotations

from collections.abc import Iterable

from anyrnn.ir.check import check_nodes, demand, fail
from anyrnn.ir.dims import Dim, Shape, shape_text
from anyrnn.ir.graph import Node, affine_parts, reachable
from anyrnn.passes.parameters import CONSTANTS, ParameterPhase
from anyrnn.passes.plan import MOVES, Kernel, Program, Stage


def check_phase(phase: ParameterPhase, who: str = "parameter phase") -> None:
    """The parameter phase: what the step reads of it has names that differ, and the shapes that it says."""
    check_nodes(phase.nodes, who)
    names = [w.name for w in phase.weights]
    twice = [name for name in names if names.count(name) > 1]
    demand(not twice, who, f"calls two weights {twice[:1]}")
    for weight in phase.weights:
        if phase.nodes[weight.node].shape != weight.shape or phase.nodes[weight.node].per_sample:
            fail(phase.nodes, weight.node, who, f"is not the weight {weight.name!r} {shape_text(weight.shape)}")


GIVEN = ("stream", "cotangent")
WRITTEN = ("output", "state", "saved", "cross", "chunk", "sum")
SCANNED = "history"
STEPS, CHUNK = 5, 2
"""What a program is tried on: a rotated loop has a first step, a last one, and some between; the last chunk is not full."""


def check_program(program: Program, who: str = "program") -> None:
    """A program: its kernels by themselves, then run on names alone, so that a read of what nothing has written is seen."""
    buffers = {b.name: b for b in program.buffers}
    demand(len(buffers) == len(program.buffers), who, "calls two buffers the same")
    for buffer in program.buffers:
        demand(buffer.role in (*GIVEN, *WRITTEN, SCANNED), who, f"buffer {buffer.name!r} has the unknown role {buffer.role!r}")
        if buffer.role == "sum":
            demand(buffer.dim is not None, who, f"adds up {buffer.name!r}, one number a sample, which several threads make")
            _check_sum(program, buffer.name, who)
    histories = {b.name for b in program.buffers if b.role == SCANNED}
    demand(histories == {s for scan in program.scans for s in scan.states}, who, f"has histories {sorted(histories)} of no scan")
    demand(not program.scans or not (program.body or program.states), who, "has a loop beside scans")
    for state in program.states:
        demand(state in buffers and buffers[state].role == "state", who, f"{state!r} is no buffer of a state")
    demand((program.entry is None) == (program.exit is None), who, "has an entry without an exit, or an exit without an entry")
    for stage in _stages(program):
        sizes = [kernel.dim for kernel in stage.kernels]
        demand(len(set(sizes)) == len(sizes), who, "has a stage with two kernels of one size")
        demand(None not in sizes[1:], who, "has a stage in which scalars are not made first")
        for kernel in stage.kernels:
            _check_kernel(program, kernel, f"{who}, kernel {kernel.name}")
    for name, _ in program.read_by_gradients:
        demand(name in buffers, who, f"a gradient reads {name!r}, which is no buffer")
    for product in program.products:
        sides = buffers[product.left[0]].dim, buffers[product.right[0]].dim
        demand(None not in sides, who, f"the gradient of {product.weight!r} is a product of what is no vector")
    _Trial(program, who).run()


def _check_sum(program: Program, name: str, who: str) -> None:
    """What steps add up is stored once in each of them, and nowhere else."""

    def stores(stages: Iterable[Stage]) -> int:
        return sum(buffer == name for stage in stages for kernel in stage.kernels for _, buffer, _ in kernel.stores)

    demand(stores(program.body) == 1, who, f"adds to {name!r} {stores(program.body)} times a step")
    demand(stores([*program.before, *program.after]) == 0, who, f"adds to {name!r} outside the steps")


def _stages(program: Program) -> Iterable[Stage]:
    ends = [s for s in (program.entry, program.exit) if s is not None]
    return [*program.before, *ends, *program.body, *program.after]


def _check_kernel(program: Program, kernel: Kernel, who: str) -> None:
    truths = check_nodes(kernel.nodes, who, of_samples=bool(program.scans))
    buffers = {b.name: b for b in program.buffers}
    nodes = kernel.nodes
    elsewhere = {s for i in kernel.affines for s in nodes[i].inputs} | kernel.moved
    inside = reachable(nodes, [s for n in nodes if n.row.kind == "reduction" for s in n.inputs])
    for i, node in enumerate(nodes):
        if node.row.kind == "leaf" and node.op not in ("load", "parameter", *CONSTANTS):
            fail(nodes, i, who, "is no leaf of a kernel")
        if node.op == "load":
            buffer = buffers.get(node.attributes[0])
            if buffer is None:
                fail(nodes, i, who, f"loads {node.attributes[0]!r}, which is no buffer")
            if buffer.role == "sum":
                fail(nodes, i, who, f"loads {buffer.name!r}, which is added up over steps")
            if node.shape != _shape(buffer.dim):
                fail(nodes, i, who, f"loads {shape_text(node.shape)} from {buffer.name!r} {shape_text(_shape(buffer.dim))}")
        if node.op == "affine":
            if kernel.dim is None:
                fail(nodes, i, who, "is a product among scalars")
            if any(nodes[operand].op != "load" for _, operand, _, _ in affine_parts(node)[0]):
                fail(nodes, i, who, "multiplies what does not stand in memory")
        if node.op in MOVES and any(nodes[s].per_sample and nodes[s].op not in ("load", "fill", *MOVES) for s in node.inputs):
            fail(nodes, i, who, "moves what does not stand in memory")
        if not node.per_sample or (node.op in ("load", "fill", *MOVES) and i in elsewhere):
            continue
        if kernel.dim is None:
            if node.shape and i not in inside:
                fail(nodes, i, who, f"is a vector {shape_text(node.shape)} among scalars")
        elif node.shape == ():
            if node.op != "load" and not node.row.boolean:
                fail(nodes, i, who, "makes a scalar among columns")
        elif node.shape != (kernel.dim,):
            fail(nodes, i, who, f"has shape {shape_text(node.shape)} among columns of {kernel.dim}")
    for i, name, _ in kernel.stores:
        demand(name in buffers, who, f"stores to {name!r}, which is no buffer")
        if buffers[name].role not in WRITTEN or (program.reverse and buffers[name].role == "saved"):
            fail(nodes, i, who, f"is stored to {name!r}, which is only read")
        if _shape(buffers[name].dim) != nodes[i].shape or nodes[i].shape != _shape(kernel.dim):
            fail(
                nodes,
                i,
                who,
                f"of shape {shape_text(nodes[i].shape)} is stored to {name!r} {shape_text(_shape(buffers[name].dim))}",
            )
        if not nodes[i].per_sample or truths[i]:
            fail(nodes, i, who, f"is stored to {name!r} and is no number of each sample")


def _shape(dim: Dim | None) -> Shape:
    return () if dim is None else (dim,)


class _Trial:
    """A run of a program over a few steps that keeps account of which slots of which buffers have been written."""

    def __init__(self, program: Program, who: str) -> None:
        self.program, self.who = program, who
        self.roles = {b.name: b.role for b in program.buffers}
        self.first = STEPS if program.reverse else 0
        """the slot of a state before the first step that is done"""
        read_only = {*GIVEN, "saved"} if program.reverse else set(GIVEN)
        self.written = {(b.name, slot) for b in program.buffers if b.role in read_only for slot in range(STEPS + 1)}
        self.written |= {(name, self.first) for name in program.states}

    def run(self) -> None:
        program = self.program
        chunk = STEPS if program.scans else CHUNK
        begins = range(0, STEPS, chunk)
        for begin in reversed(begins) if program.reverse else begins:
            steps = range(begin, min(begin + chunk, STEPS))
            for stage in program.before:
                self.do(stage, steps)
            for scan in program.scans:
                for name in scan.coefficients:
                    for t in steps:
                        self.read(name, t, f"{self.who}, scan")
                self.written |= {(state, slot) for state in scan.states for slot in range(STEPS + 1)}
            for t in reversed(steps) if program.reverse else steps:
                first = t == (STEPS - 1 if program.reverse else 0)
                for position, stage in enumerate(program.body):
                    self.do(program.entry if first and position == 0 and program.entry else stage, [t])
            for stage in program.after:
                self.do(stage, steps)
            for name, later in program.read_by_gradients:
                for t in steps:
                    self.read(name, t + later, f"{self.who}, gradients")
        if program.exit is not None:
            self.do(program.exit, [-1 if program.reverse else STEPS])
        last = 0 if program.reverse else STEPS
        for name in program.states:
            demand((name, last) in self.written, self.who, f"never makes the last {name!r}")
        for name, role in self.roles.items():
            if role == "output" or (role == "saved" and not program.reverse):
                missing = [t for t in range(STEPS) if (name, t) not in self.written]
                demand(not missing, self.who, f"never makes {name!r} of step {missing[:1]}")

    def do(self, stage: Stage, steps: Iterable[int]) -> None:
        """A stage for some steps. Its threads do not wait for each other, so no kernel may need whole what another makes."""
        steps = list(steps)
        here: set[tuple[str, int]] = set()
        for kernel in stage.kernels:
            who = f"{self.who}, kernel {kernel.name}"
            for t in steps:
                for i, buffer, later in kernel.loads:
                    self.read(buffer, t + later, who)
                    if (buffer, t + later) in here and kernel.nodes[i].shape:
                        fail(kernel.nodes, i, who, f"loads {buffer!r} that another kernel of its stage makes")
            made = {(buffer, t + later) for t in steps for _, buffer, later in kernel.stores}
            whole = {(n.attributes[0], t + n.attributes[1]) for t in steps for n in _needed_whole(kernel)}
            for buffer, slot in sorted(whole & made):
                demand(False, who, f"needs all features of {buffer!r} at {slot} in the stage that makes them")
            here |= made
            self.written |= made

    def read(self, buffer: str, slot: int, who: str) -> None:
        if (buffer, slot) not in self.written:
            count = f"{STEPS} steps in chunks of {CHUNK}"
            raise AssertionError(f"{who} reads {buffer!r} at {slot}, which nothing has written (of {count})")


def _needed_whole(kernel: Kernel) -> list[Node]:
    """The loads of which a kernel needs every feature."""
    nodes = kernel.nodes
    operands = {v for i in kernel.affines for _, v, _, _ in affine_parts(nodes[i])[0]} | kernel.moved
    summed = reachable(nodes, [s for n in nodes if n.row.kind == "reduction" for s in n.inputs])
    return [nodes[i] for i in sorted(operands | summed) if nodes[i].op == "load"]
