"""Emits the code of a whole program: its kernels, and the loop over chunks and steps that calls them.

`run(ptr block, i64 id, i64 count, ptr barrier, i64 chunk_from, i64 chunk_to)` is what each of `count` threads does for some
chunks of one layer in one direction, of all if `chunk_to` is large. Either rows are split (each thread takes its samples through
all steps, without a barrier) or columns (each thread owns some panels, hence some of the weights, and every stage ends at a
barrier).

`stack(ptr words)` is the call that Python makes: once, or for a long call again and again, so that it can be interrupted. Its
words are: the address of a function that runs a team, threads, the first block and the end of the blocks, the first chunk and the
end of the chunks, the barrier's state, entries of a table, the table, bases, then the address of each block. Each entry of the
table (word, base, offset) says which word of the whole to set to the address of a base plus an offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from anyrnn.backends.llvm import threads
from anyrnn.backends.llvm.block import Layout
from anyrnn.backends.llvm.builder import I64, PTR, Module, Value, const, i64
from anyrnn.backends.llvm.columns import ColumnKernel
from anyrnn.backends.llvm.copies import Copies
from anyrnn.backends.llvm.denormals import flush_denormals, restore_mode
from anyrnn.backends.llvm.emitter import SUM_ROWS, Element
from anyrnn.backends.llvm.gradients import GROUP, Gradients, Sums, group_sums
from anyrnn.backends.llvm.scalars import ScalarKernel
from anyrnn.backends.llvm.shapes import BiasPack, Init, MatrixPack, Shaped, Shaper
from anyrnn.backends.llvm.target import Machine
from anyrnn.ir.dims import Dim
from anyrnn.passes.parameters import Weight
from anyrnn.passes.plan import Kernel, Program, Stage

STACK = ("team", "threads", "block_from", "block_to", "chunk_from", "chunk_to", "barrier", "entries", "table", "bases")
STACK_WORDS = len(STACK)
CHECKED, TRUSTED = 1, 2
"""What `kept` says of packed weights that are left from an earlier call: pack anew if they look changed, or never."""


@dataclass(frozen=True)
class Code:
    """A program's text, and what the caller must know to fill its argument block."""

    text: str
    layout: Layout
    dims: tuple[Dim, ...]
    """the sizes of the layout"""
    element: Element
    matrices: tuple[MatrixPack, ...]
    recurrent: frozenset[str]
    """the packs of matrices that every step reads"""
    biases: tuple[BiasPack, ...]
    inits: tuple[Init, ...]
    sums: tuple[Sums, ...]


def first_of(state: str) -> str:
    """The name of the caller's array with a state's first value."""
    return f"{state}.first"


def last_of(state: str) -> str:
    return f"{state}.last"


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
    ) -> None:
        self.program, self.weights, self.state_values, self.element = program, weights, state_values, element
        self.machine = machine
        self.summed = {w.name for w in weights if w.source in summed}
        self.module = Module(fused=machine.fused)
        shaper = Shaper(program, machine)
        self.shaped: dict[int, Shaped] = {}
        for stages, in_loop in ((program.before, False), (self.loop_stages(), True), (program.after, False)):
            for stage in stages:
                for kernel in stage.kernels:
                    if kernel.dim is not None:
                        self.shaped[id(kernel)] = shaper.shape(kernel, in_loop)
        self.hoisted = self._hoisted(shaper)
        self.shapes = {w.name: w.shape for w in weights}
        self.sums = group_sums(program, self.shapes)
        self.matrices, self.biases, self.inits = (
            tuple(shaper.packs.values()),
            tuple(shaper.biases.values()),
            tuple(shaper.inits.values()),
        )
        self.layout = self._layout()
        self.copies = Copies(self.module, element)
        self.gradients = Gradients(self.module, self.layout, program, element, machine)

    def loop_stages(self) -> list[Stage]:
        extra = [s for s in (self.program.entry, self.program.exit) if s is not None]
        return [*extra, *self.program.body]

    def _hoisted(self, shaper: Shaper) -> list[Kernel]:
        """The kernels that make input products for a chunk; kernels that share their init buffers need one."""
        kernels: dict[tuple[str, ...], Kernel] = {}
        for stage in self.loop_stages():
            for kernel in stage.kernels:
                made = shaper.hoisted(self.shaped[id(kernel)]) if kernel.dim is not None else None
                if made is not None:
                    kernels.setdefault(tuple(b for _, b, _ in made.stores), made)
        for kernel in kernels.values():
            self.shaped[id(kernel)] = shaper.shape(kernel, False)
        return list(kernels.values())

    def _layout(self) -> Layout:
        kernels = [*self.shaped_kernels(), *(k for s in self.all_stages() for k in s.kernels)]
        dims = [*self._dims(), *(n.attributes[0] for k in kernels for n in k.nodes if n.op == "size")]
        self.dims = tuple({str(d): d for d in sorted(dims, key=str)}.values())
        buffers = [b.name for b in self.program.buffers] + [i.buffer for i in self.inits]
        buffers += [name(s) for s in self.program.states for name in (first_of, last_of)]
        packs = [p.name for p in self.matrices] + [p.name for p in self.biases] + [s.name for s in self.sums]
        return Layout(tuple(str(d) for d in self.dims), tuple(buffers), tuple(packs), tuple(w.name for w in self.weights))

    def all_stages(self) -> list[Stage]:
        return [*self.program.before, *self.loop_stages(), *self.program.after]

    def shaped_kernels(self) -> list[Kernel]:
        return [s.kernel for s in self.shaped.values()]

    # emission

    def code(self) -> Code:
        names: dict[int, str] = {}
        for number, kernel in enumerate([k for s in self.all_stages() for k in s.kernels] + self.hoisted):
            unique = kernel if kernel.name not in names.values() else _renamed(kernel, f"{kernel.name}_{number}")
            names[id(kernel)] = unique.name
            if kernel.dim is None:
                ScalarKernel(self.module, self.layout, self.program, self.element, unique)
            else:
                shaped = self.shaped[id(kernel)]
                ColumnKernel(self.module, self.layout, self.program, self.element, _reshaped(shaped, unique))
        self.names = names
        self.outer_names = [self.gradients.outer(p.right[0]) for p in self.program.products]
        self.sum_names = {s.name: self.gradients.column_sums(s) for s in self.sums}
        self.run()
        self.stack()
        self.module.verbatim.append(threads.BARRIER)
        in_steps = [self.shaped[id(k)] for s in self.loop_stages() for k in s.kernels if k.dim is not None]
        return Code(
            text=str(self.module),
            layout=self.layout,
            dims=self.dims,
            element=self.element,
            matrices=self.matrices,
            recurrent=frozenset(o.pack for shaped in in_steps for o in shaped.operands if not o.foldable),
            biases=self.biases,
            inits=self.inits,
            sums=self.sums,
        )

    def word(self, index: int, name: str, type: str = I64) -> Value:
        return self.b.load(type, self.b.at(self.block, index, I64, f"{name}.word"), name)

    def size(self, dim: Dim) -> Value:
        key = str(dim)
        if key not in self.size_values:
            self.size_values[key] = self.word(self.layout.size(key), "size")
        return self.size_values[key]

    def groups(self, dim: Dim, width: int) -> Value:
        span = width * self.element.lanes
        return self.b.binary("sdiv", self.b.add(self.size(dim), span - 1), i64(span), "groups")

    def share(self, count: Value, name: str) -> tuple[Value, Value]:
        """This thread's part of `count` things."""
        b = self.b
        first = b.binary("sdiv", b.mul(count, self.id), self.count, f"{name}.from")
        return first, b.binary("sdiv", b.mul(count, b.add(self.id, 1)), self.count, f"{name}.to")

    def share_of_rows(self) -> tuple[Value, Value]:
        """This thread's rows. Rows that are added up before they are summed stay together."""
        if not any(buffer.role == "sum" for buffer in self.program.buffers):
            return self.share(self.rows, "rows")
        b = self.b
        sums = b.binary("sdiv", b.add(self.rows, SUM_ROWS - 1), i64(SUM_ROWS), "sums")
        first, last = (b.minimum(b.mul(part, SUM_ROWS), self.rows, "part") for part in self.share(sums, "sums"))
        return first, last

    def barrier(self) -> None:
        self.b.call("barrier", [self.barrier_state, self.count])

    def stage_barrier(self) -> None:
        """Only where columns are split: with one participant the barrier returns at once."""
        self.b.call("barrier", [self.barrier_state, self.waiting])

    def run(self) -> None:
        parameters = [("ptr", "block"), ("i64", "id"), ("i64", "count"), ("ptr", "barrier")]
        self.b = self.module.function("run", [*parameters, ("i64", "chunk_from"), ("i64", "chunk_to")])
        b = self.b
        self.block, self.id, self.count, self.barrier_state, chunk_from, chunk_to = b.arguments
        self.size_values: dict[str, Value] = {}
        for dim in self.dims:
            self.size(dim)
        self.steps, self.rows = self.word(self.layout.header("steps"), "steps"), self.word(self.layout.header("rows"), "rows")
        self.chunk = self.word(self.layout.header("chunk"), "chunk")
        columns = b.compare("ne", self.word(self.layout.header("columns"), "columns"), i64(0), "columns")
        self.waiting = b.select(columns, self.count, i64(1), "waiting")
        part0, part1 = self.part = self.share_of_rows()
        self.row0 = b.select(columns, i64(0), part0, "row0")
        self.own_rows = b.select(columns, self.rows, b.sub(part1, part0), "own_rows")
        self.columns = columns
        self.ranges: dict[tuple[str, int], tuple[Value, Value]] = {}
        for shaped in self.shaped.values():
            self.group_range(shaped)
        self.steps_wanted = b.compare("eq", self.word(self.layout.header("skip_steps"), "skip_steps"), i64(0), "steps_wanted")
        count = b.binary("sdiv", b.add(self.steps, b.sub(self.chunk, 1)), self.chunk, "chunks")
        is_first, is_last = b.compare("eq", chunk_from, i64(0), "is_first"), b.compare("sge", chunk_to, count, "is_last")
        with self.only_if(b.binary("and", self.steps_wanted, is_first), "begin"):
            self.begin_weights()
        self.chunks(count, chunk_from, chunk_to)
        with self.only_if(b.binary("and", self.steps_wanted, is_last), "finish"):
            if self.program.exit is not None:
                with self.only_if(self.any_given(last_of(state) for state in self.program.states), "exit"):
                    self.call_stage(self.program.exit, i64(-1), None)
            self.states_out()
        if self.program.reverse:
            with self.only_if(b.binary("and", self.gradients_wanted(), is_last), "gradients_out"):
                self.gradients_out()
        b.ret()

    @contextmanager
    def only_if(self, test: Value, name: str) -> Iterator[None]:
        """What is emitted inside runs when the test holds."""
        then, after = self.b.label(name), self.b.label(f"after_{name}")
        self.b.branch_if(test, then, after)
        self.b.place(then)
        yield
        self.b.branch(after)
        self.b.place(after)

    def _dims(self) -> list[Dim]:
        dims = [b.dim for b in self.program.buffers if b.dim is not None] + [d for w in self.weights for d in w.shape]
        return dims + [p.depth for p in self.matrices]

    def group_range(self, shaped: Shaped) -> tuple[Value, Value]:
        dim, b = shaped.kernel.dim, self.b
        assert dim is not None
        key = (str(dim), shaped.width)
        if key not in self.ranges:
            groups = self.groups(dim, shaped.width)
            first, last = self.share(groups, "groups")
            self.ranges[key] = b.select(self.columns, first, i64(0), "group0"), b.select(self.columns, last, groups, "group1")
        return self.ranges[key]

    def begin_weights(self) -> None:
        """Pack the weights, but not those that are left from an earlier call. Ends with a barrier."""
        b = self.b
        kept = self.word(self.layout.header("kept"), "kept")
        with self.only_if(b.compare("ne", kept, i64(TRUSTED), "untrusted"), "pack"):
            self.pack_matrices(b.compare("eq", kept, i64(CHECKED), "checked"))
        self.pack_biases()
        self.states_in()
        self.barrier()

    def pack_matrices(self, checked: Value) -> None:
        """Each thread packs its part of the groups. Behind a pack stands, for each weight and group, a number that tells of the
        weights that are packed there.
        """
        b, e = self.b, self.element
        for pack in self.matrices:
            groups = self.groups(pack.size, pack.width)
            first, last = self.share(groups, "pack")
            address = self.word(self.layout.pack(pack.name), pack.name, PTR)
            vectors = len(pack.weights) * pack.width
            depth = self.size(pack.depth)
            prints = b.at(address, b.mul(b.mul(groups, depth), vectors * e.panel_row), "i8", "prints")
            for k, (weight, transposed) in enumerate(pack.weights):
                source, row_bytes = self.weight(weight)
                target = b.at(address, k * pack.width * e.panel_row, "i8", "pack_at")
                of_weight = b.at(prints, b.mul(groups, k), I64, "prints")
                arguments = [
                    target,
                    source,
                    row_bytes,
                    self.size(pack.size),
                    depth,
                    i64(vectors * e.panel_row),
                    i64(pack.width),
                    first,
                    last,
                    b.select(checked, of_weight, Value("null", PTR), "prints"),
                ]
                b.call(self.copies.pack_matrix(transposed), arguments)

    def pack_biases(self) -> None:
        """They are little work, for the first thread."""
        b = self.b
        if not self.biases:
            return
        with self.only_if(b.compare("eq", self.id, i64(0), "first_thread"), "pack_biases"):
            for bias in self.biases:
                address = self.word(self.layout.pack(bias.name), bias.name, PTR)
                panels = b.mul(self.groups(bias.size, 4), 4, "panels")
                sources: list[tuple[Value, Value]] = [(self.weight(w)[0], self.size(bias.size)) for w in bias.weights]
                for k, (source, size) in enumerate(sources or [(address, i64(0))]):
                    b.call(self.copies.add_bias(), [address, source, size, panels, i64(int(k == 0))])

    def weight(self, name: str) -> tuple[Value, Value]:
        index = self.layout.weight(name)
        return self.word(index, name, PTR), self.word(index + 1, f"{name}.row_bytes")

    def state_arguments(self, state: str, caller: str, slot: Value) -> tuple[Value, Value, Value, Value]:
        """Our slot's address and panel distance, the caller's address and row distance."""
        b, index = self.b, self.layout.buffer(state)
        masked = b.binary("and", slot, self.word(index + 1, f"{state}.mask"), "slot")
        ours = b.at(self.word(index, state, PTR), b.mul(masked, self.word(index + 2, f"{state}.slot_bytes")), "i8", state)
        theirs = self.layout.buffer(caller)
        return (
            ours,
            self.word(index + 4, f"{state}.panel_bytes"),
            self.word(theirs, caller, PTR),
            self.word(theirs + 3, f"{caller}.row_bytes"),
        )

    def states_in(self) -> None:
        for state in self.program.states:
            slot = self.steps if self.program.reverse else i64(0)
            ours, panel_bytes, theirs, row_bytes = self.state_arguments(state, first_of(state), slot)
            value = const(self.element.type, self.state_values.get(state, 0.0))
            dim = self.program.buffer(state).dim
            if dim is None:
                self.b.call(self.copies.scalars(outward=False), [ours, theirs, row_bytes, *self.part, value])
            else:
                self.b.call(self.copies.state_in(), [ours, panel_bytes, theirs, row_bytes, self.size(dim), *self.part, value])

    def states_out(self) -> None:
        self.stage_barrier()
        for state in self.program.states:
            slot = i64(0) if self.program.reverse else self.steps
            ours, panel_bytes, theirs, row_bytes = self.state_arguments(state, last_of(state), slot)
            dim = self.program.buffer(state).dim
            if dim is None:
                self.b.call(
                    self.copies.scalars(outward=True), [ours, theirs, row_bytes, *self.part, const(self.element.type, 0.0)]
                )
            else:
                self.b.call(self.copies.state_out(), [ours, panel_bytes, theirs, row_bytes, self.size(dim), *self.part])

    def chunks(self, count: Value, first: Value, end: Value) -> None:
        b = self.b
        loop = b.loop("chunk", first, b.minimum(end, count))
        number = b.sub(b.sub(count, 1), loop.index, "number") if self.program.reverse else loop.index
        t0 = b.mul(number, self.chunk, "t0")
        t1 = b.minimum(b.add(t0, self.chunk), self.steps, "t1")
        with self.only_if(self.steps_wanted, "steps"):
            self.before(t0, t1)
            self.step_loop(t0, t1)
        self.after(t0, t1)
        b.end(loop)

    def before(self, t0: Value, t1: Value) -> None:
        b = self.b
        for stage in self.program.before:
            self.call_chunk(stage, t0, t1, "flat_before")
            self.stage_barrier()
        if self.hoisted:
            hoist = b.compare("ne", self.word(self.layout.header("hoist"), "hoist"), i64(0), "hoist")
            with self.only_if(hoist, "hoisted"):
                self.call_chunk(Stage(tuple(self.hoisted)), t0, t1, "flat_before")
                self.stage_barrier()

    def step_loop(self, t0: Value, t1: Value) -> None:
        b, program = self.b, self.program
        loop = b.loop("step", 0, b.sub(t1, t0, "steps"))
        t = b.sub(b.sub(t1, 1), loop.index, "t") if program.reverse else b.add(t0, loop.index, "t")
        for position, stage in enumerate(program.body):
            self.call_stage(stage, t, program.entry if position == 0 else None)
            if program.waits:
                self.stage_barrier()
        b.end(loop)

    def call_stage(self, stage: Stage, t: Value, entry: Stage | None) -> None:
        """A stage for one step; in the first step of a rotated loop, `entry` instead."""
        b = self.b
        if entry is None:
            self.call_kernels(stage, t)
            return
        newest = b.compare("eq", t, b.sub(self.steps, 1), "newest")
        first, other, done = b.label("entry"), b.label("turn"), b.label("turned")
        b.branch_if(newest, first, other)
        b.place(first)
        self.call_kernels(entry, t)
        b.branch(done)
        b.place(other)
        self.call_kernels(stage, t)
        b.branch(done)
        b.place(done)

    def call_kernels(self, stage: Stage, t: Value) -> None:
        for kernel in stage.kernels:
            self.call_kernel(kernel, t, self.row0, self.own_rows)

    def call_kernel(self, kernel: Kernel, t: Value, row0: Value, rows: Value) -> None:
        group0, group1 = (i64(0), i64(1)) if kernel.dim is None else self.group_range(self.shaped[id(kernel)])
        self.b.call(self.names[id(kernel)], [self.block, t, row0, rows, group0, group1])

    def call_chunk(self, stage: Stage, t0: Value, t1: Value, flat_word: str) -> None:
        """A stage for all steps of a chunk: at once where all rows follow each other, else step by step."""
        b = self.b
        flat = b.compare("ne", self.word(self.layout.header(flat_word), flat_word), i64(0), "flat")
        at_once = b.binary("and", flat, self.columns, "at_once")
        steps = b.sub(t1, t0, "steps")
        calls = b.select(at_once, i64(1), steps, "calls")
        rows = b.select(at_once, b.mul(steps, self.rows), self.own_rows, "call_rows")
        for kernel in stage.kernels:
            with self.only_if(self.wanted(kernel), "wanted"):
                loop = b.loop("call", 0, calls)
                self.call_kernel(kernel, b.add(t0, loop.index, "t"), self.row0, rows)
                b.end(loop)

    def wanted(self, kernel: Kernel) -> Value:
        """False when all that a kernel stores is a caller's array that is not there."""
        outputs = {buffer.name for buffer in self.program.buffers if buffer.role == "output"}
        names = [buffer for _, buffer, _ in kernel.stores]
        return self.any_given(names) if all(name in outputs for name in names) else Value("true", "i1")

    def any_given(self, buffers: Iterable[str]) -> Value:
        """Whether the caller gave any of these arrays."""
        total = i64(0)
        for name in buffers:
            total = self.b.binary("or", total, self.word(self.layout.buffer(name), name), "any")
        return self.b.compare("ne", total, i64(0), "wanted")

    def after(self, t0: Value, t1: Value) -> None:
        if not (self.program.after or self.program.products or self.sums):
            return
        with self.only_if(self.steps_wanted, "after"):
            for stage in self.program.after:
                self.stage_barrier()
                self.call_chunk(stage, t0, t1, "flat_after")
        self.barrier()  # a gradient's sum goes through all rows, whoever made them
        with self.only_if(self.gradients_wanted(), "gradients"):
            self.add_gradients(t0, t1)

    def add_gradients(self, t0: Value, t1: Value) -> None:
        b = self.b
        for product, name in zip(self.program.products, self.outer_names, strict=True):
            rows, columns = self.shapes[product.weight]
            tasks = b.mul(self.groups(columns, GROUP), self.groups(rows, 1), "tasks")
            sides: list[Value] = []
            for buffer, later in (product.left, product.right):
                sides += [b.at(self.block, self.layout.buffer(buffer), I64, f"{buffer}.words"), i64(later)]
            gradient, row_bytes, adds = self.gradient(product.weight)
            sizes = [row_bytes, self.size(rows), self.size(columns), i64(int(adds)), *self.share(tasks, "tasks")]
            b.call(name, [self.block, t0, t1, *sides, gradient, *sizes])
        for sums_of in self.sums:
            first, last = self.sum_share(sums_of)
            sums = self.word(self.layout.pack(sums_of.name), sums_of.name, PTR)
            buffer, later = sums_of.value
            words = b.at(self.block, self.layout.buffer(buffer), I64, f"{buffer}.words")
            b.call(self.sum_names[sums_of.name], [self.block, t0, t1, words, i64(later), sums, first, last])

    def gradients_wanted(self) -> Value:
        return self.b.compare("ne", self.word(self.layout.header("gradients"), "gradients"), i64(0), "gradients_wanted")

    def sum_share(self, sums: Sums) -> tuple[Value, Value]:
        return self.share(self.groups(sums.size, 1) if sums.size is not None else i64(1), "panels")

    def gradients_out(self) -> None:
        b, e = self.b, self.element
        for sums_of in self.sums:
            first, last = self.sum_share(sums_of)
            if sums_of.size is not None:
                size = self.size(sums_of.size)
                first, last = b.minimum(b.mul(first, e.lanes), size), b.minimum(b.mul(last, e.lanes), size)
            for weight in sums_of.weights:
                gradient, _, adds = self.gradient(weight)
                b.call(
                    self.copies.sum_out(adds),
                    [self.word(self.layout.pack(sums_of.name), sums_of.name, PTR), gradient, first, last],
                )

    def gradient(self, weight: str) -> tuple[Value, Value, bool]:
        """Address and row distance of a weight's gradient, and whether terms are added to what is there."""
        adds = weight in self.summed
        if adds:
            self.barrier()  # another thread may have made the term before
        index = self.layout.weight(weight)
        return self.word(index + 2, "gradient", PTR), self.word(index + 3, "gradient.row_bytes"), adds

    def stack_word(self, name: str, type: str = I64) -> Value:
        return self.word(STACK.index(name), name, type)

    def stack(self) -> None:
        b = self.b = self.module.function("work", [("ptr", "words"), ("i64", "id"), ("i64", "count")])
        self.block = words = b.arguments[0]
        mode = flush_denormals(b, self.machine)
        barrier = self.stack_word("barrier", PTR)
        chunks = [self.stack_word("chunk_from"), self.stack_word("chunk_to")]
        loop = b.loop("block", self.stack_word("block_from"), self.stack_word("block_to"))
        block = b.load(PTR, b.at(words, b.add(loop.index, STACK_WORDS), I64, "block.word"), "block")
        b.call("run", [block, b.arguments[1], b.arguments[2], barrier, *chunks])
        b.call("barrier", [barrier, b.arguments[2]])
        b.end(loop)
        restore_mode(b, self.machine, mode)
        b.ret()
        b = self.b = self.module.function("stack", [("ptr", "words")], internal=False)
        self.block = words = b.arguments[0]
        entries, table, bases = self.stack_word("entries"), self.stack_word("table", PTR), self.stack_word("bases", PTR)
        entry = b.loop("entry", 0, entries)
        here = b.at(table, b.mul(entry.index, 3), I64, "here")
        word, base, offset = (b.load(I64, b.at(here, k, I64), n) for k, n in enumerate(("word", "base", "offset")))
        address = b.add(b.load(I64, b.at(bases, base, I64), "base"), offset, "address")
        b.store(address, b.at(words, word, I64))
        b.end(entry)
        count = self.stack_word("threads")
        alone, together = b.label("alone"), b.label("together")
        b.branch_if(b.compare("sle", count, i64(1), "single"), alone, together)
        b.place(alone)
        b.call("work", [words, i64(0), i64(1)])
        b.ret()
        b.place(together)
        team = self.stack_word("team", PTR)
        b.line(f"call void {team}(ptr @work, {words.typed}, {count.typed})")
        b.ret()


def _renamed(kernel: Kernel, name: str) -> Kernel:
    return Kernel(name, kernel.dim, kernel.nodes, kernel.stores)


def _reshaped(shaped: Shaped, kernel: Kernel) -> Shaped:
    return Shaped(kernel, shaped.accumulators, shaped.operands, shaped.width, shaped.heights)
