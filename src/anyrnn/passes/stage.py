"""Cuts the step of a loop into stages, and what the loop need not wait for out of it.

A product needs every feature of its operand; a reduction needs every feature of its argument. Where columns are split over
threads, each such need is a barrier, so a stage begins there. `level` is the stage in which a value can be made, column by
column; `whole` is the stage at whose start a thread can have all its features: the next stage for what a product or a costly op
made, the same stage for cheap arithmetic on what is whole already (a thread computes it again rather than waits).

What depends on no state, and is needed whole, is made before the steps (hoisted); what no state depends on, and needs
something whole, is made after them (sunk). Both are done for a chunk of steps at once.

When a backward step begins with pointwise work and ends in products that make nothing but the cotangents of states, as nearly
every one does, the loop is rotated: the last stage of one step and the first of the next become one, so that products open
stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import Builder, Node, affine_parts, reachable
from anyrnn.passes.late import make_late
from anyrnn.passes.plan import Buffer, GradientProduct, GradientSum, Kernel, Program, Stage, Store


@dataclass(frozen=True)
class Step:
    """One step of a loop as a graph with loads as leaves.

    `states` are carried (buffer, node of the new value). `outputs` are stored at every step (buffer, role, node).
    `products` are (weight, left, right, heads) and `sums` (weight, value): node indices.
    """

    nodes: tuple[Node, ...]
    reverse: bool
    states: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, str, int], ...]
    products: tuple[tuple[str, int, int, int], ...] = ()
    sums: tuple[tuple[str, int], ...] = ()


BEFORE, LOOP, AFTER = "before", "loop", "after"
RECOMPUTED_OPS = 6
"""Cheap ops on a whole row that every thread may do for itself rather than wait at a barrier for the others."""
AGAIN_OPS = 3
"""Cheap ops that a stage does again rather than read what an earlier one has made with them."""


class Stager:
    """The working state of `stage`; made for one step, used once."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.nodes = step.nodes
        self.write_later = 0 if step.reverse else 1
        names = {name for name, _ in step.states}
        self.carried = self._closure(lambda i, n: n.op == "load" and n.attributes[0] in names)
        """What depends on a state."""
        self.feeds = reachable(self.nodes, (i for _, i in step.states))
        """What a state depends on."""
        self.live = sorted(
            reachable(
                self.nodes,
                [i for _, i in step.states]
                + [i for _, _, i in step.outputs]
                + [i for _, *lr, _ in step.products for i in lr]
                + [i for _, i in step.sums],
            )
        )
        self.region = self._regions()
        self.level: dict[int, int] = {}
        self.whole: dict[int, int] = {}
        self.effort: dict[int, int] = {}
        for region in (BEFORE, LOOP, AFTER):
            self._levels(region)
        self.last_level = max((self.level[i] for i, region in self.region.items() if region == LOOP), default=0)
        self.stored: dict[int, tuple[str, int]] = {}
        self.buffers: dict[str, Buffer] = {}
        self.targets: dict[int, list[tuple[str, int]]] = {}
        self.totals: dict[int, tuple[str, int]] = {}

    # which nodes are where

    def _closure(self, starts: Callable[[int, Node], bool]) -> set[int]:
        found: set[int] = set()
        for i, node in enumerate(self.nodes):
            if starts(i, node) or any(s in found for s in node.inputs):
                found.add(i)
        return found

    def needs_whole(self, node: Node) -> list[int]:
        """The inputs of which a node needs every feature."""
        if node.op == "affine":
            return [operand for _, operand, _, _ in affine_parts(node)[0]]
        return list(node.inputs) if node.row.kind == "reduction" else []

    def _regions(self) -> dict[int, str]:
        region = {i: LOOP for i in self.live if self.nodes[i].per_sample}
        free = {i for i in region if i not in self.carried}
        hoisted: set[int] = set()
        for i in reversed(self.live):
            node = self.nodes[i]
            if i in region and i in free and node.row.kind == "reduction":
                hoisted.add(i)
            for s in self.needs_whole(node) if node.per_sample else []:
                if s in free and node.row.kind != "reduction" and self.nodes[s].op != "load":
                    hoisted.add(s)
        for i in sorted(hoisted, reverse=True):
            hoisted |= {s for s in reachable(self.nodes, [i]) if s in free}
        for i in hoisted:
            if self.nodes[i].op != "load":
                region[i] = BEFORE
        sunk: set[int] = set()
        for i in self.live:
            node = self.nodes[i]
            if (
                i in region
                and i in self.carried
                and i not in self.feeds
                and (self.needs_whole(node) or any(s in sunk for s in node.inputs))
            ):
                sunk.add(i)
                region[i] = AFTER
        return region

    def _levels(self, region: str) -> None:
        for i in self.live:
            node = self.nodes[i]
            if self.region.get(i) != region:
                continue
            inside = [s for s in node.inputs if self.region.get(s) == region and self.nodes[s].op != "load"]
            level = max((self.level[s] for s in inside), default=0)
            for s in self.needs_whole(node):
                if s in inside:
                    level = max(level, self._whole_for(node, s))
            self.level[i] = level
            self.effort[i] = 1 + sum(self.effort[s] for s in inside if self.level[s] == level and self.nodes[s].shape)
            if node.op == "load" or node.shape == ():
                self.whole[i] = level
            elif node.op in ("affine", "slice", "concat") or node.row.costly or self.effort[i] > RECOMPUTED_OPS:
                self.whole[i] = level + 1
            else:
                self.whole[i] = max((self.whole[s] for s in inside), default=0)

    def _whole_for(self, node: Node, operand: int) -> int:
        """A product reads its operand from memory, so whatever is computed must have been stored a stage before."""
        if node.op == "affine" and self.nodes[operand].op != "load":
            return self.level[operand] + 1
        return self.whole[operand]

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
        node = self.nodes[i]
        if node.row.boolean or node.op == "fill":
            return 0
        if node.row.kind != "elementwise" or node.row.costly or node.shape == ():
            return AGAIN_OPS + 1
        made = {s for s in node.inputs if not self.is_leaf(s)}
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
        be done in the step after it (see `_rotate`).
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
        if (i, place, columns) in done:
            return []
        done.add((i, place, columns))
        node, found = self.nodes[i], []
        for s in node.inputs:
            if self.is_leaf(s):
                found += [(s, place, columns)] if self.nodes[s].op == "load" else []
            elif self.loaded(s, place, columns, node):
                found.append((s, place, columns))
            else:
                found += self._read_by(s, place, columns, done)
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
        if reader.op == "affine" or (self.nodes[s].shape == () and columns):
            return True
        return self.place(s) != place and not self.recomputed(s)

    # kernels

    def kernels(self, region: str, level: int) -> Stage:
        here = [i for i in self.targets if not self.is_leaf(i) and self.place(i) == (region, level)]
        if level == 0 and region == LOOP:
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

        def get(i: int, reader: Node | None) -> int:
            node = self.nodes[i]
            elsewhere = not self.still_there(i, place) if self.is_leaf(i) else reader and self.loaded(i, place, columns, reader)
            if elsewhere:
                return load(i)
            if i not in done:
                done[i] = builder.add(replace(node, inputs=tuple(get(s, node) for s in node.inputs)))
            return done[i]

        stores: list[Store] = []
        for i in targets:
            made = get(i, None)
            stores += [(made, buffer, later) for buffer, later in self.targets[i]]
        return Kernel(name if columns else f"{name}_scalars", dim, tuple(builder.nodes), tuple(stores))

    def stages(self, region: str) -> list[Stage]:
        levels = [self.level[i] for i in self.live if self.region.get(i) == region]
        return [s for s in (self.kernels(region, k) for k in range(max(levels, default=-1) + 1)) if s.kernels]


def _with_copies(step: Step) -> Step:
    """The step with a copy in the place of each new state that depends on no state: such a value may be made before the steps,
    but a state is stored in its step.
    """
    names = {name for name, _ in step.states}
    carried: set[int] = set()
    for i, node in enumerate(step.nodes):
        if (node.op == "load" and node.attributes[0] in names) or any(s in carried for s in node.inputs):
            carried.add(i)
    builder = Builder(step.nodes)

    def copy(i: int) -> int:
        node = step.nodes[i]
        if i in carried or node.op == "load" or not node.per_sample:
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
    body = stager.stages(LOOP)
    opens_with_product = any(
        stager.level[i] == 0 and stager.region[i] == LOOP and i in stager.feeds and _waits_for_state(stager, i)
        for i in stager.live
        if i in stager.region
    )
    core_levels = 1 + max((stager.level[i] for i in stager.feeds if stager.region.get(i) == LOOP), default=0)
    entry = exit = None
    if len(body) > 1 and not opens_with_product and step.reverse and _only_carries(stager, body[-1]):
        entry, exit, body = _rotate(stager, body)
    stages = len(body) if core_levels > 1 or opens_with_product else 0
    products = tuple(
        GradientProduct(w, _access(stager, left), _access(stager, right), heads) for w, left, right, heads in step.products
    )
    sums = tuple(GradientSum(w, stager.totals.get(i) or _access(stager, i)) for w, i in step.sums)
    return Program(
        step.reverse,
        tuple(stager.buffers.values()),
        tuple(name for name, _ in step.states),
        tuple(stager.stages(BEFORE)),
        entry,
        tuple(body),
        exit,
        tuple(stager.stages(AFTER)),
        products,
        sums,
        stages,
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


def _rotate(stager: Stager, body: list[Stage]) -> tuple[Stage, Stage, list[Stage]]:
    """Join the last stage of one step with the first stage of the next: (entry, exit, body)."""
    first, last = body[0], body[-1]
    later = 1 if stager.step.reverse else -1
    made_last = {buffer for kernel in last.kernels for _, buffer, _ in kernel.stores}
    passed = {name for name, _ in stager.step.states if name in made_last}
    read = {buffer for stage in body[1:] for kernel in stage.kernels for _, buffer, _ in kernel.loads}
    shifted = [_shift(kernel, later) for kernel in last.kernels]
    joined = _join(shifted, list(first.kernels), passed, passed - read)
    return first, Stage(tuple(shifted)), [Stage(tuple(joined)), *body[1:-1]]


def _shift(kernel: Kernel, later: int) -> Kernel:
    """The same kernel for another step."""
    nodes = tuple(
        replace(n, attributes=(n.attributes[0], n.attributes[1] + later)) if n.op in ("load", "choose") else n
        for n in kernel.nodes
    )
    return replace(kernel, nodes=nodes, stores=tuple((i, b, s + later) for i, b, s in kernel.stores))


def _join(last: list[Kernel], first: list[Kernel], passed_on: set[str], unstored: set[str]) -> list[Kernel]:
    """Kernels of both stages, those of one size made one; states pass from the one to the other in registers."""
    dims = sorted({k.dim for k in last + first}, key=lambda d: (d is not None, str(d)))
    joined = []
    for dim in dims:
        builder = Builder()
        stores: list[Store] = []
        passed: dict[tuple[str, int], int] = {}
        for kernel in [k for k in last if k.dim == dim] + [k for k in first if k.dim == dim]:
            mapped: dict[int, int] = {}
            for i, node in enumerate(kernel.nodes):
                key = node.attributes if node.op == "load" else None
                mapped[i] = (
                    passed[key] if key in passed else builder.add(replace(node, inputs=tuple(mapped[s] for s in node.inputs)))
                )
            for i, buffer, later in kernel.stores:
                if buffer in passed_on:
                    passed[(buffer, later)] = mapped[i]
                if buffer not in unstored:
                    stores.append((mapped[i], buffer, later))
        used = reachable(builder.nodes, (i for i, _, _ in stores))
        position = {old: new for new, old in enumerate(sorted(used))}
        nodes = tuple(replace(builder.nodes[i], inputs=tuple(position[s] for s in builder.nodes[i].inputs)) for i in sorted(used))
        name = "turn" if dim is not None else "turn_scalars"
        joined.append(Kernel(name, dim, nodes, tuple((position[i], b, s) for i, b, s in stores)))
    return joined


def chain_of(stages: Sequence[Stage]) -> list[Kernel]:
    """All kernels in order."""
    return [kernel for stage in stages for kernel in stage.kernels]
