"""The argument block of one layer in one direction, as far as it is known without the caller's arrays."""

from __future__ import annotations

import numpy as np

from anyrnn._memory import ALIGNMENT
from anyrnn.backends.llvm.block import masks_of
from anyrnn.backends.llvm.call_shape import CallShape
from anyrnn.backends.llvm.driver import Code
from anyrnn.backends.llvm.element import Element
from anyrnn.backends.llvm.extent import Extent
from anyrnn.backends.llvm.memory import Arena, Placed, ReserveLayout, padded_panels, place, place_masks, place_scratch
from anyrnn.backends.llvm.shapes import OF_ZEROS, STRIP_ROWS, MatrixPack
from anyrnn.backends.llvm.squares import MOST_IN_ROWS, MOST_IN_SQUARES
from anyrnn.backends.llvm.target import FAR_BYTES
from anyrnn.passes.plan import Program
from anyrnn.sequence.network import Network

FOLDED_FEATURES = 32
"""Up to this many input features their product is part of the step; above, it is made before the steps, for a chunk at once. In a
forward pass of one step it is part always: the weights of a group of features follow each other, and the next call begins with
those that this one ended with, which are still near.
"""
FOLDED_ROWS = 16
"""From so many samples on products of int8 with the input are part of the step, unless weights come from far: it takes less time
to read a quarter of the bytes in every step than to keep sums and read them back.
"""
ROWS_OF_A_STEP = STRIP_ROWS
"""Up to so many rows of a single step are multiplied by weights that are packed block by block: more have several strips, each of
which packs them anew.
"""
LOOKED_AT_BYTES = 2**19
"""Weights of so many bytes are looked at in less time than packed block by block: of inference, whose calls keep them."""


class Unit:
    """The argument block of one layer in one direction: which words are known, and where the others stand."""

    def __init__(
        self,
        network: Network,
        shape: CallShape,
        code: Code,
        unit: tuple[int, int],
        scratch: Arena,
        reserve: Arena,
        fixed: Arena,
        packed: Arena,
        of_biases: Arena,
    ) -> None:
        """`of_biases` is `scratch` or `packed`."""
        which, extent = shape.which, shape.extent
        self.program: Program = getattr(network.plan, which)
        self.code = code
        layer, self.direction = unit
        self.layout, e = self.code.layout, self.code.element
        self.sizes = network.layer_sizes(layer)
        states = zip(network.graph.states, shape.first, strict=True)
        self.given = frozenset(state.name for state, strides in states if strides is not None)
        """the states that the caller gives first values of, or cotangents of the last"""
        self.words = np.zeros(self.layout.words, np.int64)
        self.in_scratch: list[int] = []
        self.in_reserve: list[int] = []
        self.in_packed: list[int] = []
        self.tables: list[tuple[int, str]] = [(self.layout.header(name), name) for name in ("counts", "packed", "given")]
        """(word, table whose address it is to be)"""
        self._header(extent)
        for dim in self.code.dims:
            self.words[self.layout.size(str(dim))] = dim.evaluate(self.sizes)
        kept = ReserveLayout(network, e, layer, extent, reserve, shape.windows).buffers if which != "inference" else {}
        ours = {
            b.name
            for b in self.program.buffers
            if (which == "training" and b.role in ("state", "saved")) or (which == "backward" and b.role == "saved")
        }
        ours |= {masks_of(choice) for choice in self.program.choices}
        self.kept = {name: placed for name, placed in kept.items() if name in ours}
        """where buffers stand in the reserve"""
        placed = place_scratch(self.program, e, self.sizes, extent, scratch, self.kept)
        placed |= place_masks(self.program, e, self.sizes, extent, scratch, self.kept)
        for memory, found in ((self.in_reserve, self.kept), (self.in_scratch, placed)):
            for name, where in found.items():
                memory.append(self._place(name, where))
        self._matrices(e, shape, packed)
        if fetching := code.machine.processor.fetching:
            for name, near in (("ahead", fetching.near), ("ahead_few", fetching.near_few)):
                self.set(name, fetching.ahead if self.recurrent_bytes > near else 0)
        self._packs(e, extent, scratch, of_biases, self.in_scratch if of_biases is scratch else self.in_packed)
        rows = [padded_panels(dim.evaluate(self.sizes), e.lanes) * e.panel_row for dim in self.code.dims]
        self.set("zeros", fixed.take(max(rows, default=ALIGNMENT)))
        self.weights = self._weights(network, e)
        self.vector_bytes = sum(b.dim.evaluate(self.sizes) * e.bytes for b in self.program.buffers if b.dim is not None)
        """of a sample, in a step"""

    def set(self, name: str, value: int) -> None:
        self.words[self.layout.header(name)] = value

    def _header(self, extent: Extent) -> None:
        self.set("steps", extent.steps)
        self.set("rows", extent.rows)
        self.set("chunk", extent.chunk)
        self.set("block_steps", extent.block)

    def _matrices(self, e: Element, shape: CallShape, packed: Arena) -> None:
        """Room for packed weights and their products with zeros, and behind them a number for each weight and group."""
        self.packed_bytes = self.recurrent_bytes = 0
        """of all matrices, and of those that every step reads"""
        self.standing: list[tuple[int, str]] = []
        """of packs that are read where they stand, the word of the address and the first weight"""
        for pack in self.code.matrices:
            index = self.layout.pack(pack.name)
            size = pack.size.evaluate(self.sizes)
            groups = -(-size // (pack.width * e.lanes))
            depth, k_bytes = pack.depth.evaluate(self.sizes), len(pack.weights) * pack.width * e.panel_row
            bytes = groups * e.weight_steps(depth) * k_bytes
            whole = size % (pack.width * e.lanes) == 0 and (pack.stands == "rows" or depth % e.lanes == 0)
            stands = self._stands(pack, shape, bytes, whole)
            if stands:
                self.standing.append((index, pack.weights[0][0]))
            if not (stands and self.program.reverse):  # forward a pack has its place, which other calls with its weights know
                self.words[index] = packed.take(bytes + groups * (OF_ZEROS * k_bytes + 8 * len(pack.weights)))
            if not stands:
                self.in_packed.append(index)
            self.packed_bytes += bytes
            self.recurrent_bytes += bytes if pack.name in self.code.recurrent else 0

    def _stands(self, pack: MatrixPack, shape: CallShape, bytes: int, whole: bool) -> bool:
        """Whether a call multiplies weights where they stand, which have so many bytes; `squares` has how. `whole`: all vectors
        of all groups are.
        """
        extent = shape.extent
        if shape.packed or pack.stands is None:
            return False
        if pack.stands == "rows" and whole and extent.total <= MOST_IN_ROWS:
            return True
        states = self.code.of_states.get(pack.name, frozenset())
        from_zero = bool(states) and self.given.isdisjoint(states)  # it needs no more than the products with zeros
        if shape.shares or from_zero or extent.steps > 1:
            return False
        looks = shape.which == "inference" and bytes <= LOOKED_AT_BYTES
        return extent.rows <= (ROWS_OF_A_STEP if not looks else MOST_IN_SQUARES if whole else 0)

    def _packs(self, e: Element, extent: Extent, scratch: Arena, of_biases: Arena, in_biases: list[int]) -> None:
        """Room for biases, gradients' sums, and for hoisted products (or the biases in their place)."""
        bias_at = {}
        for bias in self.code.biases:
            bias_at[bias.name] = of_biases.take(padded_panels(bias.size.evaluate(self.sizes), e.lanes) * e.panel_row)
            self._pack(bias.name, bias_at[bias.name], in_biases)
        for sums in self.code.sums:
            features = sums.size.evaluate(self.sizes) if sums.size is not None else 1
            self._pack(sums.name, scratch.take(padded_panels(features, e.lanes) * e.panel_row), self.in_scratch)
        one_step = extent.steps == 1 and not self.program.reverse
        folds = one_step or (e.int8 and extent.rows >= FOLDED_ROWS and self.packed_bytes <= FAR_BYTES)
        hoist = bool(self.code.inits) and self.widest_given() > FOLDED_FEATURES and not folds
        self.set("hoist", int(hoist))
        for init in self.code.inits:
            if hoist:
                where = place(scratch, e, init.size.evaluate(self.sizes), extent.chunk_rows, "chunk")
            else:
                where = Placed(bias_at[init.bias], 0, 0, 0, e.panel_row, 0, "steps")
            (self.in_scratch if hoist else in_biases).append(self._place(init.buffer, where))

    def _place(self, buffer: str, where: Placed) -> int:
        """Set a buffer's words but for the addresses; the first of them."""
        start = self.layout.buffer(buffer)
        self.words[start : start + 5] = where.words
        self.tables.append((start + 5, where.table))
        return start

    def widest_given(self) -> int:
        """Features of the widest array whose steps are all there before the loop, the caller's or a chunk's."""
        return max(
            (
                b.dim.evaluate(self.sizes)
                for b in self.program.buffers
                if b.role in ("stream", "cotangent", "chunk") and b.dim is not None
            ),
            default=0,
        )

    def _pack(self, name: str, offset: int, memory: list[int]) -> None:
        index = self.layout.pack(name)
        self.words[index] = offset
        memory.append(index)

    def _weights(self, network: Network, e: Element) -> list[tuple[int, int, int]]:
        """(word, source, byte offset) of each weight; also sets the distances from row to row."""
        result = []
        for weight in network.plan.phase.weights:
            index = self.layout.weight(weight.name)
            columns = weight.shape[1].evaluate(self.sizes) if len(weight.shape) == 2 else 1
            row_bytes = columns * e.bytes
            self.words[index + 1] = self.words[index + 3] = row_bytes
            source = network.sources.index(weight.source)
            result.append((index, source, weight.offset.evaluate(self.sizes) * row_bytes))
        return result
