"""Cuts the step of a loop into stages, and what the loop need not wait for out of it.

When a backward step begins with pointwise work and ends in products that make nothing but the cotangents of states, as nearly
every one does, the loop is rotated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import Builder, Node
from anyrnn.passes.late import make_late
from anyrnn.passes.levels import AFTER, BEFORE, LOOP, Levels, carried
from anyrnn.passes.plan import MOVES, Buffer, GradientProduct, GradientSum, Kernel, Program, Stage, Store
from anyrnn.passes.rotate import rotate
from anyrnn.passes.step import Step

AGAIN_OPS = 3
"""Cheap ops that a stage does again rather than read what an earlier one has made with them."""


class Stager(Levels):
    """The working state of `stage`: what stands in memory, and the kernels; made for one step, used once."""

    def __init__(self, step: Step) -> None:
        super().__init__(step)
        self.write_later = 0 if step.reverse else 1
        self.stored: dict[int, tuple[str, int]] = {}
        self.buffers: dict[str, Buffer] = {}
        self.targets: dict[int, list[tuple[str, int]]] = {}
        self.totals: dict[int, tuple[str, int]] = {}
        self._from_memory: list[int] = []

    # what stands in memory

    def name_of(self, i: int, ending: str = "") -> str:
        """A name that no buffer has yet."""
        name = (self.nodes[i].name or f"v{i}") + ending
        while name in self.buffers:
            name += f"_{i}"
        return name

    def keep(self, i: int, role: str) -> None:
        """See to it that a value stands in memory: for the rest of its step (`cross`), or for its whole chunk (`chunk`)."""
        if i in self.stored:
            buffer = self.buffers[self.stored[i][0]]
            if role == "cross" or buffer.role in ("chunk", "saved"):
                return
            if buffer.role == "cross":
                self.buffers[buffer.name] = replace(buffer, role="chunk")
                return
        name = self.name_of(i)
        self.stored[i] = (name, 0)
        self.buffers[name] = Buffer(name, role, self.dim(i))
        self.targets.setdefault(i, []).append((name, 0))

    def dim(self, i: int) -> Dim | None:
        return self.nodes[i].shape[0] if self.nodes[i].shape else None

    def recomputed(self, i: int) -> bool:
        """Cheap arithmetic straight from memory, and truth values, are never stored for a later stage. Neither is what a few
        cheap ops make of one value and of what stands in memory for long: the value is stored, once for all that is made of it.
        """
        return self.ops_from_memory(i) <= AGAIN_OPS

    def ops_from_memory(self, i: int) -> int:
        """How many cheap ops make a value of what stands in memory or can be stored in its place; many where none do."""
        for each in range(len(self._from_memory), i + 1):
            self._from_memory.append(self._count_ops(each))
        return self._from_memory[i]

    def _count_ops(self, i: int) -> int:
        node = self.nodes[i]
        if node.row.boolean or node.op == "fill":
            return 0
        if node.row.kind != "elementwise" or node.row.costly or node.shape == ():
            return AGAIN_OPS + 1
        made = {s for s in node.inputs if not self.is_leaf(s) and self.nodes[s].shape != ()}  # numbers of a sample stand there
        if not made:
            return 1
        if len(made) > 1 or any(self._is_state(s) for s in node.inputs):
            return AGAIN_OPS + 1
        (only,) = made
        below = self.ops_from_memory(only)
        return 1 + (below if below <= AGAIN_OPS else 0)

    def _is_state(self, i: int) -> bool:
        node = self.nodes[i]
        return node.op == "load" and self.buffers[node.attributes[0]].role == "state"

    def is_leaf(self, i: int) -> bool:
        return self.nodes[i].op == "load" or not self.nodes[i].per_sample

    def still_there(self, i: int, place: tuple[str, int]) -> bool:
        """Whether a leaf can be read at a place. A state is kept for two steps only, and the last stage of a backward step may
        be done in the step after it (see `rotate`).
        """
        node, (region, level) = self.nodes[i], place
        if node.op != "load" or self.buffers[node.attributes[0]].role != "state":
            return True
        return region == LOOP and (level < max(1, self.last_level) or not self.step.reverse)

    def in_loop(self, i: int) -> bool:
        return self.region.get(i) == LOOP

    def place(self, i: int) -> tuple[str, int]:
        return self.region[i], self.level[i]

    def collect(self) -> None:
        """Decide what every place must store: outputs, states, and what other places read."""
        for name, i in self.step.states:
            self.targets.setdefault(i, []).append((name, self.write_later))
            self.stored[i] = (name, self.write_later)
        for name, role, i in self.step.outputs:
            self.buffers[name] = Buffer(name, role, self.dim(i))
            self.targets.setdefault(i, []).append((name, 0))
            if role == "saved":
                self.stored[i] = (name, 0)
        for _, left, right, _ in self.step.products:
            self._keep_for_gradients(left)
            self._keep_for_gradients(right, ("saved", "stream"))
        for _, i in self.step.sums:
            self._add_up(i)
        make_late(self)
        for i, place, _ in self.reads():
            if not self.is_leaf(i) or not self.still_there(i, place):
                self.keep(i, "cross" if self.region[i] == place[0] == LOOP else "chunk")

    def reads(self) -> list[tuple[int, tuple[str, int], bool]]:
        """What is read from memory, where, and whether by the kernel of columns or the scalar one beside it: leaves, and what
        another kernel has made.
        """
        done: set[tuple[int, tuple[str, int], bool]] = set()
        reached = set(self.targets)
        pending = [i for i in self.targets if not self.is_leaf(i)]
        found: list[tuple[int, tuple[str, int], bool]] = []
        while pending:
            i = pending.pop()
            read = self._read_by(i, self.place(i), self.nodes[i].shape != (), done)
            found += read
            for s, _, _ in read:
                if s not in reached and not self.is_leaf(s):
                    reached.add(s)
                    pending.append(s)
        return found

    def _read_by(
        self, i: int, place: tuple[str, int], columns: bool, done: set[tuple[int, tuple[str, int], bool]]
    ) -> list[tuple[int, tuple[str, int], bool]]:
        """What making node i in a kernel reads from memory."""
        found: list[tuple[int, tuple[str, int], bool]] = []
        walks: list[Iterator[tuple[Node, int]]] = []
        """Of the inputs of what is being made, one within the other."""

        def enter(made: int) -> None:
            if (made, place, columns) not in done:
                done.add((made, place, columns))
                node = self.nodes[made]
                walks.append(iter([(node, s) for s in node.inputs]))

        enter(i)
        while walks:
            node, s = next(walks[-1], (None, 0))
            if node is None:
                walks.pop()
            elif self.is_leaf(s):
                found += [(s, place, columns)] if self.nodes[s].op == "load" else []
            elif self.loaded(s, place, columns, node):
                found.append((s, place, columns))
            else:
                enter(s)
        return found

    def _keep_for_gradients(self, i: int, in_place: tuple[str, ...] = ("saved",)) -> None:
        """Gradients are summed after the steps of a chunk: only values in buffers of some roles still stand there."""
        node = self.nodes[i]
        if node.op != "load" or self.buffers[node.attributes[0]].role not in in_place:
            self.keep(i, "chunk")

    def _add_up(self, i: int) -> None:
        """See to it that a value can be summed: after the steps of a chunk if it stands there anyway, else steps add it up for
        each few samples. Two kinds always stand in a chunk: what is made outside the steps, and numbers of a sample, which every
        thread that needs them makes.
        """
        node = self.nodes[i]
        stands_in = self.stored[i][0] if i in self.stored else node.attributes[0] if node.op == "load" else None
        in_chunk = stands_in is not None and self.buffers[stands_in].role in ("chunk", "saved")
        if in_chunk or self.dim(i) is None or self.region.get(i) != LOOP:
            self._keep_for_gradients(i)
        elif i not in self.totals:
            name = self.name_of(i, "_sum")
            self.totals[i] = (name, 0)
            self.buffers[name] = Buffer(name, "sum", self.dim(i))
            self.targets.setdefault(i, []).append((name, 0))

    def loaded(self, s: int, place: tuple[str, int], columns: bool, reader: Node) -> bool:
        """Whether the kernel that works at a place on columns (or on scalars) reads node s from memory. A test is made again."""
        if self.nodes[s].row.boolean:
            return False
        if reader.op in MOVES:
            return self.is_elsewhere(s) and not self.is_made_with_reader(s)
        if reader.op == "affine" or (self.nodes[s].shape == () and columns):
            return True
        return self.place(s) != place and not self.recomputed(s)

    # kernels

    def kernels(self, region: str, level: int) -> Stage:
        here = [i for i in self.targets if not self.is_leaf(i) and self.place(i) == (region, level)]
        if level == 0 and region == self.region_of_leaves:
            here += [i for i in self.targets if self.is_leaf(i)]
        by_dim: dict[Dim | None, list[int]] = {}
        for i in sorted(here):
            by_dim.setdefault(self.dim(i), []).append(i)
        order = sorted(by_dim, key=lambda d: (d is not None, str(d)))
        return Stage(tuple(self.kernel(f"{region}{level}", d, by_dim[d], (region, level)) for d in order))

    def kernel(self, name: str, dim: Dim | None, targets: Sequence[int], place: tuple[str, int]) -> Kernel:
        builder = Builder()
        done: dict[int, int] = {}
        columns = dim is not None

        def load(i: int) -> int:
            node = self.nodes[i]
            return builder.leaf_load(*self.stored[i], node)

        def ready(i: int, reader: Node | None) -> int | None:
            elsewhere = not self.still_there(i, place) if self.is_leaf(i) else reader and self.loaded(i, place, columns, reader)
            return load(i) if elsewhere else done.get(i)

        def make(i: int) -> int:
            """With all that it is made of: thousands of ops in a row, perhaps, more than Python has calls in each other."""
            unmade: list[tuple[int, list[int]]] = [(i, [])]
            while unmade:
                at, sources = unmade[-1]
                node = self.nodes[at]
                if len(sources) < len(node.inputs):
                    source = node.inputs[len(sources)]
                    found = ready(source, node)
                    if found is None:
                        unmade.append((source, []))
                    else:
                        sources.append(found)
                    continue
                unmade.pop()
                done[at] = builder.add(replace(node, inputs=tuple(sources)))
                if unmade:
                    unmade[-1][1].append(done[at])
            return done[i]

        stores: list[Store] = []
        for i in targets:
            found = ready(i, None)
            made = make(i) if found is None else found
            stores += [(made, buffer, later) for buffer, later in self.targets[i]]
        return Kernel(name if columns else f"{name}_scalars", dim, tuple(builder.nodes), tuple(stores))

    @property
    def region_of_leaves(self) -> str:
        """Where results that stand in memory already are put where they belong."""
        return AFTER if self.step.scans else LOOP

    def stages(self, region: str) -> dict[int, Stage]:
        """By level; one in which nothing is stored is none."""
        levels = [self.level[i] for i in self.live if self.region.get(i) == region]
        levels += [0] if region == self.region_of_leaves else []
        found = {level: self.kernels(region, level) for level in range(max(levels, default=-1) + 1)}
        return {level: stage for level, stage in found.items() if stage.kernels}


def _with_copies(step: Step) -> Step:
    """The step with a copy in the place of each new state that depends on no state: such a value may be made before the steps,
    but a state is stored in its step.
    """
    depending, builder = carried(step), Builder(step.nodes)

    def copy(i: int) -> int:
        node = step.nodes[i]
        if i in depending or node.op == "load" or not node.per_sample:
            return i
        return builder.add(Node("fill", (i,), node.shape, node.shape))

    return replace(step, states=tuple((name, copy(i)) for name, i in step.states), nodes=tuple(builder.nodes))


def stage(step: Step, known: Iterable[Buffer]) -> Program:
    """The program of a loop. `known` are the buffers that the step's loads name, and its states."""
    stager = Stager(_with_copies(step))
    step = stager.step
    for buffer in known:
        stager.buffers[buffer.name] = buffer
    stager.collect()
    by_level = stager.stages(LOOP)
    body, opening = [*by_level.values()], min(by_level, default=0)  # a stage makes again what is made at levels that have none
    opens_with_product = any(
        stager.level[i] <= opening and stager.region[i] == LOOP and i in stager.feeds and _waits_for_state(stager, i)
        for i in stager.live
        if i in stager.region
    )
    core_levels = 1 + max((stager.level[i] for i in stager.feeds if stager.region.get(i) == LOOP), default=0)
    entry = exit = None
    if len(body) > 1 and not opens_with_product and step.reverse and _only_carries(stager, body[-1]):
        entry, exit, body = rotate(body, [name for name, _ in step.states])
    stages = len(body) if core_levels > 1 or opens_with_product else 0
    products = tuple(
        GradientProduct(w, _access(stager, left), _access(stager, right), heads) for w, left, right, heads in step.products
    )
    sums = tuple(GradientSum(w, stager.totals.get(i) or _access(stager, i)) for w, i in step.sums)
    return Program(
        step.reverse,
        tuple(stager.buffers.values()),
        tuple(name for name, _ in step.states),
        tuple(stager.stages(BEFORE).values()),
        entry,
        tuple(body),
        exit,
        tuple(stager.stages(AFTER).values()),
        products,
        sums,
        stages,
        step.scans,
    )


def _only_carries(stager: Stager, stage: Stage) -> bool:
    """Whether a stage makes nothing but states: in a rotated loop it comes too late for anything else of its chunk."""
    return all(stager.buffers[buffer].role == "state" for kernel in stage.kernels for _, buffer, _ in kernel.stores)


def _waits_for_state(stager: Stager, i: int) -> bool:
    node = stager.nodes[i]
    return any(s in stager.carried for s in stager.needs_whole(node))


def _access(stager: Stager, i: int) -> tuple[str, int]:
    node = stager.nodes[i]
    if node.op == "load" and (i not in stager.stored or stager.buffers[stager.stored[i][0]].role != "chunk"):
        return node.attributes[0], node.attributes[1]
    return stager.stored[i]
