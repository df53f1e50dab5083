"""Emits the code of a whole program: its kernels, and the loop over chunks and steps that calls them.

`run(ptr block, i64 id, i64 count, ptr barrier, i64 chunk_from, i64 chunk_to)` is what each of `count` threads does for some
chunks of one layer in one direction, of all if `chunk_to` is large. Either rows are split (each thread takes its samples through
all steps, without a barrier) or columns (each thread owns some panels, hence some of the weights, and every stage ends at a
barrier; of panels that are left when all threads have as many, each does some rows).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from anyrnn.backends.llvm import threads
from anyrnn.backends.llvm.block import Layout, first_of, last_of, masks_of
from anyrnn.backends.llvm.builder import I64, PTR, TRUE, Module, Value, i64
from anyrnn.backends.llvm.claims import Claims, Range, Round
from anyrnn.backends.llvm.columns import ColumnKernel
from anyrnn.backends.llvm.copies import Copies
from anyrnn.backends.llvm.draws import Draws
from anyrnn.backends.llvm.element import Element
from anyrnn.backends.llvm.ends import Ends
from anyrnn.backends.llvm.fold import emit_fold, folded
from anyrnn.backends.llvm.gradients import Gradients, GradientSums, group_sums
from anyrnn.backends.llvm.int8 import round_rows
from anyrnn.backends.llvm.outer import PANELS_TOGETHER, block_tasks, group_of
from anyrnn.backends.llvm.scalars import ScalarKernel
from anyrnn.backends.llvm.shapes import BiasPack, Init, MatrixPack, Operand, Shaped, Shaper
from anyrnn.backends.llvm.stack import emit_stack
from anyrnn.backends.llvm.target import Machine
from anyrnn.backends.llvm.thread_code import ThreadCode
from anyrnn.backends.llvm.tiles import Tiles
from anyrnn.ir.dims import Dim
from anyrnn.ir.ops import RANDOM
from anyrnn.passes.parameters import Weight
from anyrnn.passes.plan import GradientProduct, Kernel, Program, Stage, joined_at

LEAST_ROWS = 4
"""A thread's rows at the least, of groups of panels that are left when all threads have as many."""


NO_BARRIER = "define internal void @barrier(ptr %state, i64 %n) nounwind {\n  ret void\n}\n"
"""Where there is one thread alone."""


@dataclass(frozen=True)
class Code:
    """A program's text, and what the caller must know to fill its argument block."""

    text: str
    layout: Layout
    dims: tuple[Dim, ...]
    """the sizes of the layout"""
    element: Element
    machine: Machine
    matrices: tuple[MatrixPack, ...]
    recurrent: frozenset[str]
    """the packs of matrices that every step reads"""
    of_states: Mapping[str, frozenset[str]]
    """those that multiply nothing but states which are zero in the first step where the caller gives none, and these states"""
    biases: tuple[BiasPack, ...]
    inits: tuple[Init, ...]
    sums: tuple[GradientSums, ...]


class Driver:
    """Emits one program."""

    def __init__(
        self,
        program: Program,
        weights: Sequence[Weight],
        summed: frozenset[str],
        state_values: dict[str, float],
        element: Element,
        machine: Machine,
        keeps: bool,
        packs: bool = True,
    ) -> None:
        """`keeps`: packed weights are left for the next call. `packs`: weights may have to be packed, or be
        read where they stand, and biases to be added up; else there is no code for that.
        """
        self.program, self.weights, self.state_values, self.element = program, weights, state_values, element
        self.machine, self.packs = machine, packs
        self.summed = {w.name for w in weights if w.source in summed}
        self.module = Module(machine.fused, machine.has_caches)
        self.zeros = frozenset(state for state, value in state_values.items() if not value)
        """the states that begin as zeros where the caller does not give them"""
        standing = () if element.together > 1 or not packs else ("rows",) if program.reverse else ("rows", "squares")
        shaper = Shaper(program, machine, frozenset() if program.reverse or element.int8 else self.zeros, standing)
        self.shaped: dict[int, Shaped] = {}
        for stages, in_loop in ((program.before, False), (self.loop_stages(), True), (program.after, False)):
            for stage in stages:
                for kernel in stage.kernels:
                    if kernel.dim is not None:
                        self.shaped[id(kernel)] = shaper.shape(kernel, in_loop)
        self.hoisting = self._hoisting()
        self.shapes = {w.name: w.shape for w in weights}
        self.sums = group_sums(program, self.shapes)
        self.matrices, self.biases, self.inits = (
            tuple(shaper.packs.values()),
            tuple(shaper.biases.values()),
            tuple(shaper.inits.values()),
        )
        self.layout = self._layout()
        self.copies = Copies(self.module, element, keeps)
        self.tiles = Tiles(self.module, element, machine, self.copies)
        self.gradients = Gradients(self.module, self.layout, program, element, machine)

    def loop_stages(self) -> list[Stage]:
        extra = [s for s in (self.program.entry, self.program.exit) if s is not None]
        return [*extra, *self.program.body]

    def _hoisting(self) -> list[Kernel]:
        """The kernels that make products with what is known before the loop: for every init buffer one that needs no other step
        than the buffer's own, as a rotated loop's kernels may.
        """
        chosen: list[Kernel] = []
        left = {buffer for shaped in self.shaped.values() for buffer, _ in shaped.inits}
        for kernel in (k for stage in self.loop_stages() for k in stage.kernels if k.dim is not None):
            inits = self.shaped[id(kernel)].inits
            if len({later for _, later in inits}) == 1 and left & dict(inits).keys():
                left -= dict(inits).keys()
                chosen.append(kernel)
        assert not left, f"no kernel makes {left} alone"
        return chosen

    def _layout(self) -> Layout:
        kernels = [*self.shaped_kernels(), *(k for s in self.all_stages() for k in s.kernels)]
        dims = [*self._dims(), *(n.attributes[0] for k in kernels for n in k.nodes if n.op == "size")]
        for kernel in kernels:  # where features that move begin, and how many there are
            for node in kernel.nodes:
                dims += node.attributes if node.op == "slice" else joined_at(kernel.nodes, node) if node.op == "concat" else []
            dims += [dim for i in kernel.moved for dim in kernel.nodes[i].shape]
        self.dims = tuple({str(d): d for d in sorted(dims, key=str)}.values())
        buffers = [b.name for b in self.program.buffers] + [i.buffer for i in self.inits]
        buffers += [name(s) for s in self.program.states for name in (first_of, last_of)]
        buffers += [masks_of(choice) for choice in self.program.choices]
        packs = [p.name for p in self.matrices] + [p.name for p in self.biases] + [s.name for s in self.sums]
        choices = sorted({n.attributes[0] for k in kernels for n in k.nodes if n.op in RANDOM})
        sizes, weights = (str(d) for d in self.dims), (w.name for w in self.weights)
        return Layout(tuple(sizes), tuple(choices), tuple(buffers), tuple(packs), tuple(weights))

    def all_stages(self) -> list[Stage]:
        return [*self.program.before, *self.loop_stages(), *self.program.after]

    def shaped_kernels(self) -> list[Kernel]:
        return [s.kernel for s in self.shaped.values()]

    # emission

    def code(self) -> Code:
        names: dict[int, str] = {}
        where = self.module, self.layout, self.program, self.element, self.machine
        for number, kernel in enumerate(k for s in self.all_stages() for k in s.kernels):
            unique = kernel if kernel.name not in names.values() else replace(kernel, name=f"{kernel.name}_{number}")
            names[id(kernel)] = unique.name
            if kernel.dim is None:
                ScalarKernel(*where, unique)
            else:
                shaped = self.shaped[id(kernel)]
                ColumnKernel(*where, replace(shaped, kernel=unique), self.tiles)
        if self.element.int8 and self.matrices:
            round_rows(self.module, self.element, self.machine)
        self.names = names
        self.outer_names = [self.gradients.outer(p.heads > 1) for p in self.program.products]
        self.sum_names = {s.name: self.gradients.column_sums(s) for s in self.sums}
        self.run()
        folds = folded(self.program)
        if folds is not None:
            emit_fold(self.module, self.layout, self.element, *folds)
        emit_stack(self.module, self.machine, folds is not None)
        self.module.verbatim.append(NO_BARRIER if self.machine.one_thread else threads.BARRIER)
        in_steps = [self.shaped[id(k)] for s in self.loop_stages() for k in s.kernels if k.dim is not None]
        return Code(
            text=str(self.module),
            layout=self.layout,
            dims=self.dims,
            element=self.element,
            machine=self.machine,
            matrices=self.matrices,
            recurrent=frozenset(o.pack for shaped in in_steps for o in shaped.operands if not o.foldable),
            of_states=self._of_states(),
            biases=self.biases,
            inits=self.inits,
            sums=self.sums,
        )

    def run(self) -> None:
        parameters = [("ptr", "block"), ("i64", "id"), ("i64", "count"), ("ptr", "barrier")]
        parameters += [("i64", "chunk_from"), ("i64", "chunk_to")]
        b = self.b = self.module.function("run", parameters, directs=True)
        row_sums = any(buffer.role == "sum" for buffer in self.program.buffers)
        thread = self.thread = ThreadCode(b, self.layout, self.element, self.dims, row_sums, self.machine.one_thread)
        self.ends = Ends(
            thread, self.program, self.copies, self.matrices, self.biases, self.sums, frozenset(self.summed), self.state_values
        )
        self.begin_at = [self._place_to_begin(product) for product in self.program.products]
        self.draws = Draws(thread, self.program.choices, each_step=not self.program.reverse)
        # with int8 each claim would round all rows again
        self.claims = Claims(thread, helps=not (self.machine.one_thread or self.element.int8))
        self.ranges: dict[tuple[str, int], tuple[Value, Value]] = {}
        for shaped in self.shaped.values():
            self.group_range(shaped)
        chunk_from, chunk_to = b.arguments[4:]
        self.steps_wanted = b.compare("eq", thread.header("skip_steps"), i64(0), "steps_wanted")
        count = b.ceil_div(thread.steps, thread.chunk, "chunks")
        is_first, is_last = b.compare("eq", chunk_from, i64(0), "is_first"), b.compare("sge", chunk_to, count, "is_last")
        with b.only_if(b.binary("and", self.steps_wanted, is_first), "begin"):
            if self.packs:
                self.ends.weights_in(self.of_turn(), self._turn_wanted(), self._of_states())
                self.ends.biases_in()
            self.draws.of_samples()
            first = b.sub(thread.steps, 1) if self.program.reverse else i64(0)
            self.ends.states_in(first, (i64(0), thread.by_step("counts", first)))
            thread.barrier()
        if self.program.reverse:
            with b.only_if(b.binary("and", thread.is_set("adds", "adds"), is_first), "sums_in"):
                self.ends.sums_in()
        self.claims.reset()
        self.chunks(count, chunk_from, chunk_to)
        with b.only_if(b.binary("and", self.steps_wanted, is_last), "finish"):
            last = i64(0) if self.program.reverse else b.sub(thread.steps, 1)
            self.end_rows(last, (i64(0), thread.by_step("counts", last)), waited=self._ends_waiting())
        if self.program.reverse:
            with b.only_if(b.binary("and", self.gradients_wanted(), is_last), "sums_out"):
                self.ends.sums_out()
        b.ret()

    def _ends_waiting(self) -> bool:
        """Whether the last thing that is done is a step that ends at a barrier."""
        program = self.program
        return program.waits and program.exit is None and not (program.after or program.products or self.sums)

    def _dims(self) -> list[Dim]:
        dims = [b.dim for b in self.program.buffers if b.dim is not None] + [d for w in self.weights for d in w.shape]
        return dims + [p.depth for p in self.matrices] + list(self.program.choices.values())

    def group_range(self, shaped: Shaped) -> tuple[Value, Value]:
        dim = shaped.kernel.dim
        assert dim is not None
        key = str(dim), shaped.width
        if key not in self.ranges:
            self.ranges[key] = self._own(self.thread.groups(dim, shaped.width))
        return self.ranges[key]

    def _own(self, groups: Value, id: Value | None = None) -> Range:
        """Of some groups a thread's share, by default this one's, or all where rows are split."""
        b, columns, (first, last) = self.b, self.thread.columns, self.thread.share(groups, "groups", id)
        return b.select(columns, first, i64(0), "group0"), b.select(columns, last, groups, "group1")

    def chunks(self, count: Value, first: Value, end: Value) -> None:
        b = self.b
        loop = b.loop("chunk", first, b.minimum(end, count))
        number = b.sub(b.sub(count, 1), loop.index, "number") if self.program.reverse else loop.index
        t0 = b.mul(number, self.thread.chunk, "t0")
        t1 = b.minimum(b.add(t0, self.thread.chunk), self.thread.steps, "t1")
        self.of_chunk = self.claims.of_chunk(number)
        with b.only_if(self.steps_wanted, "steps"):
            self.draws.of_steps(t0, t1)
            self.before(t0, t1)
            self.step_loop(t0, t1)
        self.after(t0, t1)
        b.end(loop)

    def before(self, t0: Value, t1: Value) -> None:
        b = self.b
        for stage in self.program.before:
            self.call_chunk(stage, t0, t1, "flat_before")
            self.thread.stage_barrier()
        if self.hoisting:
            hoist = self.thread.is_set("hoist", "hoist")
            with b.only_if(hoist, "hoisted"):
                self.call_chunk(Stage(tuple(self.hoisting)), t0, t1, "flat_before", hoisting=True)
                self.thread.stage_barrier()

    def step_loop(self, t0: Value, t1: Value) -> None:
        b, program, thread = self.b, self.program, self.thread
        loop = b.loop("step", 0, b.sub(t1, t0, "steps"))
        t = b.sub(b.sub(t1, 1), loop.index, "t") if program.reverse else b.add(t0, loop.index, "t")
        before = b.add(t, 1 if program.reverse else -1, "step_before")
        rows, rows_before = thread.by_step("counts", t), thread.by_step("counts", before)
        with b.only_if(b.binary("and", b.compare("ne", rows_before, i64(0)), b.compare("ne", rows, rows_before)), "other_rows"):
            self.end_rows(before, (rows, rows_before), waited=program.waits)
            self.ends.states_in(t, (rows_before, rows))
            thread.stage_barrier()
        for position, stage in enumerate(program.body):
            if position == 0 and program.entry is not None:
                both = b.minimum(rows, rows_before, "both")
                self.call_kernels(stage, t, (i64(0), both), in_loop=True)
                with b.only_if(b.compare("slt", both, rows, "any_new"), "new_rows"):
                    thread.stage_barrier()  # another thread may have added to the same sum
                    self.call_kernels(program.entry, t, (both, rows))
            else:
                self.call_kernels(stage, t, (i64(0), rows), in_loop=True)
            if program.waits:
                thread.stage_barrier()
        b.end(loop)

    def end_rows(self, t: Value, rows: tuple[Value, Value], waited: bool) -> None:
        """What is left to be done for rows whose last step is t, and their last states. `waited`: all threads are done."""
        thread, b = self.thread, self.b
        if self.program.exit is not None:
            with b.only_if(self._exit_wanted(), "exit"):
                self.call_kernels(self.program.exit, b.sub(t, 1), rows)
                thread.stage_barrier()
        elif not waited:
            thread.stage_barrier()
        self.ends.states_out(t, rows)

    def _exit_wanted(self) -> Value:
        return self.any_given(last_of(state) for state in self.program.states)

    def _turn_wanted(self) -> Value:
        """Whether a rotated loop's steps have others after them, or its exit runs."""
        return self.b.binary("or", self.b.compare("sgt", self.thread.steps, i64(1)), self._exit_wanted(), "turn_wanted")

    def _of_states(self) -> dict[str, frozenset[str]]:
        """See `Code.of_states`. None where numbers are multiplied together, which products with zeros are not made of alone."""
        operands = [o for shaped in self.shaped.values() for o in shaped.operands if self.element.together == 1]
        others = {o.pack for o in operands if not o.zeros_first}
        packs = {o.pack for o in operands} - others
        return {pack: frozenset(o.buffer for o in operands if o.pack == pack) for pack in packs}

    def of_turn(self) -> set[str]:
        """The packs that a rotated loop reads between steps and after the last alone."""
        program = self.program
        if program.exit is None:
            return set()
        stages = [*program.before, *filter(None, [program.entry]), *program.body[1:], *program.after]
        others, turning = (self._operands_of(some) for some in (stages, [program.body[0], program.exit]))
        hoisted = [o for kernel in self.hoisting for o in self.shaped[id(kernel)].operands if o.foldable]
        return {o.pack for o in turning} - {o.pack for o in (*others, *hoisted)}

    def _operands_of(self, stages: Iterable[Stage]) -> list[Operand]:
        kernels = (kernel for stage in stages for kernel in stage.kernels if kernel.dim is not None)
        return [operand for kernel in kernels for operand in self.shaped[id(kernel)].operands]

    def call_kernels(self, stage: Stage, t: Value, rows: tuple[Value, Value], in_loop: bool = False) -> None:
        """A stage for some rows of one step. `in_loop`: it stands between barriers, where threads wait for each other at all."""
        first, (row0, count) = stage.kernels[0], self.thread.own(*rows)
        with self.b.only_if(self.b.compare("sgt", count, i64(0)), "any_rows"):
            if in_loop and self.program.waits and len(stage.kernels) == 1 and first.dim is not None:
                self.call_alone(first, t, row0, count, self.claims.of_step(t))
                return
            for kernel in stage.kernels:
                self.call_kernel(kernel, t, row0, count)

    def call_alone(self, kernel: Kernel, t: Value, row0: Value, rows: Value, of: Round, hoisting: bool = False) -> None:
        """A kernel, between two barriers, that none beside it needs: nothing depends on who did which columns. Where columns are
        split, and groups of panels are left when all threads have as many, each thread does some rows of those that are left;
        with the others threads help each other.
        """
        b, thread, shaped = self.b, self.thread, self.shaped[id(kernel)]
        assert kernel.dim is not None
        groups = thread.groups(kernel.dim, shaped.width)
        enough = b.compare("sge", rows, b.mul(thread.count, LEAST_ROWS), "enough_rows")
        divides = b.binary("and", thread.columns, enough, "divides")
        left = b.select(divides, b.binary("srem", groups, thread.count), i64(0), "groups_left")
        whole = b.sub(groups, left, "whole")
        with b.only_if(b.compare("sgt", left, i64(0)), "rest"):
            first, last = thread.share_in_fours(rows)
            self.call_kernel(kernel, t, b.add(row0, first), b.sub(last, first, "rows"), (whole, groups), hoisting)
        self.claims.call(of, partial(self._own, whole), lambda own: self.call_kernel(kernel, t, row0, rows, own, hoisting))

    def call_kernel(
        self,
        kernel: Kernel,
        t: Value,
        row0: Value,
        rows: Value,
        groups: tuple[Value, Value] | None = None,
        hoisting: bool = False,
    ) -> None:
        """By default for this thread's `groups`. `hoisting`: only the products with what is known before the loop."""
        if kernel.dim is None:
            arguments = [i64(0), i64(1)]
        else:
            shaped = self.shaped[id(kernel)]
            arguments = [*(groups or self.group_range(shaped)), *([i64(int(hoisting))] if shaped.inits else [])]
            if hoisting:
                t = self.b.sub(t, shaped.inits[0][1], "t")
        self.b.call(self.names[id(kernel)], [self.thread.block, t, row0, rows, *arguments])

    def call_chunk(self, stage: Stage, t0: Value, t1: Value, flat_word: str, hoisting: bool = False) -> None:
        """A stage for all steps of a chunk: at once where all rows follow each other, else step by step."""
        b, thread = self.b, self.thread
        flat = thread.is_set(flat_word, "flat")
        at_once = b.binary("and", flat, thread.columns, "at_once")
        calls = b.select(at_once, i64(1), b.sub(t1, t0, "steps"), "calls")
        rows_of_chunk = b.sub(thread.by_step("packed", t1), thread.by_step("packed", t0), "rows_of_chunk")
        of = replace(self.of_chunk, shared=b.binary("and", self.of_chunk.shared, at_once, "shared"))
        for kernel in stage.kernels:
            with b.only_if(TRUE if hoisting else self.wanted(kernel), "wanted"):
                loop = b.loop("call", 0, calls)
                t = b.add(t0, loop.index, "t")
                row0, count = thread.own(i64(0), thread.by_step("counts", t))
                rows = b.select(at_once, rows_of_chunk, count, "call_rows")
                if (hoisting or len(stage.kernels) == 1) and kernel.dim is not None:
                    self.call_alone(kernel, t, row0, rows, of, hoisting)
                else:
                    self.call_kernel(kernel, t, row0, rows, hoisting=hoisting)
                b.end(loop)

    def wanted(self, kernel: Kernel) -> Value:
        """False when all that a kernel stores is a caller's array that is not there."""
        names = [buffer for _, buffer, _ in kernel.stores]
        return self.any_given(names) if all(name in self.program.outputs for name in names) else TRUE

    def any_given(self, buffers: Iterable[str]) -> Value:
        """Whether the caller gave any of these arrays."""
        total = i64(0)
        for name in buffers:
            total = self.b.binary("or", total, self.thread.word(self.layout.buffer(name), name), "any")
        return self.b.compare("ne", total, i64(0), "wanted")

    def after(self, t0: Value, t1: Value) -> None:
        if not (self.program.after or self.program.products or self.sums):
            return
        with self.b.only_if(self.steps_wanted, "after"):
            for stage in self.program.after:
                self.thread.stage_barrier()
                self.call_chunk(stage, t0, t1, "flat_after")
        self.thread.barrier()  # a gradient's sum goes through all rows, whoever made them
        with self.b.only_if(self.gradients_wanted(), "gradients"):
            self.add_gradients(t0, t1)

    def add_gradients(self, t0: Value, t1: Value) -> None:
        b, thread = self.b, self.thread
        for product, name, begin_at in zip(self.program.products, self.outer_names, self.begin_at, strict=True):
            rows, columns = self.shapes[product.weight]
            tasks = b.mul(thread.groups(columns, group_of(self.machine)), thread.groups(rows, 1), "tasks")
            sides: list[Value] = []
            for buffer, later in (product.left, product.right):
                sides += [b.at(thread.block, self.layout.buffer(buffer), I64, f"{buffer}.words"), i64(later)]
            gradient, row_bytes, adds = self.ends.gradient(product.weight)
            from_step = t0 if begin_at is None else self._without_zeros(product, sides, t0, begin_at)
            if product.heads > 1:
                self.add_blocks(name, product, [thread.block, from_step, t1, *sides], gradient, row_bytes, adds)
                continue
            sizes = [row_bytes, thread.size(rows), thread.size(columns), adds]
            arguments = [thread.block, from_step, t1, *sides, gradient, *sizes]
            if product.weight in self.summed:  # other terms are added to the same numbers, by whom they belong to
                self._add_outer(name, arguments, thread.share(tasks, "tasks"))
                continue
            share_of = partial(thread.share, tasks, "tasks")
            self.claims.call(self.of_chunk, share_of, partial(self._add_outer, name, arguments), PANELS_TOGETHER)
        for sums_of in self.sums:
            buffer, later = sums_of.value
            words = b.at(thread.block, self.layout.buffer(buffer), I64, f"{buffer}.words")
            sums, share = thread.pack(sums_of.name), self.ends.share_of(sums_of)
            b.call(self.sum_names[sums_of.name], [thread.block, t0, t1, words, i64(later), sums, *share])

    def _place_to_begin(self, product: GradientProduct) -> Value | None:
        """Room for the step from which on products are made, where those of the first one may be with zeros."""
        buffer, later = product.right
        return self.b.value(PTR, "alloca i64", "begin_at") if buffer in self.zeros and later == 0 else None

    def _without_zeros(self, product: GradientProduct, sides: list[Value], t0: Value, begin_at: Value) -> Value:
        """The step from which on products are made: the second, where those of the first are with zeros and would give zero."""
        b, thread = self.b, self.thread
        b.store(t0, begin_at)
        is_first = b.compare("eq", t0, i64(0), "is_first")
        no_first = thread.is_set("no_first", "no_first")
        with b.only_if(b.binary("and", is_first, no_first), "of_zeros"):
            size = thread.size(self.shapes[product.weight][0])
            b.call(self.gradients.times_zero(), [thread.block, *sides[:2], size, begin_at])
        return b.load(I64, begin_at, "from_step")

    def _add_outer(self, name: str, arguments: list[Value], tasks: Range) -> None:
        """Outer products of whole matrices, for some tasks."""
        self.b.call(name, [*arguments, *tasks, i64(0), i64(0)])

    def add_blocks(
        self, name: str, product: GradientProduct, sides: list[Value], gradient: Value, row_bytes: Value, adds: Value
    ) -> None:
        """Those of a block-diagonal weight, block after block."""
        b, thread = self.b, self.thread
        rows, columns = self.shapes[product.weight]
        size, depth = b.binary("sdiv", thread.size(rows), i64(product.heads), "block"), thread.size(columns)
        head = b.loop("head", 0, i64(product.heads))
        left0, right0 = b.mul(head.index, size, "left0"), b.mul(head.index, depth, "right0")
        share = thread.share(block_tasks(b, self.machine, self.element.lanes, left0, size, right0, depth), "tasks")
        corner = b.at(gradient, b.mul(left0, row_bytes), "i8", "gradient")
        b.call(name, [*sides, corner, row_bytes, size, depth, adds, *share, left0, right0])
        b.end(head)

    def gradients_wanted(self) -> Value:
        return self.thread.is_set("gradients", "gradients_wanted")
