"""What the Triton functions of all kernels need: `rows` samples of a step in blocks of BLOCK_N, the addresses of their rows,
loads, stores, elementwise ops. `columns` writes kernels of features, `scalars` those of one number a sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyrnn.backends.triton.lower import Scatter
from anyrnn.backends.triton.names import (
    BLOCKS,
    CALL,
    INDENT,
    LOCAL,
    RESERVED,
    Argument,
    Names,
    filled,
    identifier,
)
from anyrnn.backends.triton.spelling import SPELLINGS
from anyrnn.backends.triton.split import shares_rows
from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import exact_for_steps, reachable
from anyrnn.ir.philox import kind_of
from anyrnn.passes.plan import MOVES, Kernel, joined_at

if TYPE_CHECKING:
    from anyrnn.backends.triton.text import Writer


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
        self.values = Names(RESERVED, writer.names.taken)
        self.places: dict[tuple[str, int], str] = {}
        self.masks: dict[tuple[str, int], str] = {}
        self.scatters = [s for s in dict.fromkeys(writer.scatters.values()) if id(kernel) in s.kernels]
        self.needed = sorted(reachable(self.nodes, (i for i, _, _ in kernel.stores)))
        self.exact = exact_for_steps(self.nodes, [i for i, buffer, _ in kernel.stores if buffer in writer.tested])
        self.waits = id(kernel) in writer.waiting
        if shares_rows(kernel):
            self.say("row = (row_block * BLOCK_N + column * BLOCK_S + tl.arange(0, BLOCK_S)).to(tl.int64)[:, None]")
            self.say("there = (row < rows) & (column * BLOCK_S < BLOCK_N)")
        else:
            self.say("row = (row_block * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)[:, None]")
            self.say("there = row < rows")
        self.places_of_rows()
        self.body()
        head = [f"@triton.jit\ndef {self.name}(", *filled(self._parameters(), 1), "):"]
        self.text = "\n".join([*head, *self.lines])

    def body(self) -> None:
        """The lines behind the addresses of rows."""
        raise NotImplementedError

    def _parameters(self) -> list[str]:
        plain = [*LOCAL, *(a.name for a in self.arguments.values() if a.kind != "adds")]
        constants = [a.name for a in self.arguments.values() if a.kind == "adds"]
        return [*plain, *(f"{name}: tl.constexpr" for name in (*constants, *BLOCKS))]

    # small things

    def say(self, line: str) -> None:
        self.lines.append(INDENT * self.depth + line)

    def say_wait(self) -> None:
        """For programs of the same rows: before this kernel reads what they have made, or writes where they may still read."""
        if self.waits:
            arrived = self.use(Argument("local", "arrived", "arrived"))
            self.say(f"functions.wait({self.call('counter')} + row_block, {arrived}, COLUMN_PROGRAMS)")

    def use(self, argument: Argument) -> str:
        self.arguments.setdefault(argument.name, argument)
        return argument.name

    def call(self, name: str) -> str:
        return self.use(Argument("call", name, name))

    def role(self, buffer: str) -> str:
        return self.writer.buffers[buffer].role

    def dim(self, buffer: str) -> Dim | None:
        return self.writer.buffers[buffer].dim

    def local(self, key: object, wanted: str) -> str:
        """The name of a value; no argument that is named later has it."""
        name = self.values(key, wanted)
        self.writer.locals.add(name)
        return name

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

    def scatter_of(self, i: int) -> Scatter | None:
        return self.writer.scatters.get((id(self.kernel), i))

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
        if node.op == "div" and i in self.exact:
            return f"functions.divided({operands[0]}, {operands[1]}, COMPUTE)"
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
        elif self._is_number(i):  # of 32 bits, if Triton made a variable of it
            self.say(f"{self.label(i)} = tl.full((), {self.elementwise(i)}, COMPUTE)")
        else:
            self.say(f"{self.label(i)} = {self.elementwise(i)}")

    def _is_number(self, i: int) -> bool:
        """Whether a value is written as a number: of constants, by arithmetic or spread over features."""
        node = self.nodes[i]
        numbers = all(self.nodes[s].op == "constant" for s in node.inputs)
        return numbers and not node.row.boolean and node.op not in ("where", "choose")

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
