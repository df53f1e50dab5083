"""The words of a call of a whole network: where all arrays stand, and how kernels go through them. They are made once for a shape
of call, in the order of the methods of `Words`; what calls of one shape may differ in, the steps of their samples, is `fit`.

A call differs from the last one of its shape in addresses only. So Python writes the addresses of the caller's arrays and of the
scratch memory into one small array, and the native code begins by adding their offsets and putting them into the argument
blocks.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anyrnn._memory import ALIGNMENT
from anyrnn.backends.llvm import split, threads
from anyrnn.backends.llvm.block import first_of, last_of
from anyrnn.backends.llvm.call_shape import CallShape, Strides
from anyrnn.backends.llvm.driver import Code
from anyrnn.backends.llvm.element import Element
from anyrnn.backends.llvm.extent import BEFORE, TABLES, Extent
from anyrnn.backends.llvm.fold import folded
from anyrnn.backends.llvm.memory import Arena
from anyrnn.backends.llvm.split import Work
from anyrnn.backends.llvm.stack import BARRIERS_BYTES, STACK, STACK_WORDS
from anyrnn.backends.llvm.unit import Unit
from anyrnn.passes.plan import Program, Stage
from anyrnn.sequence.network import Network
from anyrnn.sequence.packing import Integers


@dataclass(frozen=True)
class Place:
    """Where an array begins: offset bytes from base number `base`; with its strides."""

    base: int
    offset: int
    strides: Strides

    def shifted(self, bytes: int) -> Place:
        return Place(self.base, self.offset + bytes, self.strides)


class Words:
    """The words of calls of one shape, as far as they do not depend on how the work is divided over threads."""

    def __init__(self, network: Network, shape: CallShape, code: Code) -> None:
        self.network, self.shape, self.extent = network, shape, shape.extent
        self.program: Program = getattr(network.plan, shape.which)
        self.element = code.element
        scratch, reserve, fixed, packed = Arena(), Arena(), Arena(), Arena()
        self.units = [
            Unit(network, shape, code, unit, scratch, reserve, fixed, packed, packed if shape.constant else scratch)
            for unit in network.units
        ]
        backward = shape.which == "backward"
        self.order = sorted(range(len(self.units)), key=lambda u: (-network.units[u][0] if backward else 0, u))
        self.starts = self._block_starts()
        self.table: dict[int, tuple[int, int]] = {}
        """by word, (base, offset): what the native code puts into the blocks"""
        self.pointers: dict[int, tuple[str, int]] = {}
        """by word, (array, offset): the words that are addresses in an array of ours, see `arrays`"""
        self._number_bases()
        self.arrays = {"words": self.address, "bases": self.bases.buffer_info()[0]}
        """where arrays of ours stand that native code reads"""
        between = self._between(scratch, reserve)
        nowhere = self._nowhere(scratch)
        again = shape.which == "training" and shape.output is None
        self.discarded = self._discarded(scratch) if again else None
        self.seconds: list[tuple[int, str, Place | None]] = []
        """of second directions the unit, the gradient that they add to the first one's, and where that stands"""
        self.beside = self._beside(scratch)
        barriers = fixed.take(0 if code.machine.one_thread else BARRIERS_BYTES)
        self.own_bytes = scratch.bytes
        self.packed_bytes = packed.bytes if any(unit.in_packed for unit in self.units) else 0
        self.fixed = np.zeros(fixed.bytes + ALIGNMENT, np.uint8)
        self.arrays["fixed"] = -(-self.fixed.ctypes.data // ALIGNMENT) * ALIGNMENT
        self.tables: dict[int, Integers] = {d: np.zeros((len(TABLES), shape.extent.words), np.int64) for d in network.ways}
        """by direction, see `extent`"""
        placed = shape.extent.rows if shape.extent.counts is None else shape.extent.total
        self.places: dict[int, Integers] = {d: np.zeros((placed, 2), np.int64) for d in network.ways}
        """by direction, the sample and the step of each packed row, or of each row the step at t = 0"""
        for direction in network.ways:
            self.arrays[f"tables {direction}"] = self.tables[direction].ctypes.data
            self.arrays[f"places {direction}"] = self.places[direction].ctypes.data
        self._fill_stack(barriers)
        self._fill_units()
        self._fill_sequences(between, nowhere)
        self._fill_states()
        self._fill_sources()
        self._finish()
        at_once = self._at_once() and (self.beside is not None or folded(self.program) is None)
        self.directions = network.directions if at_once else 1
        """that may be run at once"""

    def fit(self, extent: Extent) -> None:
        """For a batch that the shape's extent is room for."""
        room = self.shape.extent
        assert extent.rows == room.rows
        assert extent.steps <= room.steps
        assert extent.total <= room.total
        self.extent = extent
        for direction, tables in self.tables.items():
            tables[:, : extent.words] = extent.tables(direction > 0)
        for unit in range(len(self.units)):
            self.set_header(unit, "steps", extent.steps)
            for name, step in zip(("cotangent_from", "cotangent_to"), self._span_of(unit), strict=True):
                self.set_header(unit, name, step)
        self.work = self._work(self.directions)
        self.set_call_word("chunk_to", extent.steps)

    def _block_starts(self) -> list[int]:
        starts = [STACK_WORDS + len(self.units)]
        for unit in self.units:
            starts.append(starts[-1] + unit.layout.words)
        self.words = np.zeros(starts[-1], np.int64)
        self.address = self.words.ctypes.data
        self.view = memoryview(self.words.data)
        return starts[:-1]

    def _number_bases(self) -> None:
        """Give each array of the caller its number."""
        shape, count = self.shape, 0

        def number(present: Sequence[Strides | None]) -> list[int | None]:
            nonlocal count
            numbers: list[int | None] = []
            for strides in present:
                numbers.append(None if strides is None else count)
                count += strides is not None
            return numbers

        self.inputs = number(shape.inputs)
        (self.output,) = number([shape.output])
        self.first, self.last = number(shape.first), number(shape.last)
        self.more = list(range(count, count + len(shape.more)))
        count += len(shape.more)
        self.d_inputs = number(shape.d_inputs)
        self.further = count
        self.sources = count + shape.anywhere
        self.d_sources = self.sources + len(self.units) * len(self.network.sources)
        self.reserve = self.d_sources + (len(self.units) * len(self.network.sources) if shape.gradients else 0)
        self.scratch = self.reserve + (shape.which != "inference")
        self.packed = self.scratch + 1
        self.bases = array("q", [0] * (self.packed + 1))
        self.put_bases = struct.Struct(f"{self.packed + 1}q").pack_into

    # memory

    def _between(self, scratch: Arena, reserve: Arena) -> dict[str, list[Place]]:
        """What passes from layer to layer: outputs (in the reserve of a training call), and cotangents."""
        network = self.network
        row = _between_row(network, self.element)
        places: dict[str, list[Place]] = {"y": [], "d_y": []}
        for _ in range(network.layers - 1):
            if self.shape.which != "inference":
                places["y"].append(self._new_sequence(self.reserve, reserve, row))
            if self.shape.which != "training":
                name = "y" if self.shape.which == "inference" else "d_y"
                places[name].append(self._new_sequence(self.scratch, scratch, row))
        return places

    def _discarded(self, arena: Arena) -> Place:
        """Room for outputs that are there already, one step in the place of the other."""
        nodes, sizes = self.network.graph.nodes, dict(self.network.sizes)
        of_outputs = [nodes[i].shape for _, i in self.network.graph.more_outputs]
        features = [self.network.width, *(shape[0].evaluate(sizes) if shape else 1 for shape in of_outputs)]
        row = max(features) * self.element.bytes
        return Place(self.scratch, arena.take(self.shape.extent.rows * row), (0, row))

    def _new_sequence(self, base: int, arena: Arena, row: int) -> Place:
        """Room for rows of so many bytes at every step."""
        extent = self.shape.extent
        step = extent.rows * row if extent.counts is None else row
        return Place(base, arena.take(extent.total * row), (step, row))

    def _at_once(self) -> bool:
        """Whether the directions of a layer may be run at once: they need nothing of each other but the sum of their gradients of
        one input.
        """
        one_input = self.shape.which != "backward" or len(self.network.graph.inputs) == 1
        return self.network.directions > 1 and one_input and self.shape.windows is None and self.discarded is None

    def _beside(self, scratch: Arena) -> Place | None:
        """Room for second directions' gradients of their input, one layer's after the other's, if directions are run at once."""
        given, network = folded(self.program), self.network
        if given is None or not self._at_once():
            return None
        most, work = max(threads.default(), network.directions), self._work(network.directions)
        uneven = self.shape.extent.counts is not None  # whether columns are split depends on the batch
        if not (work.may_be_abreast(most) if uneven else work.abreast(most) > 1):
            return None
        features = max(given[1].evaluate(network.layer_sizes(layer)) for layer in range(network.layers))
        return self._new_sequence(self.scratch, scratch, features * self.element.bytes)

    def _nowhere(self, scratch: Arena) -> dict[str, Place]:
        """Room for inputs' gradients that nobody wants, but that are made beside other things."""
        places = {}
        for (name, size), strides in zip(self.network.graph.inputs, self.shape.d_inputs, strict=False):
            if strides is None and f"d_{name}" in self._made_anyway():
                row = size[0].evaluate(dict(self.network.sizes)) * self.element.bytes
                places[name] = self._new_sequence(self.scratch, scratch, row)
        return places

    def _made_anyway(self) -> set[str]:
        """The buffers that are stored in the steps, or by a kernel that stores something else too."""
        program = self.program
        found = used_by([*program.body, *(s for s in (program.entry,) if s)])
        for kernel in (k for stage in (*program.before, *program.after) for k in stage.kernels):
            stored = {buffer for _, buffer, _ in kernel.stores}
            found |= stored if len(stored) > 1 else set()
        return found

    # words

    def _fill_stack(self, barriers: int) -> None:
        self._point(STACK.index("barriers"), "fixed", barriers)
        for position, unit in enumerate(self.order):
            self._point(STACK_WORDS + position, "words", 8 * self.starts[unit])

    def _fill_units(self) -> None:
        for unit, start in zip(self.units, self.starts, strict=True):
            self.words[start : start + unit.layout.words] = unit.words
            for name in ("zeros", "further"):
                self._point(start + unit.layout.header(name), "fixed", int(unit.words[unit.layout.header("zeros")]))
            self._point(start + unit.layout.header("places"), f"places {unit.direction}")
            for word, name in unit.tables:
                self._point_to_table(start + word, unit, name)
            for base, words in ((self.scratch, unit.in_scratch), (self.reserve, unit.in_reserve), (self.packed, unit.in_packed)):
                self.table |= {start + i: (base, int(unit.words[i])) for i in words}

    def _point(self, word: int, array: str, offset: int = 0) -> None:
        """Set a word to an address in one of our arrays."""
        self.pointers[word] = array, offset
        self.view[word] = self.arrays[array] + offset

    def _point_to_table(self, word: int, unit: Unit, name: str) -> None:
        """Set a word to the address of the word of step 0 in one of a unit's tables."""
        row, item = self.tables[unit.direction].strides
        self._point(word, f"tables {unit.direction}", TABLES.index(name) * row + BEFORE * item)

    def _put(self, word: int, place: Place | None) -> None:
        """Set a word to an address, which comes from the call's bases."""
        if place is None:
            self.view[word] = 0
        else:
            self.table[word] = place.base, place.offset

    def _sequence(self, unit: int, buffer: str, place: Place | None) -> None:
        start = self.starts[unit] + self.units[unit].layout.buffer(buffer)
        direction = self.units[unit].direction
        self._put(start, place)
        self._point_to_table(start + 5, self.units[unit], "given")  # it is looked at, whether there is an array or not
        if place is not None:
            step, row = place.strides
            if self.shape.extent.rows == 1 and self.shape.extent.counts is None:  # then steps follow each other like rows
                row = -step if direction else step
            self.words[start + 1 : start + 5] = (-1, step, row, self.element.panel_row)

    def stands_at(self, unit: int, buffer: str) -> int:
        """Where a buffer's first step stood in the last call."""
        base, offset = self.table[self.starts[unit] + self.units[unit].layout.buffer(buffer)]
        return self.bases[base] + offset

    def stand_anywhere(self, unit: int, buffer: str, one: Words, table: int) -> None:
        """Find the steps of a buffer by a table of their addresses. Each stands as in calls of one step, of which `one` is; all
        that is found so has nothing to do with how rows follow each other.
        """
        start = self.starts[unit] + self.units[unit].layout.buffer(buffer)
        self.table.pop(start, None)
        row_bytes, panel_bytes = one.words[start + 3 : start + 5]
        self.words[start : start + 6] = (0, -1, 1, row_bytes, panel_bytes, table)
        self.flat_after[unit] = False
        self._finish()

    def set_call_word(self, name: str, value: int) -> None:
        self.view[STACK.index(name)] = value

    def set_header(self, unit: int, name: str, value: int) -> None:
        self.view[self.starts[unit] + self.units[unit].layout.header(name)] = value

    def _is_flat(self, direction: int, places: Iterable[Place | None], stages: Iterable[Stage], read: Iterable[str] = ()) -> bool:
        """Whether all rows of a chunk follow each other: in every array of the caller's that is used, and where steps have
        different rows, in all that the stages (or gradients, of what is `read`) touch.
        """
        extent, given = self.shape.extent, [place for place in places if place]
        if extent.counts is None:
            in_order = [not direction and p.strides[0] == extent.rows * p.strides[1] for p in given]
            return extent.rows == 1 or all(in_order)
        kernels = [kernel for stage in stages for kernel in stage.kernels]
        between_steps = {s.name for s in self.network.graph.states}.intersection((*used_by(stages), *read))
        by_row = any(node.op == "choose" for kernel in kernels for node in kernel.nodes)
        return not (direction and given) and not between_steps and not by_row

    def _fill_sequences(self, between: dict[str, list[Place]], nowhere: dict[str, Place]) -> None:
        shape = self.shape
        self.flat_after: dict[int, bool] = {}
        """by unit, whether all rows of a chunk follow each other in what is done after the steps"""
        backward, names = shape.which == "backward", [name for name, _ in self.network.graph.inputs]
        for unit, (layer, direction) in enumerate(self.network.units):
            top, position = layer == self.network.layers - 1, self.network.ways.index(direction)
            if top and shape.anywhere:
                self._put(self.starts[unit] + self.units[unit].layout.header("further"), Place(self.further, 0, (0, 0)))
                self.set_header(unit, "further_mask", -1)
            output = self._output_of(unit, between)
            places = self._arrays_of(unit, between, nowhere) | {"d_y" if backward else "y": output}
            for name, place in places.items():
                self._sequence(unit, name, place)
            if position > 0 and f"d_{names[0]}" in places:
                self.seconds.append((unit, f"d_{names[0]}", places[f"d_{names[0]}"]))
            whole = not backward or self._span_of(unit) == (0, shape.extent.steps)
            self._fill_flat(unit, places, whole=whole, ends=top and shape.ends)
            again = {f"d_{name}": position > 0 if name == names[0] else unit != self.order[0] for name in names}
            bits = (1 << k for k, buffer in enumerate(self.program.outputs) if again.get(buffer))
            self.set_header(unit, "add_outputs", sum(bits) if backward else 0)
            self.set_header(unit, "gradients", int(shape.gradients))
            self.set_header(unit, "no_first", int(shape.no_first))

    def _output_of(self, unit: int, between: dict[str, list[Place]]) -> Place | None:
        """Where a unit's output stands, or its cotangent."""
        network, shape = self.network, self.shape
        layer, direction = network.units[unit]
        top = layer == network.layers - 1
        if top and self.discarded:
            return self.discarded
        place = _own(self.output, shape.output) if top else between["d_y" if shape.which == "backward" else "y"][layer]
        if place is None:
            return None
        place = place.shifted(network.ways.index(direction) * network.output_size * self.element.bytes)
        return replace(place, strides=(0, place.strides[1])) if top and shape.ends else place

    def _span_of(self, unit: int) -> tuple[int, int]:
        """At which of its own steps, from and up to, the cotangent of a unit's output is there."""
        network, shape, steps = self.network, self.shape, self.extent.steps
        layer, direction = network.units[unit]
        if layer < network.layers - 1:
            return 0, steps
        if self.discarded or shape.output is None:
            return 0, 0
        if shape.ends:
            return steps - 1, steps
        begin, end = shape.output_steps
        end = min(end, steps)  # that of the shape is its room's
        return (steps - end, steps - begin) if direction else (begin, end)

    def _arrays_of(self, unit: int, between: dict[str, list[Place]], nowhere: dict[str, Place]) -> dict[str, Place | None]:
        """Where the other arrays of a unit stand that have something for every step, by buffer."""
        graph, shape, backward = self.network.graph, self.shape, self.shape.which == "backward"
        layer, _ = self.network.units[unit]
        names = [name for name, _ in graph.inputs]
        found: dict[str, Place | None] = dict(zip(names, map(_own, self.inputs, shape.inputs), strict=True))
        if layer > 0:
            found[names[0]] = between["y"][layer - 1]
        if backward:
            own = zip(names, map(_own, self.d_inputs, shape.d_inputs), strict=False)
            gradients = {name: place or nowhere.get(name) for name, place in own}
            if layer > 0:
                gradients[names[0]] = between["d_y"][layer - 1]
            found |= {f"d_{name}": place for name, place in gradients.items() if f"d_{name}" in self.program.outputs}
        for k, (name, _) in enumerate(graph.more_outputs):
            found[f"d_{name}" if backward else name] = self.discarded or self._more_place(k, unit)
        return found

    def _fill_flat(self, unit: int, places: dict[str, Place | None], whole: bool, ends: bool) -> None:
        """Whether all rows of a chunk follow each other, in what is done before the steps and after. `whole`: there are outputs,
        or cotangents, of all steps; `ends`: of the last one alone.
        """
        program, direction = self.program, self.network.units[unit][1]
        names, at_all_steps = [name for name, _ in self.network.graph.inputs], whole and not ends
        before, after = {*names, "d_y", *used_by(program.before)}, {*names, *used_by(program.after)}
        of_before, of_after = ([places.get(name) for name in used] for used in (before, after))
        read = [buffer for buffer, _ in program.read_by_gradients]
        flat_before = whole and (at_all_steps or "y" not in before) and self._is_flat(direction, of_before, program.before)
        self.set_header(unit, "flat_before", flat_before and not self.discarded)
        flat_after = self._is_flat(direction, of_after, program.after, read)
        self.flat_after[unit] = flat_after and not self.discarded and (at_all_steps or not {"y", "d_y"} & after)

    def _more_place(self, k: int, unit: int) -> Place:
        """Where a unit's part stands of what steps give beside the output."""
        apart, step, row = self.shape.more[k]
        return Place(self.more[k], unit * apart, (step, row))

    def _fill_states(self) -> None:
        shape = self.shape
        prefix = "d_" if shape.which == "backward" else ""
        for unit in range(len(self.units)):
            for k, state in enumerate(self.network.graph.states):
                name = prefix + state.name
                for buffer, number, strides in (
                    (first_of(name), self.first[k], shape.first[k]),
                    (last_of(name), self.last[k], shape.last[k]),
                ):
                    if name not in self.program.states or number is None or strides is None:
                        continue
                    start = self.starts[unit] + self.units[unit].layout.buffer(buffer)
                    self._put(start, Place(number, unit * strides[0], strides))
                    self.view[start + 3] = strides[1]

    def _fill_sources(self) -> None:
        count = len(self.network.sources)
        for u, (unit, start) in enumerate(zip(self.units, self.starts, strict=True)):
            for word, source, offset in unit.weights:
                self.table[start + word] = self.sources + u * count + source, offset
                if self.shape.gradients:
                    self.table[start + word + 2] = self.d_sources + u * count + source, offset
            stand_at = {word: (self.sources + u * count + source, offset) for word, source, offset in unit.weights}
            for word, weight in unit.standing:
                self.table[start + word] = stand_at[unit.layout.weight(weight)]

    def _finish(self) -> None:
        """Give the native code the table and the bases."""
        self.entries = np.array([(word, *place) for word, place in self.table.items()], np.int64).reshape(-1, 3)
        self.arrays["entries"] = self.entries.ctypes.data
        self.set_call_word("entries", len(self.entries))
        self._point(STACK.index("table"), "entries")
        self._point(STACK.index("bases"), "bases")

    def _work(self, directions: int) -> Work:
        units = tuple(
            split.UnitWork(u.packed_bytes, u.recurrent_bytes, u.vector_bytes, self.program.stages)
            for u in (self.units[k] for k in self.order)
        )
        extent, products = self.extent, 2 if self.shape.gradients else 1
        e, rows = self.element, extent.total / max(1, extent.steps)
        return Work(extent.steps, rows, extent.chunk, products, e.bytes, e.lanes, units, extent.counts, directions)


def _own(number: int | None, strides: Strides | None) -> Place | None:
    """Where an array of the caller begins; None where there is none."""
    return None if number is None or strides is None else Place(number, 0, strides)


def _between_row(network: Network, element: Element) -> int:
    """Bytes of a row of what passes from layer to layer."""
    return network.directions * network.output_size * element.bytes


def between_bytes(network: Network, element: Element, extent: Extent) -> int:
    """Of the outputs that pass from one layer to the next."""
    return extent.total * _between_row(network, element)


def used_by(stages: Iterable[Stage]) -> set[str]:
    """The buffers that stages load from or store to."""
    kernels = [kernel for stage in stages for kernel in stage.kernels]
    return {buffer for kernel in kernels for _, buffer, _ in (*kernel.loads, *kernel.stores)}
