"""Writes the Triton function of one kernel: `rows` samples of a step in blocks of BLOCK_N, features in blocks of BLOCK_F."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from anyrnn.backends.triton.lower import Scatter, Sum, Term
from anyrnn.backends.triton.names import (
    BLOCKS,
    CALL,
    INDENT,
    LOCAL,
    RESERVED,
    SLICED,
    Argument,
    Names,
    filled,
    identifier,
    in_turn,
    power_of_two,
)
from anyrnn.backends.triton.spelling import SPELLINGS
from anyrnn.backends.triton.split import shares_rows
from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import reachable
from anyrnn.ir.philox import kind_of
from anyrnn.passes.plan import MOVES, Kernel, joined_at

if TYPE_CHECKING:
    from anyrnn.backends.triton.text import Writer


MOST_TOGETHER = 4
"""Sums over features that threads tell each other at once."""


class KernelText:
    """Writes the function of one kernel."""

    def __init__(self, writer: Writer, kernel: Kernel) -> None:
        self.writer, self.kernel, self.nodes = writer, kernel, kernel.nodes
        self.arguments: dict[str, Argument] = {}
        self.lines: list[str] = []
        self.depth = 1
        self.name = writer.functions(("kernel", id(kernel)), f"{writer.name}_{kernel.name}")
        for name in CALL:
            self.call(name)
        self.local = Names({*RESERVED, *writer.names.taken})
        self.places: dict[tuple[str, int], str] = {}
        self.masks: dict[tuple[str, int], str] = {}
        self.scatters = [s for s in dict.fromkeys(writer.scatters.values()) if id(kernel) in s.kernels]
        self.needed = sorted(reachable(self.nodes, (i for i, _, _ in kernel.stores)))
        self.waits = id(kernel) in writer.waiting
        if shares_rows(kernel):
            self.say("row = (row_block * BLOCK_N + column * BLOCK_S + tl.arange(0, BLOCK_S)).to(tl.int64)[:, None]")
            self.say("there = (row < rows) & (column * BLOCK_S < BLOCK_N)")
        else:
            self.say("row = (row_block * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)[:, None]")
            self.say("there = row < rows")
        self.places_of_rows()
        if kernel.dim is None:
            self.scalars()
        else:
            self.columns(writer.size(kernel.dim))
        head = [f"@triton.jit\ndef {self.name}(", *filled(self._parameters(), 1), "):"]
        self.text = "\n".join([*head, *self.lines])

    def _parameters(self) -> list[str]:
        plain = [*LOCAL, *(a.name for a in self.arguments.values() if a.kind != "adds")]
        constants = [a.name for a in self.arguments.values() if a.kind == "adds"]
        return [*plain, *(f"{name}: tl.constexpr" for name in (*constants, *BLOCKS))]

    # small things

    def say(self, line: str) -> None:
        self.lines.append(INDENT * self.depth + line)

    def use(self, argument: Argument) -> str:
        self.arguments.setdefault(argument.name, argument)
        return argument.name

    def call(self, name: str) -> str:
        return self.use(Argument("call", name, name))

    def role(self, buffer: str) -> str:
        return self.writer.buffers[buffer].role

    def dim(self, buffer: str) -> Dim | None:
        return self.writer.buffers[buffer].dim

    def label(self, i: int) -> str:
        node = self.nodes[i]
        return self.local(("node", i), node.name or node.op)

    # where rows stand

    def places_of_rows(self) -> None:
        """The address of each row in every buffer that is read or written."""
        keys = [self.nodes[i].attributes for i in self.needed if self.nodes[i].op == "load" and self._is_read(i)]
        for i in self.kernel.affines:
            if i in self.needed:
                of = self.writer.lowered.sum_of(self.kernel, i)
                keys += [(t.operand, t.later) for t in of.terms if self.scatter_of(i) is None]
                keys += [(of.early.name, of.later)] if of.early else []
        keys += [(buffer, later) for _, buffer, later in self.kernel.stores]
        for scatter in self.scatters:
            keys += [(term.operand, 0) for term in scatter.terms]
        for buffer, later in dict.fromkeys(keys):
            self._place(buffer, later)
        if any(self.nodes[i].op == "choose" for i in self.needed):
            self._samples()

    def _is_read(self, i: int) -> bool:
        """Whether a load is read by more than products, which read what they need themselves."""
        readers = [n for k in self.needed for n in [self.nodes[k]] if i in n.inputs]
        return any(n.op != "affine" for n in readers) or i in {s for s, _, _ in self.kernel.stores}

    def _later(self, later: int) -> str:
        return "step" if not later else f"(step + {later})" if later > 0 else f"(step - {-later})"

    def _place(self, buffer: str, later: int) -> None:
        address, of_step, of_row = (self.use(a) for a in self.writer.buffer(buffer))
        name = self.local(("place", buffer, later), f"{identifier(buffer)}_at" + (f"_{later}" if later else ""))
        role, step = self.role(buffer), self._later(later)
        if role == "sum":
            unit = ""
        elif role == "cross":
            unit = f"({step} & 1).to(tl.int64) * {of_step} + "
        elif role in ("state", "history") or (
            role == "saved" and self.writer.program.reverse and buffer in self._forward_states()
        ):
            slots = self.use(self.writer.flag("slots", buffer))
            unit = f"((slot_first + slot_sign * {step}) & {slots}).to(tl.int64) * {of_step} + "
        elif role in ("chunk", "saved"):
            first = "chunk_first" if role == "chunk" else self.call("saved_first")
            unit = f"(tl.load(given + {step}) - {first}) * {of_step} + "
        else:
            unit = f"tl.load(given + {step}) * {of_step} + "
        if role == "output":  # which may not be wanted
            self.say(f"if {address} is not None:")
        self.say(f"{INDENT * (role == 'output')}{name} = {address} + {unit}row * {of_row}")
        self.places[buffer, later] = name
        if role == "cotangent":
            begin, end = self.call("cotangent_from"), self.call("cotangent_to")
            mask = self.local(("mask", buffer, later), f"{identifier(buffer)}_there" + (f"_{later}" if later else ""))
            self.say(f"{mask} = there & ({step} >= {begin}) & ({step} < {end})")
            self.masks[buffer, later] = mask

    def _forward_states(self) -> set[str]:
        program = self.writer.program
        scanned = (name for scan in program.scans for name in scan.states)
        return {name.removeprefix("d_") for name in (*program.states, *scanned)}

    def _samples(self) -> None:
        """The caller's sample and step of each row, for random choices."""
        for later in dict.fromkeys(self.nodes[i].attributes[1] for i in self.needed if self.nodes[i].op == "choose"):
            sample, moment = self._sample_names(later)
            unit = self.local(("unit", later), "unit")
            self.say(f"{unit} = tl.load(given + {self._later(later)})")
            self.say("if PACKED:")
            for name, table in ((sample, "sample_table"), (moment, "step_table")):
                self.say(f"    {name} = tl.load({self.call(table)} + {unit} + row, mask=there, other=0)")
            self.say("else:")
            self.say(f"    {sample}, {moment} = row, {unit} + row * 0")

    def _sample_names(self, later: int) -> tuple[str, str]:
        return self.local(("sample", later), "sample_of_row"), self.local(("moment", later), "step_of_row")

    # values

    def constant(self, value: float) -> str:
        if value != value:
            return "float('nan')"
        if value in (float("inf"), float("-inf")):
            return f"float('{value}')"
        return repr(float(value))

    def number(self, i: int) -> str:
        """A value that is alike for all samples, or a parameter's features."""
        node, writer = self.nodes[i], self.writer
        if node.op == "constant":
            return self.constant(node.attributes[0])
        if node.op == "size":
            return f"tl.cast({self.use(writer.size(node.attributes[0]))}, COMPUTE)"  # a size of one comes as Python's number
        if node.op in ("scale", "probability"):
            return f"tl.load({self.use(writer.flag(node.op, node.attributes[0]))})"
        address = self.use(writer.weight(node.attributes[0]))
        if node.shape == ():
            return f"tl.load({address}).to(COMPUTE)"
        if self.kernel.dim is None:  # beside what is loaded for each row: Triton would move those to other threads, one by one
            return f"tl.load({address} + feature + row * 0, mask=inside, other=0.0).to(COMPUTE)"
        return f"tl.load({address} + feature, mask=feature < {self.use(writer.size(node.shape[0]))}, other=0.0).to(COMPUTE)"

    def load(self, buffer: str, later: int) -> str:
        mask, way = self.masks.get((buffer, later), "there"), self.way_to(buffer)
        if self.dim(buffer) is None:
            return f"tl.load({self.places[buffer, later]}, mask={mask}, other=0.0{way}).to(COMPUTE)"
        inside = "inside" if mask == "there" else f"inside & {mask}"
        return f"tl.load({self.places[buffer, later]} + feature, mask={inside}, other=0.0{way}).to(COMPUTE)"

    def way_to(self, buffer: str) -> str:
        """What other multiprocessors write is read once: past the cache of one's own, which a barrier empties anyway."""
        return ', cache_modifier=".cg"' if self.role(buffer) in ("state", "cross") else ""

    def elementwise(self, i: int) -> str:
        node = self.nodes[i]
        operands = [self.value_text(s) for s in node.inputs]
        if node.op in ("where", "choose") and all(self.nodes[s].op == "constant" for s in node.inputs[-2:]):
            operands[-2] = f"tl.full((), {operands[-2]}, COMPUTE)"  # two numbers would be of 32 bits
        if node.op == "choose":
            choice, later = node.attributes
            kind, sample, moment = kind_of(choice), *self._sample_names(later)
            moment = moment if kind.each_step else "0"
            feature = "feature" if node.shape else "0"
            seed = self.call("seed")
            words = ", ".join(self.use(self.writer.flag(k, choice)) for k in ("stream", "threshold"))
            return f"tl.where(functions.kept({feature}, {sample}, {moment}, {seed}, {words}), {operands[0]}, {operands[1]})"
        return SPELLINGS[node.op].format(*operands)

    def value_text(self, s: int) -> str:
        """A value as an operand."""
        return self.constant(self.nodes[s].attributes[0]) if self.nodes[s].op == "constant" else self.label(s)

    def say_value(self, i: int) -> None:
        """Make one value, but for products and reductions."""
        node = self.nodes[i]
        if node.op == "constant":
            return
        if node.op == "load":
            self.say(f"{self.label(i)} = {self.load(*node.attributes)}")
        elif not node.per_sample:
            self.say(f"{self.label(i)} = {self.number(i)}")
        elif node.op in MOVES:
            self.say(f"{self.label(i)} = {self.moved(i, 'feature', 'inside')}")
        else:
            self.say(f"{self.label(i)} = {self.elementwise(i)}")

    def moved(self, i: int, feature: str, there: str) -> str:
        """Some features of a slice, of a join of several vectors, or of what these are made of, where they are `there`."""
        node = self.nodes[i]
        if node.op == "fill":
            return self.label(i)
        if node.op == "slice":
            start, _ = node.attributes
            return self.moved(node.inputs[0], f"{feature} + {self.use(self.writer.size(start))}", there)
        if node.op == "concat":
            made = "0.0"
            for operand, start in zip(node.inputs, joined_at(self.nodes, node), strict=False):
                at, (size,) = f"{feature} - {self.use(self.writer.size(start))}", self.nodes[operand].shape
                inside = f"{there} & ({at} >= 0) & ({at} < {self.use(self.writer.size(size))})"
                made = f"tl.where({inside}, {self.moved(operand, at, inside)}, {made})"
            return made
        if not node.per_sample:
            return f"tl.load({self.use(self.writer.weight(node.attributes[0]))} + {feature}, mask={there}, other=0.0).to(COMPUTE)"
        mask = self.masks.get(node.attributes)
        there = f"{there} & {mask}" if mask else there
        at = f"{self.places[node.attributes]} + {feature}"
        return f"tl.load({at}, mask={there}, other=0.0{self.way_to(node.attributes[0])}).to(COMPUTE)"

    # kernels of columns

    def columns(self, size: Argument) -> None:
        features = self.use(size)
        affines = [i for i in self.kernel.affines if i in self.needed]
        if self.writer.holds:
            self.say("block = column")
        else:
            self.say_wait()
            self.say(f"for block in range(column, tl.cdiv({features}, BLOCK_F), COLUMN_PROGRAMS):")
            self.depth += 1
        self.say("feature = (block * BLOCK_F + tl.arange(0, BLOCK_F))[None, :]")
        self.say(f"inside = there & (feature < {features})")
        for i in affines:
            self.say_first(i, self.writer.lowered.sum_of(self.kernel, i))
        read = self.kernel.read_in_place(self.needed)
        values = [i for i in self.needed if i in read and self.nodes[i].op != "affine"]
        own = self.own_values()
        for i in filter(own.__contains__, values):
            self.say_value(i)
        if self.writer.holds:
            self.say_wait()
        whole = [i for i in affines if self.scatter_of(i) is None]
        self.say_products([(i, t) for i in whole for t in self.writer.lowered.sum_of(self.kernel, i).terms], features)
        for i in affines:
            self.say_reduced(i)
        for i in values:
            if i not in own:
                self.say_value(i)
        for scatter in self.scatters:
            self.say_scatter(scatter)
        for i, buffer, later in self.kernel.stores:
            self.say_store(self.value_text(i), buffer, later, "inside", " + feature")

    def own_values(self) -> set[int]:
        """Those that follow from nothing but what is known before the steps, and this program's own features."""
        found = set[int]()
        for i in self.needed:
            node = self.nodes[i]
            others = node.op == "load" and node.attributes[0] in self.writer.numbers_made
            if node.op not in ("affine", *MOVES) and not others and found.issuperset(node.inputs):
                found.add(i)
        return found

    def say_wait(self) -> None:
        """For programs of the same rows: before this kernel reads what they have made, or writes where they may still read."""
        if self.waits:
            arrived = self.use(Argument("local", "arrived", "arrived"))
            self.say(f"functions.wait({self.call('counter')} + row_block, {arrived}, COLUMN_PROGRAMS)")

    def say_first(self, i: int, of: Sum) -> None:
        """What a sum of products begins from."""
        name = self.label(i)
        if of.early is not None:
            self.say(f"{name} = {self.load(of.early.name, of.later)}")
            return
        self.say(f"{name} = tl.zeros((BLOCK_N, BLOCK_F), COMPUTE)")
        for bias in of.biases:
            address = self.use(self.writer.weight(bias))
            self.say(f"{name} += tl.load({address} + feature, mask=feature < {self._features()}, other=0.0).to(COMPUTE)")

    def _features(self) -> str:
        assert self.kernel.dim is not None
        return self.use(self.writer.size(self.kernel.dim))

    def say_products(self, terms: Sequence[tuple[int, Term]], features: str) -> None:
        """Products of one operand share a loop over its features; with weights that are held they are one product."""
        loops: dict[tuple[str, int, str, str], list[tuple[int, Term]]] = {}
        for i, term in terms:
            loops.setdefault((term.operand, term.later, *self._range(term, features)), []).append((i, term))
        if self.writer.holds:
            self.say_held({(operand, later): together for (operand, later, _, _), together in loops.items()})
            return
        for (operand, later, begin, end), together in loops.items():
            self.say(f"for k0 in range({begin}, {end}, BLOCK_K):")
            self.depth += 1
            self.say("k = k0 + tl.arange(0, BLOCK_K)")
            value = f"functions.parts({self.say_operand(operand, later)}, OPERAND, PRECISION)"
            for i, term in together:
                tile, total = self.local(("tile", term.weight, i), f"{identifier(term.weight)}_tile"), self.label(i)
                self.say(f"{tile} = functions.parts({self.writer.load_of(term, self.use)}, OPERAND, PRECISION)")
                self.say(f"{total} = functions.product({value}, {tile}, {total}, PRECISION, COMPUTE)")
            self.depth -= 1

    def say_operand(self, operand: str, later: int, block: int | None = None) -> str:
        """The features `k` of an operand; of a block of held weights those of SLICES in its first side."""
        dim = self.dim(operand)
        assert dim is not None
        value = self.local(("operand", operand, later, block), f"{identifier(operand)}_k" + (f"_{block}" if block else ""))
        rows, k = ("", "[None, :]") if block is None else ("[None, :, :]", "[:, None, :]")
        mask = f"there{rows} & (k < {self.use(self.writer.size(dim))}){k}"
        self.say(f"{value} = tl.load({self.places[operand, later]}{rows} + k{k}, mask={mask}, other=0.0{self.way_to(operand)})")
        return value

    def say_held(self, groups: Mapping[tuple[str, int], Sequence[tuple[int, Term]]]) -> None:
        """With weights that are held. Slices of the features are multiplied side by side and added up; the columns of several
        results stand in turn.
        """
        by_results: dict[tuple[int, ...], list[tuple[str, int]]] = {}
        for of, together in groups.items():
            by_results.setdefault(tuple(i for i, _ in together), []).append(of)
        for results, operands in by_results.items():
            columns = power_of_two(len(results))
            total = self.local(("products", results), f"products_of_{identifier(operands[0][0])}")
            self.say(f"{total} = tl.zeros((SLICES, BLOCK_N, {columns} * BLOCK_F), COMPUTE)")
            for of in operands:
                values = []
                for block in range(self.writer.holds):  # all loads are on their way before anything waits for one
                    self.say(f"k = {block} * BLOCK_K + {SLICED}")
                    values.append(self.say_operand(*of, block))
                for block, value in enumerate(values):
                    tiles = self.use(self.writer.tiles([term for _, term in groups[of]], block))
                    parts = f"functions.parts({value}, OPERAND, PRECISION)"
                    self.say(f"{total} = functions.product({parts}, {tiles}, {total}, PRECISION, COMPUTE)")
            self.say(f"{total} = {self.spread(f'tl.sum({total}, axis=0)')}")
            self._say_apart(total, [self.label(i) for i in results], columns)

    def spread(self, total: str) -> str:
        """Sums of products, laid out as the kernel's other values are. Kernels that have some store more than outputs."""
        of = next(self.places[buffer, later] for _, buffer, later in self.kernel.stores if self.role(buffer) != "output")
        return f"functions.spread({total}, {of} + feature, inside & (row < 0))"

    def scatter_of(self, i: int) -> Scatter | None:
        return self.writer.scatters.get((id(self.kernel), i))

    def _of_scatter(self, scatter: Scatter, later: int) -> str:
        """Where programs of the same rows put the products of a step that they make for each other."""
        address, step = self.use(self.writer.scatter(scatter)), self._later(later)
        return f"{address} + (row_block * 2 + ({step} & 1)) * (COLUMN_PROGRAMS * COLUMN_PROGRAMS * BLOCK_N * BLOCK_F)"

    def say_reduced(self, i: int) -> None:
        """Add to a sum of products what all programs have made of it."""
        scatter = self.scatter_of(i)
        if scatter is not None:
            [later] = {term.later for term in self.writer.lowered.sum_of(self.kernel, i).terms}
            how = "column, BLOCK_N, BLOCK_F, COLUMN_PROGRAMS, COMPUTE"
            reduced = self.spread(f"functions.reduced({self._of_scatter(scatter, later)}, {how})")
            self.say(f"{self.label(i)} += {reduced}")

    def say_scatter(self, scatter: Scatter) -> None:
        """Multiply operands by weights that are held, for all features of their sum. Those that kernels before have made are
        loaded.
        """
        made = {buffer: f"tl.where(inside, {self.value_text(i)}, 0.0)" for i, buffer, _ in self.kernel.stores}
        tiles = [made.get(term.operand) or self.load(term.operand, 0) for term in scatter.terms]
        stacked = in_turn([f"{tile}[None, :, :]" for tile in tiles], "tl.zeros((1, BLOCK_N, BLOCK_F), COMPUTE)")
        operands, total = (self.local((of, scatter), f"{of}{identifier(scatter.name)}") for of in ("operands_of_", ""))
        slices = f"(SLICES, BLOCK_N, {power_of_two(len(tiles))} * BLOCK_F)"
        self.say(f"{operands} = tl.broadcast_to({stacked}, {slices})")
        self.say(f"{operands} = functions.parts({operands}, OPERAND, PRECISION)")
        for block in range(self.writer.holds):
            held = self.use(self.writer.tiles(scatter.terms, block, scattered=True))
            self.say(f"{total} = tl.zeros((SLICES, BLOCK_N, BLOCK_K // SLICES), COMPUTE)")
            self.say(f"{total} = functions.product({operands}, {held}, {total}, PRECISION, COMPUTE)")
            how = f"{block}, column, BLOCK_N, BLOCK_F, BLOCK_K, COLUMN_PROGRAMS"
            self.say(f"functions.scatter({total}, {self._of_scatter(scatter, 0)}, {how})")

    def _say_apart(self, value: str, results: Sequence[str], columns: int) -> None:
        """Add to each result its columns of a value that has those of so many in turn."""
        if columns == 1:
            self.say(f"{results[0]} += {value}")
            return
        half = columns // 2
        halves = [results[:half], results[half:]] if len(results) > half else [results]
        names = [self.local(("part", value, k), f"{'_'.join(half)}_products") for k, half in enumerate(halves)]
        self.say(f"{', '.join((*names, '_')[:2])} = functions.apart({value})")
        for name, half_of_results in zip(names, halves, strict=True):
            self._say_apart(name, half_of_results, half)

    def _range(self, term: Term, features: str) -> tuple[str, str]:
        """The features of the operand that a block of features of the result needs."""
        dim = self.dim(term.operand)
        assert dim is not None
        depth = self.use(self.writer.size(dim))
        if term.heads == 1:
            return "0", depth
        of_result, of_operand = self.writer.blocks_of(term, self.use)
        begin = f"(block * BLOCK_F) // {of_result} * {of_operand} // BLOCK_K * BLOCK_K"
        last = f"tl.minimum(block * BLOCK_F + BLOCK_F, {features}) - 1"
        return begin, f"({last}) // {of_result} * {of_operand} + {of_operand}"

    def say_store(self, value: str, buffer: str, later: int, mask: str, feature: str) -> None:
        at = self.places[buffer, later] + (feature if self.dim(buffer) is not None else "")
        role, address = self.role(buffer), self.writer.buffer(buffer)[0].name
        if role == "sum":
            self.say(f"tl.store({at}, tl.load({at}, mask={mask}, other=0.0) + {value}, mask={mask})")
            return
        stored = f"tl.store({at}, {value}, mask={mask})"
        if role != "output":
            self.say(stored)
            return
        self.say(f"if {address} is not None:")
        if not self.writer.program.reverse:
            self.say(INDENT + stored)
            return
        adds = self.use(self.writer.flag("adds", buffer))
        self.say(f"    if {adds}:")
        self.say(f"        tl.store({at}, tl.load({at}, mask={mask}, other=0.0) + {value}, mask={mask})")
        self.say("    else:")
        self.say(f"        {stored}")

    # kernels of numbers, one a sample

    def scalars(self) -> None:
        self.say_wait()
        nodes, made = self.nodes, set[int]()
        waiting = [i for i in self.needed if nodes[i].shape == ()]
        while waiting:
            ready = [i for i in waiting if nodes[i].row.kind != "reduction" and made.issuperset(nodes[i].inputs)]
            for i in ready:
                self.say_value(i)
            made |= set(ready)
            sums = [i for i in waiting if nodes[i].row.kind == "reduction" and made.issuperset(self._numbers_in(i))]
            assert ready or sums, "a scalar kernel cannot be ordered"
            for dim in dict.fromkeys(nodes[nodes[i].inputs[0]].shape[0] for i in sums):
                self.say_reductions([i for i in sums if nodes[nodes[i].inputs[0]].shape[0] == dim], dim)
            made |= set(sums)
            waiting = [i for i in waiting if i not in made]
        for i, buffer, later in self.kernel.stores:
            self.say_store(self.value_text(i), buffer, later, "there", "")

    def _numbers_in(self, i: int) -> set[int]:
        """The numbers that the argument of a reduction is made with."""
        inside = reachable(self.nodes, [self.nodes[i].inputs[0]])
        return {s for j in inside if self.nodes[j].shape for s in self.nodes[j].inputs if self.nodes[s].shape == ()}

    def say_reductions(self, reductions: Sequence[int], dim: Dim) -> None:
        """Several sums over features in one loop."""
        features = self.use(self.writer.size(dim))
        for i in reductions:
            self.say(f"{self.label(i)}_parts = tl.zeros((BLOCK_S, BLOCK_R), COMPUTE)")
        self.say(f"for block in range(0, tl.cdiv({features}, BLOCK_R)):")
        self.depth += 1
        self.say("feature = (block * BLOCK_R + tl.arange(0, BLOCK_R))[None, :]")
        self.say(f"inside = there & (feature < {features})")
        arguments = [self.nodes[i].inputs[0] for i in reductions]
        for j in sorted(j for j in reachable(self.nodes, arguments) if self.nodes[j].shape):
            self.say_value(j)
        for i, argument in zip(reductions, arguments, strict=True):
            self.say(f"{self.label(i)}_parts += tl.where(inside, {self.value_text(argument)}, 0.0)")
        self.depth -= 1
        for place in range(0, len(reductions), MOST_TOGETHER):
            labels = [self.label(i) for i in reductions[place : place + MOST_TOGETHER]]
            parts = [f"{label}_parts" for label in labels]
            if len(labels) == 1:
                self.say(f"{labels[0]} = tl.sum({parts[0]}, axis=1)")
            else:
                self.say(f"{', '.join(labels)} = tl.reduce(({', '.join(parts)}), 1, functions.added_{len(labels)})")
            for label in labels:
                self.say(f"{label} = {label}[:, None]")
