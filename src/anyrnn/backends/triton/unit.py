"""One layer in one direction: what its launches are given, and the products beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anyrnn.backends.triton import choosing, launch, products
from anyrnn.backends.triton.device import interpreted
from anyrnn.backends.triton.launch import Kernels
from anyrnn.backends.triton.lower import Early
from anyrnn.backends.triton.memory import Chunk, Run, Window, brought, counters, keep, of_states
from anyrnn.backends.triton.names import OF_STATES
from anyrnn.backends.triton.products import Outer, Product, Summed, Total
from anyrnn.backends.triton.split import Blocks
from anyrnn.backends.triton.text import flat_key
from anyrnn.ir.dims import Dim
from anyrnn.ir.philox import Randomness, threshold
from anyrnn.passes.plan import Kernel, Stage
from anyrnn.sequence.network import Network


class Choices(NamedTuple):
    """What kernels read for the random choices of a call."""

    seed: Tensor
    """one int64"""
    places: tuple[Tensor, Tensor] | None
    """of packed rows, the caller's sample and step"""


@dataclass
class Unit:
    """One layer in one direction: everything a program's launches are given."""

    network: Network
    which: str
    layer: int
    direction: int
    run: Run
    dtype: torch.dtype
    sources: Mapping[str, Tensor]
    randomness: Randomness | None
    choices: Choices | None
    tensors: dict[str, Tensor] = field(default_factory=dict)
    """by buffer: sequences [T, N, F], or [rows, F] where steps have different rows; what stands between steps [slots, N, F]"""
    states: dict[str, Tensor | float] = field(default_factory=dict)
    """what goes from step to step, as it is before the steps that are still to be done: [N, F], or one number"""
    last: dict[str, Tensor] = field(default_factory=dict)
    """where the caller wants what goes from step to step as it is behind all of them, [N, F] in rows"""
    adds: set[str] = field(default_factory=set)
    """outputs that are added to what is there"""
    gradients: Mapping[str, Tensor] | None = None
    """by source, memory for them; None where they are not wanted"""
    cotangent: tuple[int, int] = (0, 0)
    """the steps of the run that have the output's cotangent"""

    def __post_init__(self) -> None:
        self.kind = self.network, self.which, self.layer, self.run.extent, self.dtype, self.run.device
        self._choose()
        self.lowered = self.kernels.lowered
        self.program = self.lowered.program  # equal to the plan's own, whose kernels may be other objects
        self.sizes = self.network.layer_sizes(self.layer)
        self.weights = {w.name: w for w in self.network.plan.phase.weights}
        self.device = self.run.device
        self.window = self.run.windows(None)[0]
        self.state_dtype = of_states(self.dtype)
        self.values: dict[tuple[str, str], Any] = {}
        self.made: set[str] = set()
        """the sources whose gradients hold something"""

    def _choose(self) -> None:
        self.blocks = choosing.blocks_of(*self.kind)
        blocks = self.blocks
        how = blocks.scans, blocks.holds, blocks.scatters, blocks.late
        self.kernels: Kernels = launch.kernels(self.network.plan, self.which, *how)

    # memory

    def size(self, dim: Dim | None) -> int:
        return 1 if dim is None else dim.evaluate(self.sizes)

    def weight(self, name: str) -> Tensor:
        return self._rows_of(name, self.sources)

    def _rows_of(self, weight: str, arrays: Mapping[str, Tensor]) -> Tensor:
        """A weight's own rows of its source, or of what has its form."""
        w = self.weights[weight]
        if not w.shape or w.parameter is None:
            return arrays[w.source]
        begin = w.offset.evaluate(self.sizes)
        return arrays[w.source][begin : begin + w.shape[0].evaluate(self.sizes)]

    def new_states(self, size: int, steps: int) -> Tensor:
        """Room for a state: two steps in turn; for scans, before every step of so many and after the last."""
        return self.new(steps + 1 if self.program.scans else 2, self.run.extent.rows, size, of_states=True)

    def new(self, *shape: int, of_states: bool = False) -> Tensor:
        return torch.empty(shape, dtype=self.state_dtype if of_states else self.dtype, device=self.device)

    def make_room(self, longest: int) -> None:
        """Memory for what the program needs beside what it is given; chunks have at most so many rows."""
        rows = self.run.extent.rows
        coefficients = {name for scan in self.program.scans for name in scan.coefficients}
        for buffer in self.program.buffers:
            size = self.size(buffer.dim)
            if buffer.name in self.tensors:
                continue
            if buffer.name in coefficients:  # which would be rounded to 16 bits
                self.tensors[buffer.name] = self.new(longest, size, of_states=True)
            if buffer.role in ("cross", "state"):
                self.tensors[buffer.name] = self.new(2, rows, size, of_states=True)
            elif buffer.role == "chunk" and buffer.dim is None:
                self.tensors[buffer.name] = self.new(longest, size, of_states=True)
        sums = self._added_up()
        if sums:
            width = sum(self.size(dim) for _, dim in sums)
            self.put_side_by_side(sums, torch.zeros(rows, width, dtype=self.state_dtype, device=self.device))
        if self.blocks.scatters:
            self.make_room_between_programs()
        for group in self._neighbours():
            self.put_side_by_side(group, self.new(longest, sum(self.size(dim) for _, dim in group)))

    def put_side_by_side(self, buffers: Sequence[tuple[str, Dim | None]], whole: Tensor) -> None:
        """In columns of memory for all of them."""
        begin = 0
        for name, dim in buffers:
            self.tensors[name] = whole[:, begin : begin + self.size(dim)]
            begin += self.size(dim)

    def _added_up(self) -> list[tuple[str, Dim | None]]:
        """What steps add up, in the order of the gradients that it is summed for (see `products`); numbers come last."""
        of = {s.value[0]: s.weight for s in reversed(self.program.sums)}
        places = {name: self._place_of(weight) for name, weight in of.items()}
        sums = [buffer for buffer in self.program.buffers if buffer.role == "sum"]
        return [(b.name, b.dim) for b in sorted(sums, key=lambda b: (b.dim is None, places[b.name]))]

    def _place_of(self, weight: str) -> tuple[int, int]:
        """Which of the sources it is a part of, and from which row on."""
        found = self.weights[weight]
        return [*self.sources].index(found.source), found.offset.evaluate(self.sizes)

    def make_room_between_programs(self) -> None:
        """For what programs of the same rows make for each other, in two steps."""
        tiles = 2 * self.row_blocks() * self.blocks.columns**2
        for scatter in self.lowered.scatters.values():
            size = tiles * self.blocks.rows * self.blocks.features
            self.values["scatter", scatter.name] = self.new(size, of_states=True)

    def _neighbours(self) -> list[list[tuple[str, Dim | None]]]:
        """What is kept for a chunk, by the matrix that it is multiplied with or a sum of products of, in the order of its rows:
        so that products are of neighbours (see `products`).
        """
        groups: dict[object, list[tuple[int, str, Dim]]] = {}

        def add(name: str, dim: Dim, weight: str | None) -> None:
            key = (self.weights[weight].source, name in earlies) if weight else name
            place = self.weights[weight].offset.evaluate(self.sizes) if weight else 0
            groups.setdefault(key, []).append((place, name, dim))

        outside = (*self.program.before, *self.program.after)
        given = {name for stage in outside for name in self._given_room(stage)}
        needed = [*self.lowered.of_stages(self.lowered.loop), *(early for stage in outside for early in self._needed(stage))]
        earlies = {early.name: early for early in needed if early.name not in given}
        for early in earlies.values():
            plain = [t for t in early.terms if not t.transposed]
            add(early.name, early.dim, plain[0].weight if plain else None)
        multiplied = {p.left[0]: p.weight for p in reversed(self.program.products)}
        for buffer in self.program.buffers:
            if buffer.role == "chunk" and buffer.dim is not None and buffer.name not in self.tensors:
                add(buffer.name, buffer.dim, multiplied.get(buffer.name))
        return [[(name, dim) for _, name, dim in sorted(group, key=lambda g: g[:2])] for group in groups.values()]

    # arguments of launches

    def prepare(self) -> None:
        """All that is the same for all launches."""
        counts, given = self.run.tables
        slot_first, slot_sign = self.window.slots
        values = self.values
        of_call = {
            "counts": counts, "given": given, "slot_first": slot_first, "slot_sign": slot_sign,
            "saved_first": self.window.first_unit,
            "cotangent_from": self.cotangent[0], "cotangent_to": self.cotangent[1],
            "all_rows": self.run.extent.rows,
        }  # fmt: skip
        of_call["sample_table"] = of_call["step_table"] = given
        if self.choices is not None:
            of_call["seed"] = self.choices.seed
            if self.choices.places is not None:
                of_call["sample_table"], of_call["step_table"] = self.choices.places
        values |= {("call", name): value for name, value in of_call.items()}
        for code in self.kernels.code.arguments.values():
            for a in code:
                if a.kind == "size":
                    values["size", a.of] = Dim.parse(a.of).evaluate(self.sizes)
                elif a.kind == "weight":
                    values["weight", a.of] = self.weight(a.of)
                elif a.kind == "columns":
                    values["columns", a.of] = self.weight(a.of).shape[1]
                elif a.kind in ("stream", "threshold", "scale", "probability"):
                    values[a.kind, a.of] = self._chance(a.kind, a.of)
                elif a.kind == "adds":
                    values["adds", a.of] = a.of in self.adds
        roles = {b.name: b.role for b in self.program.buffers} | {e.name: "chunk" for e in self.lowered.earlies.values()}
        for name, tensor in self.tensors.items():
            values["buffer", name] = tensor
            values["slots", name] = 1 if len(tensor) == 2 and roles[name] in ("state", "cross") else -1
            values["step", name], values["row", name] = self._distances(tensor, roles[name])
        for b in self.program.buffers:
            if b.name not in self.tensors:
                values["step", b.name] = values["row", b.name] = 0
                values["buffer", b.name] = None if b.role != "cotangent" else given

    def _distances(self, tensor: Tensor, role: str) -> tuple[int, int]:
        if tensor.dim() == 3:
            return tensor.stride(0), tensor.stride(1)
        return (0 if role == "sum" else tensor.stride(0) * self.run.extent.unit_rows), tensor.stride(0)

    def _chance(self, kind: str, choice: str) -> Any:
        assert self.randomness is not None
        chances = self.randomness.at(self.layer, self.direction, 0)
        if kind == "stream":
            return chances.stream(choice)
        if kind == "threshold":
            return threshold(chances.probability(choice))
        return self._number(chances.scale(choice) if kind == "scale" else chances.probability(choice), self.state_dtype)

    def _number(self, number: float, dtype: torch.dtype) -> Tensor:
        """That kernels load."""
        found = _on_device(number, dtype, self.device)
        keep(self.device, found, found)
        return found

    def launch(self, name: str, grid: Sequence[int], blocks: Blocks, **how: Any) -> None:
        precision = choosing.precision(self.dtype, self.device)
        constants = blocks.constants(self.dtype, precision, self.run.extent.counts is not None)
        self.kernels.launch(name, grid, self.values, constants, **how)

    def row_blocks(self) -> int:
        return -(-self.run.extent.rows // self.blocks.rows)

    # the program

    def run_window(self, window: Window) -> None:
        """The steps of a window, chunk by chunk."""
        if not self.values:  # it is the first
            self.make_room(max((c.total for c in self.window.chunks(self.program.reverse)), default=0))
        self.window = window
        self.prepare()
        behind = self._give_states(window)
        chunks = window.chunks(self.program.reverse)
        keep(self.device, (self.run, chunks), *self.run.tables, *(chunk.table for chunk in chunks))
        for chunk in chunks:
            self.values["call", "chunk_first"] = chunk.units[0]
            self.values |= {("call", "begins"): int(chunk is chunks[0]), ("call", "ends"): int(chunk is chunks[-1])}
            for stage in self.program.before:
                self.flat(stage, chunk)
            if self.program.scans:
                self.scans(chunk)
            else:
                self.make_early(self.lowered.of_stages(self.lowered.loop), chunk)
                self.steps(chunk)
            for stage in self.program.after:
                self.flat(stage, chunk)
            if self.gradients is not None:
                self.add_gradients(chunk, self.gradients)
        if chunks:
            self.states |= behind

    def _give_states(self, window: Window) -> dict[str, Tensor]:
        """To launches: the states before a window, and memory for those behind it, which is returned. If that is not behind all
        steps, it holds all their bits.
        """
        for name, first in (("first_slot", True), ("last_slot", False)):
            self.values["call", name] = window.border(first, self.program.reverse)
        is_whole, behind = (window.begin, window.end) == (0, self.run.extent.steps), {}
        for state, values in self.states.items():
            room = self.last.get(state) if is_whole else None
            if room is None:
                room = self.new(*self.tensors[state].shape[1:], of_states=not is_whole)
            if isinstance(values, Tensor):
                given = values, *values.stride(), room
            else:  # the usual ones have the dtype of states that are given, so that both are one program
                number = self._number(values, self.dtype if values in (0.0, 1.0) else self.state_dtype)
                given = number, 0, 0, room
            self.values |= {(kind, state): value for kind, value in zip(OF_STATES, given, strict=True)}
            behind[state] = room
        return behind

    def finish(self) -> None:
        """Behind all windows: give the last states, and what all steps have added up."""
        for state, room in self.last.items():
            values = self.states[state]
            if values is not room:
                room[:] = values
        if self.gradients is not None:
            self.add_sums(self.gradients)

    def steps(self, chunk: Chunk) -> None:
        """In the loop. Where Triton finds less room on chip than was reckoned with, no sums are scattered, or weights
        are read, or not ahead, from then on.
        """
        from triton.runtime.errors import OutOfResources

        try:
            self._loop(chunk)
        except OutOfResources:
            refused = self.blocks
            choosing.refuse(refused, *self.kind)
            self._choose()
            if self.blocks == refused:
                raise
            self.prepare()
            self.values["call", "chunk_first"] = chunk.units[0]
            self.steps(chunk)

    def _loop(self, chunk: Chunk) -> None:
        counter = counters(self.device, self.row_blocks())
        segments = {("call", "segments"): chunk.table, ("call", "segment_count"): len(chunk.table)}
        self.values |= {**segments, ("call", "counter"): counter}
        blocks, how = self.blocks, dict[str, Any]()
        if not interpreted():
            together = blocks.columns > 1 and self.program.waits  # all programs have to be there at the same time
            how = {"num_warps": blocks.warps, "num_stages": blocks.stages, "launch_cooperative_grid": together}
        assert self.kernels.code.loop is not None
        self.launch(self.kernels.code.loop, (self.row_blocks() * blocks.columns,), blocks, **how)

    def scans(self, chunk: Chunk) -> None:
        """The states of all steps of a chunk, from their coefficients."""
        first = chunk.end - 1 if self.program.reverse else chunk.begin
        self.values |= {("call", "first"): first, ("call", "count"): chunk.end - chunk.begin}
        for scan, name in zip(self.program.scans, self.kernels.code.scans, strict=True):
            features = self.size(self.program.buffer(scan.states[0]).dim)
            constants = self.blocks.of_scans(self.dtype)
            grid = (self.run.extent.rows, -(-features // constants["BLOCK_F"]))
            self.kernels.launch(name, grid, self.values, constants)

    def flat(self, stage: Stage, chunk: Chunk) -> None:
        """A stage outside of the steps, for all those of a chunk at once."""
        self._make_room_of(stage, chunk)
        self.make_early(self._needed(stage), chunk)
        for kernel in filter(self._is_wanted, stage.kernels):
            if self.lowered.is_product(kernel):
                self.store_products(kernel, chunk)
                continue
            self.values["call", "first"] = chunk.begin
            blocks = Blocks()
            parts = 1 if kernel.dim is None else -(-self.size(kernel.dim) // blocks.features)
            grid = -(-self.run.extent.rows // blocks.rows), chunk.end - chunk.begin, parts
            self.launch(self.kernels.code.flat[flat_key(kernel)], grid, replace(blocks, columns=parts))

    def _is_wanted(self, kernel: Kernel) -> bool:
        """Whether any of what a kernel makes is: gradients may not be."""
        return any(buffer in self.tensors or self._role(buffer) != "output" for _, buffer, _ in kernel.stores)

    def _needed(self, stage: Stage) -> list[Early]:
        """The sums of products that a stage outside of the steps begins from."""
        kernels = filter(self._is_wanted, stage.kernels)
        earlies = [self.lowered.sum_of(kernel, node).early for kernel in kernels for node in kernel.affines]
        return list(dict.fromkeys(filter(None, earlies)))

    def _given_room(self, stage: Stage) -> dict[str, str]:
        """Of sums of products that the caller is given as they stand, by name the buffer."""
        kernels = filter(self.lowered.is_product, stage.kernels)
        stores = [(self.lowered.sum_of(kernel, node).early, buffer) for kernel in kernels for node, buffer, _ in kernel.stores]
        given = [(early, buffer) for early, buffer in stores if buffer in self.tensors and self._role(buffer) == "output"]
        of_loop = self.lowered.of_stages(self.lowered.loop)  # which have room for one chunk after the other
        return {
            early.name: buffer
            for early, buffer in given
            if early is not None and early not in of_loop and buffer not in self.adds
        }

    def _make_room_of(self, stage: Stage, chunk: Chunk) -> None:
        """The caller's memory, where its rows stand evenly."""
        for name, buffer in self._given_room(stage).items():
            rows = self.rows(buffer, 0, chunk)
            if rows.dim() == 3 and rows.stride(0) != rows.shape[1] * rows.stride(1):
                rows = self.new(*rows.shape)
            self.tensors[name] = rows.flatten(0, -2)

    def store_products(self, kernel: Kernel, chunk: Chunk) -> None:
        """What is a sum of products as it stands."""
        for node, buffer, _ in kernel.stores:
            if buffer not in self.tensors:
                continue
            early = self.lowered.sum_of(kernel, node).early
            assert early is not None
            found, into = self.tensors[early.name][: chunk.total], self.rows(buffer, 0, chunk)
            if found.data_ptr() == into.data_ptr():
                continue
            if buffer in self.adds:
                into += found.view(into.shape)
            else:
                into.copy_(found.view(into.shape))

    def rows(self, buffer: str, later: int, chunk: Chunk) -> Tensor:
        """What a buffer has of the steps of a chunk, in the caller's order; [rows, F], or a view [T, N, F]."""
        tensor, role = self.tensors[buffer], self._role(buffer)
        if role == "chunk":
            assert not later
            return tensor[: chunk.total]
        if tensor.dim() == 3 and role in ("state", "saved", "history"):
            return chunk.history(tensor, later, self.window)
        assert not later
        first = self.window.first_unit if role == "saved" else 0
        return tensor[slice(*chunk.units)] if tensor.dim() == 3 else tensor[chunk.rows(first)]

    def _role(self, buffer: str) -> str:
        if any(e.name == buffer for e in self.lowered.earlies.values()):
            return "chunk"
        return self.program.buffer(buffer).role

    def operand(self, buffer: str, later: int, chunk: Chunk) -> Tensor:
        """The same as a matrix [rows, F], where nothing was given zeros."""
        if buffer not in self.tensors:
            return self.new(chunk.total, self.size(self.program.buffer(buffer).dim)).zero_()
        found = self.rows(buffer, later, chunk)
        if self._role(buffer) == "cotangent" and self.cotangent != (0, self.run.extent.steps):
            steps = [s for s in range(*self.cotangent) if chunk.begin <= s < chunk.end]
            whole = torch.zeros(chunk.end - chunk.begin, *found.shape[1:], dtype=found.dtype, device=found.device)
            first = min(self.run.caller(chunk.begin), self.run.caller(chunk.end - 1))
            for s in steps:
                whole[self.run.caller(s) - first] = self.tensors[buffer][self.run.caller(s)]
            found = whole
        return found.reshape(-1, found.shape[-1]).to(self.dtype)

    def make_early(self, earlies: Sequence[Early], chunk: Chunk) -> None:
        """Biases and products, for all steps of a chunk."""
        operands: dict[tuple[str, int], Tensor] = {}

        def operand(of: tuple[str, int]) -> Tensor:
            if of not in operands:
                operands[of] = self.operand(*of, chunk)
            return operands[of]

        def total(early: Early) -> Total:
            terms = sorted(early.terms, key=lambda t: self._place_of(t.weight))
            made = [Product(operand((t.operand, t.later)), self.weight(t.weight), t.transposed, t.heads) for t in terms]
            return Total(self.tensors[early.name][: chunk.total], tuple(map(self.weight, early.biases)), tuple(made))

        for one in products.totals([total(early) for early in earlies]):
            one.make()

    # gradients of weights

    def add_gradients(self, chunk: Chunk, into: Mapping[str, Tensor]) -> None:
        """The terms of a chunk to the gradients of the sources; the first chunk makes these."""
        read = (of for of in self.program.read_by_gradients if not self.program.is_sum(of[0]))
        found = {of: self.operand(*of, chunk) for of in dict.fromkeys(read)}
        outers = [Outer(self._rows_of(p.weight, into), found[p.left], found[p.right], p.heads) for p in self.program.products]
        parts: list[Outer | Summed] = [*products.outers(outers), *self._sums(found, into)]
        weights = {p.weight for p in self.program.products} | {s.weight for s in self.program.sums if s.value in found}
        products.make_gradients(parts, self._unmade({self.weights[weight].source for weight in weights}, into))

    def add_sums(self, into: Mapping[str, Tensor]) -> None:
        """What all steps have added up."""
        found = {s.value: self.tensors[s.value[0]] for s in self.program.sums if self.program.is_sum(s.value[0])}
        products.make_gradients(self._sums(found, into), self._unmade({*into}, into))

    def _unmade(self, sources: set[str], into: Mapping[str, Tensor]) -> list[Tensor]:
        """The gradients of those of some sources that nothing was added to yet; it is from now on."""
        found = [name for name in into if name in sources - self.made]
        self.made |= {*found}
        return [into[name] for name in found]

    def _sums(self, values: Mapping[tuple[str, int], Tensor], into: Mapping[str, Tensor]) -> list[Summed]:
        parts = []
        for of in self.program.sums:
            if of.value in values:
                part, value = self._rows_of(of.weight, into), values[of.value]
                parts.append(Summed(part, value if part.dim() else value.sum(1)))
        return products.sums(parts)


@lru_cache(maxsize=64)
def _on_device(number: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number that kernels load, brought there once."""
    return brought(torch.tensor([number], dtype=dtype, device="cpu"), device)
