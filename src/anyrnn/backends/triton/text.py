"""Writes the Triton text of a program: a function for each kernel of its stages, and the functions that are launched.

Rows are samples, in blocks of BLOCK_N; features go in blocks of BLOCK_F. A launch of the loop has a program for each block of
rows and each of COLUMN_PROGRAMS that share the blocks of features. Those of the same rows wait for each other between stages,
and after the sums over features that begin one, of which each makes those of BLOCK_S rows; with one of them nothing waits but the
threads of one multiprocessor. A program that holds its weights has one block of features, and loads their weights before the
steps, once; its kernels make what follows from their own features alone before they wait for others. Where scans are in the place
of the loop, all kernels are launched for all steps of a chunk at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anyrnn.backends.triton.columns import ColumnText
from anyrnn.backends.triton.lower import Lowered, Scatter, Term
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
    unspecialised,
)
from anyrnn.backends.triton.scalars import ScalarText
from anyrnn.backends.triton.scans import scan_text
from anyrnn.backends.triton.split import shares_rows
from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import exact_for_steps
from anyrnn.passes.parameters import Weight
from anyrnn.passes.plan import Buffer, Kernel, Program, Scan, Stage


@dataclass
class Code:
    """The text of a program, and what its launches need."""

    text: str
    loop: str | None
    """the name of the loop's function; None where there are scans"""
    scans: tuple[str, ...]
    """those of the scans' functions, in their order"""
    flat: dict[tuple[str, str], str]
    """by `flat_key` of a kernel outside of the loop, the function that is launched"""
    arguments: dict[str, tuple[Argument, ...]]
    """of each function that is launched, in order"""


def flat_key(kernel: Kernel) -> tuple[str, str]:
    """What tells a kernel from others outside of the loop: those of a stage differ in their size."""
    return kernel.name, str(kernel.dim)


class Writer:
    """Writes the functions of one program."""

    def __init__(self, program: Program, weights: Sequence[Weight], name: str, holds: int, scatters: bool, late: bool) -> None:
        self.program, self.name, self.holds = program, name, holds
        self.weights = {w.name: w for w in weights}
        self.lowered = Lowered(program, late)
        self.buffers: dict[str, Buffer] = {b.name: b for b in program.buffers}
        for early in self.lowered.earlies.values():
            self.buffers[early.name] = Buffer(early.name, "chunk", early.dim)
        self.locals: set[str] = set()
        """of values in the kernels that have been written"""
        self.names = Names(RESERVED, self.locals)
        self.functions = Names(RESERVED)
        self.pieces: list[str] = []
        self.arguments: dict[str, tuple[Argument, ...]] = {}
        self.held: dict[str, tuple[tuple[Term, ...], int, bool]] = {}
        """by the name of what a program holds, products with one operand, and of which block of its features; or products that
        are scattered, and of which block of their sum's features
        """
        self.scatters = self.lowered.scatters if scatters else {}
        numbers = [kernel for stage in self.lowered.loop for kernel in stage.kernels if kernel.dim is None]
        self.numbers_made = {buffer for kernel in numbers for _, buffer, _ in kernel.stores}
        """in the loop, one a sample, by any of the programs of a row"""
        self.tested = self._tested()
        """the buffers of what `floor`, `sign` or a test in another kernel may be made of"""
        self.waiting = self._waiting() if program.waits and not program.scans else set[int]()
        """the kernels that begin when programs have arrived, by identity"""

    def _tested(self) -> set[str]:
        found, before = set[str](), None
        while found != before:
            before = found
            exact = [
                (kernel.nodes, exact_for_steps(kernel.nodes, [i for i, buffer, _ in kernel.stores if buffer in before]))
                for kernel in self.program.kernels
            ]
            found = before | {nodes[i].attributes[0] for nodes, some in exact for i in some if nodes[i].op == "load"}
        return found

    def _waiting(self) -> set[int]:
        pairs = [pair for stage in self.lowered.loop for pair in zip((None, *stage.kernels), stage.kernels, strict=False)]
        return {id(kernel) for before, kernel in pairs if before is None or shares_rows(before)}

    def code(self) -> Code:
        called: dict[int, tuple[str, tuple[Argument, ...]]] = {}
        stages = (*self.program.before, *self.lowered.loop, *self.program.after)
        for stage in stages:
            for kernel in stage.kernels:
                if id(kernel) not in called and not self.lowered.is_product(kernel):
                    written = (ScalarText if kernel.dim is None else ColumnText)(self, kernel)
                    called[id(kernel)] = written.name, tuple(written.arguments.values())
                    self.pieces.append(written.text)
        loop = None if self.program.scans else self._loop(called)
        scans = tuple(self._scan(scan) for scan in self.program.scans)
        flat = {}
        for stage in (*self.program.before, *self.program.after):
            for kernel in filter(lambda k: id(k) in called, stage.kernels):
                flat[flat_key(kernel)] = self._flat(kernel, *called[id(kernel)])
        return Code("\n\n\n".join(self.pieces) + "\n", loop, scans, flat, self.arguments)

    def _scan(self, scan: Scan) -> str:
        name = self.functions(("scan", scan.states), f"{self.name}_scan_of_{'_and_'.join(scan.states)}")
        text, self.arguments[name] = scan_text(self, scan, name)
        self.pieces.append(text)
        return name

    def _loop(self, called: dict[int, tuple[str, tuple[Argument, ...]]]) -> str:
        name = self.functions("loop", f"{self.name}_steps")
        program = self.program
        needed = {a.name: a for stage in self.lowered.loop for kernel in stage.kernels for a in called[id(kernel)][1]}
        needed |= {name: Argument("call", name, name) for name in CALL}
        tiles, begin, end = self._tiles(needed), self._begin(needed), self._end(needed)
        needed = {name: a for name, a in needed.items() if a.kind != "local"}
        needed = {n: Argument("call", n, n) for n in ("segments", "segment_count", "counter", "begins", "ends")} | needed
        arguments = tuple(needed.values())
        lines = [*_signature(name, arguments)]
        lines += [
            "    program = tl.program_id(0)",
            "    row_block, column = program // COLUMN_PROGRAMS, program % COLUMN_PROGRAMS",
            *tiles,
            *begin,
            "    for segment in range(segment_count):",
            "        first = tl.load(segments + 3 * segment)",
            "        count = tl.load(segments + 3 * segment + 1)",
            "        rows = tl.load(segments + 3 * segment + 2)",
            "        for position in range(count):",
            f"            step = first {'-' if program.reverse else '+'} position",
        ]
        body = list(program.body)
        if program.entry is not None:
            lines.append("            if position == 0:")
            lines += self._stage(program.entry, called, 4)
            lines.append("            else:")
            lines += self._stage(body[0], called, 4)
            lines += self._arrive(3)
            body = body[1:]
        for stage in body:
            lines += self._stage(stage, called, 3)
            lines += self._arrive(3)
        if program.exit is not None:
            lines.append(f"        step = first {'-' if program.reverse else '+'} count")
            lines += self._stage(program.exit, called, 2)
            lines += self._arrive(2)
        lines += end
        self.pieces.append("\n".join(lines))
        self.arguments[name] = arguments
        return name

    def _adding_to(self, needed: dict[str, Argument]) -> Callable[[Argument], str]:
        """Gives an argument's name, and adds it to those that are needed."""

        def use(argument: Argument) -> str:
            needed[argument.name] = argument
            return argument.name

        return use

    def _tiles(self, needed: dict[str, Argument]) -> list[str]:
        """Loads what a program holds of the weights; the arguments that it takes are added to those that are needed."""
        use = self._adding_to(needed)
        if not self.held:
            return []
        lines = ["    feature = (column * BLOCK_F + tl.arange(0, BLOCK_F))[None, :]"]
        for name, (terms, block, scattered) in self.held.items():
            sides = "k[:, :, None]", "feature[None, :, :]"
            lines.append(f"    k = {block} * BLOCK_K + {SLICED}")
            for place, term in enumerate(terms):
                lines.append(f"    tile_{place} = {self.load_of(term, use, *(reversed(sides) if scattered else sides))}")
            tile = in_turn([f"tile_{place}" for place in range(len(terms))], "tl.zeros_like(tile_0)")
            tile = f"tl.permute({tile}, (0, 2, 1))" if scattered else tile
            lines.append(f"    {name} = functions.parts({tile}, OPERAND, PRECISION)")
        return lines

    def _begin(self, needed: dict[str, Argument]) -> list[str]:
        """The states before the steps are put where these look for them."""
        return [
            *(["    arrived = 0"] if self.waiting else []),
            "    if begins:",
            *self._copies("first", needed),
            *self._arrive(2),
        ]

    def _end(self, needed: dict[str, Argument]) -> list[str]:
        """And those after them where the caller does."""
        waits = ["    functions.wait(counter + row_block, arrived, COLUMN_PROGRAMS)"] if self.waiting else []
        leaves = ["    functions.leave(counter + row_block, arrived, COLUMN_PROGRAMS)"] if self.waiting else []
        return [*waits, "    if ends:", *self._copies("last", needed), *leaves]

    def _copies(self, which: str, needed: dict[str, Argument]) -> list[str]:
        """Of all states, between where they stand before or after the steps, and the caller's memory. The arguments that it takes
        are added to those that are needed.
        """
        use = self._adding_to(needed)
        border, rows = (use(Argument("call", name, name)) for name in (f"{which}_slot", "all_rows"))
        lines = ["        row = (row_block * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)[:, None]"]
        lines += [f"        slots = functions.slots_of({border}, row, {rows}, PACKED)"]
        for state in self.program.states:
            dim = self.buffers[state].dim
            features = "1" if dim is None else use(self.size(dim))
            address, of_step, of_row = map(use, self.buffer(state))
            slot = f"{address} + (slots & {use(self.flag('slots', state))}) * {of_step}"
            if which == "first":
                of = [use(self.flag(kind, state)) for kind in ("first", "first_row", "first_feature")]
                words = [*of, slot, of_row]
            else:
                words = [slot, of_row, "1", use(self.flag("last", state)), features]
            words += ["row", rows, features, "column", "BLOCK_F", "COLUMN_PROGRAMS"]
            lines += ["        functions.copy(", *filled(words, 3), "        )"]
        return lines

    def _arrive(self, depth: int) -> list[str]:
        if not self.waiting:
            return [INDENT * depth + "tl.debug_barrier()"]
        return [
            INDENT * depth + "functions.arrive(counter + row_block, COLUMN_PROGRAMS)",
            INDENT * depth + "arrived += COLUMN_PROGRAMS",
        ]

    def _stage(self, stage: Stage, called: dict[int, tuple[str, tuple[Argument, ...]]], depth: int) -> list[str]:
        lines: list[str] = []
        for kernel in stage.kernels:
            lines += _call(*called[id(kernel)], depth)
            if kernel.dim is None and kernel is not stage.kernels[-1]:  # what some threads have made others read
                lines += self._arrive(depth) if shares_rows(kernel) else [INDENT * depth + "tl.debug_barrier()"]
        return lines

    def _flat(self, kernel: Kernel, function: str, needed: tuple[Argument, ...]) -> str:
        """A launch for all steps of a chunk at once: a program for each block of rows, step, and part of the features."""
        name = self.functions(("flat", *flat_key(kernel)), f"{self.name}_{kernel.name}_of_all")
        own = (Argument("call", "first", "first"),)
        lines = [
            *_signature(name, (*own, *needed)),
            "    row_block, column = tl.program_id(0), tl.program_id(2)",
            "    step = first + tl.program_id(1)",
            "    rows = tl.load(counts + step)",
            *_call(function, needed, 1),
        ]
        self.pieces.append("\n".join(lines))
        self.arguments[name] = (*own, *needed)
        return name

    # names of arguments

    def size(self, dim: Dim) -> Argument:
        text = str(dim)
        return Argument(
            "size",
            text,
            self.names(("size", text), "size_" + text.replace(" + ", "_plus_").replace(" - ", "_minus_").replace("/", "_over_")),
        )

    def weight(self, name: str) -> Argument:
        return Argument("weight", name, self.names(("weight", name), f"{identifier(name)}_ptr"))

    def tiles(self, terms: Sequence[Term], block: int, scattered: bool = False) -> Argument:
        """What a program holds, for a block of features, of the weights that are multiplied at once: features of the operand,
        or, where products are scattered, of their sum.
        """
        of = " ".join(f"{term.weight} transposed" if term.transposed else term.weight for term in terms)
        of += " scattered" if scattered else ""
        name = self.names(("tile", of, block), f"weights_of_{identifier(terms[0].operand)}_{block}")
        self.held[name] = tuple(terms), block, scattered
        return Argument("local", f"{of} {block}", name)

    def scatter(self, scatter: Scatter) -> Argument:
        return Argument("scatter", scatter.name, self.names(("scatter", scatter.name), f"{identifier(scatter.name)}_ptr"))

    def load_of(self, term: Term, use: Callable[[Argument], str], k: str = "k[:, None]", feature: str = "feature") -> str:
        """A tile of a term's weight: some features `k` of the operand by some `feature` of the result."""
        rows, columns = self.weights[term.weight].shape
        features, depth = (columns * term.heads, rows) if term.transposed else (rows, columns * term.heads)
        address, of_row = use(self.weight(term.weight)), use(self.columns(term.weight))
        row, column = (k, feature) if term.transposed else (feature, k)
        mask = f"({k} < {use(self.size(depth))}) & ({feature} < {use(self.size(features))})"
        if term.heads > 1:
            of_result, of_operand = self.blocks_of(term, use)
            mask += f" & ({k} // {of_operand} == {feature} // {of_result})"
            column += f" % {of_result if term.transposed else of_operand}"
        return f"tl.load({address} + {row} * {of_row} + {column}, mask={mask}, other=0.0)"

    def blocks_of(self, term: Term, use: Callable[[Argument], str]) -> tuple[str, str]:
        """Of a block-diagonal weight, the features of a block of the result, and of the operand."""
        rows, columns = self.weights[term.weight].shape
        sides = f"({use(self.size(rows))} // {term.heads})", use(self.size(columns))
        return sides if not term.transposed else (sides[1], sides[0])

    def columns(self, name: str) -> Argument:
        return Argument("columns", name, self.names(("columns", name), f"{identifier(name)}_columns"))

    def buffer(self, name: str) -> tuple[Argument, Argument, Argument]:
        kinds = (("buffer", "ptr"), ("step", "step"), ("row", "row"))
        address, of_step, of_row = (Argument(k, name, self.names((k, name), f"{identifier(name)}_{end}")) for k, end in kinds)
        return address, of_step, of_row

    def flag(self, kind: str, buffer: str) -> Argument:
        return Argument(kind, buffer, self.names((kind, buffer), f"{identifier(buffer)}_{kind}"))


def _signature(name: str, arguments: Sequence[Argument]) -> list[str]:
    plain = [a.name for a in arguments if a.kind != "adds"]
    constants = [f"{a.name}: tl.constexpr" for a in arguments if a.kind == "adds"] + [f"{b}: tl.constexpr" for b in BLOCKS]
    return [f"@triton.jit(do_not_specialize={unspecialised(arguments)})\ndef {name}(", *filled([*plain, *constants], 1), "):"]


def _call(function: str, arguments: Sequence[Argument], depth: int) -> list[str]:
    plain = [*LOCAL, *(a.name for a in arguments if a.kind != "adds")]
    constants = [a.name for a in arguments if a.kind == "adds"]
    return [INDENT * depth + f"{function}(", *filled([*plain, *constants, *BLOCKS], depth + 1), INDENT * depth + ")"]


def write(
    program: Program, weights: Sequence[Weight], name: str, holds: int = 0, scatters: bool = False, late: bool = False
) -> Code:
    """The text of a program; `holds`: in how many blocks its launches hold the weights of the steps, see `Blocks`; `scatters`:
    whether they scatter sums; `late`: whether they multiply in the steps what is known before.
    """
    return Writer(program, weights, identifier(name), holds, scatters, late).code()
