"""The words of a call, made once for a shape of call and used for many calls, one at a time; and running it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import numpy as np

from anyrnn.backends.llvm import split, threads
from anyrnn.backends.llvm.block import CHOICE
from anyrnn.backends.llvm.call_shape import CallShape
from anyrnn.backends.llvm.driver import Code
from anyrnn.backends.llvm.ends import CHECKED, TRUSTED
from anyrnn.backends.llvm.extent import BEFORE, TABLES, Extent
from anyrnn.backends.llvm.memory import Packed, Scratch
from anyrnn.backends.llvm.words import Words
from anyrnn.ir.philox import Randomness, threshold
from anyrnn.sequence.network import Network


class Frame(Words):
    """Used by one call at a time. `entry` and `entry_keeping_lock` call the native code with an address."""

    def __init__(
        self,
        network: Network,
        shape: CallShape,
        code: Code,
        entry: Callable[[int], None],
        entry_keeping_lock: Callable[[int], None],
    ) -> None:
        super().__init__(network, shape, code)
        self.entries_by_length = entry_keeping_lock, entry
        self.one_thread = code.machine.one_thread
        self.kept = self.asked = self.threads = self.used = 0
        self.fit(shape.extent)

    def fit(self, extent: Extent) -> None:
        super().fit(extent)
        alone = self.work.alone(kept=False)
        self.entry = self.entries_by_length[alone >= split.LONG]
        self.short = alone < split.PIECE
        self.small = self.one_thread or alone < split.START  # then no number of threads is worth it
        for name in ("group_from", "chunk_from"):  # the batch before may have been done in pieces
            self.set_call_word(name, 0)
        self.asked = 0
        self.apart = False
        """whether the rows of a chunk stand as where threads split them"""

    def random_choices(self, randomness: Randomness) -> None:
        """What random choices depend on. They are made by the sequence's own steps, whatever the direction."""
        for direction, places in self.places.items():
            if randomness.places is None:
                places[:, 0], places[:, 1] = np.arange(len(places)), (self.extent.steps - 1) * direction
            else:
                places[: self.extent.total].T[:] = randomness.places
        packed = randomness.places is not None
        for unit, (layer, direction) in enumerate(self.network.units):
            self.set_header(unit, "seed", _signed(randomness.seed))
            self.set_header(unit, "rows_apart", int(packed))
            self.set_header(unit, "step_sign", 0 if packed else 1 - 2 * direction)
            layout, chances = self.units[unit].layout, randomness.at(layer, direction, 0)
            for choice in layout.choices:
                probability, scale = chances.probability(choice), chances.scale(choice)
                start = self.starts[unit] + layout.choice(choice, CHOICE[0])
                words = chances.stream(choice), threshold(probability), _bits(scale), _bits(probability)
                for k, word in enumerate(words):
                    self.view[start + k] = word

    def phases(self, steps: bool, gradients: bool) -> None:
        """Which parts of a backward call the next call does."""
        for unit in range(len(self.units)):
            self.set_header(unit, "skip_steps", int(not steps))
            self.set_header(unit, "gradients", int(gradients))

    def call(self, addresses: Sequence[int], scratch: Scratch, packed: Packed | None = None, trusting: bool = False) -> None:
        """Run on arrays: see `prepare`."""
        self.prepare(addresses, scratch, packed, trusting)
        self.call_again(self.threads)
        if packed is not None:
            packed.done = True

    def prepare(self, addresses: Sequence[int], scratch: Scratch, packed: Packed | None = None, trusting: bool = False) -> None:
        """Be ready to run on arrays at these addresses: see `CallShape`. `scratch` has at least `own_bytes`, and room for
        `packed_bytes` unless they are in `packed`; weights that were packed there before are not packed again if they look the
        same, or, `trusting`, whatever they look like.
        """
        kept = 0 if packed is None else TRUSTED if trusting and packed.done else CHECKED
        if kept != self.kept:
            self.kept, self.asked = kept, 0
            for number in range(len(self.units)):
                self.set_header(number, "kept", kept)
        asked = 1 if self.small else threads.default()
        if asked != self.asked:
            self.asked = asked
            self.threads = self.work.threads(asked, kept > 0)
            self.threads_asleep = self.work.threads(asked, kept > 0, split.WAKE)
            self._split()
            self.used = 0
        if self.threads > 1:
            self.set_call_word("team", threads.runner())
        here = packed.address if packed else scratch.address + self.own_bytes
        self.put_bases(self.bases, 0, *addresses, scratch.address, here)

    def _split(self) -> None:
        """Say how each unit's work is divided over threads."""
        extent, abreast, columns = self.extent, self.work.abreast(self.threads), self.columns(self.threads)
        self.set_call_word("abreast", abreast)
        self.set_call_word("group_to", len(self.units) // abreast)
        for number, buffer, place in self.seconds:
            self._sequence(number, buffer, self.beside if abreast > 1 and place else place)
            added = 1 << self.program.outputs.index(buffer)
            word = self.starts[number] + self.units[number].layout.header("add_outputs")
            self.view[word] = self.view[word] & ~added if abreast > 1 else self.view[word] | added
        if self.seconds:
            self._finish()
        if extent.counts is not None and self.apart == columns[0]:
            self._place_chunks(apart=not columns[0])
        for number, unit, of_unit in zip(self.order, self.work.units, columns, strict=True):
            self.set_header(number, "columns", int(of_unit))
            self.set_header(number, "flat_after", int(self.flat_after[number] and (of_unit or extent.counts is None)))
            each = self.threads // abreast
            self.set_header(number, "shared", int(of_unit and self.work.shares(unit, each)))
            self.set_header(number, "shared_chunks", int(self.work.shares_chunks(unit, each)))

    def columns(self, threads: int) -> list[bool]:
        """Whether threads split columns, of each unit in `order`, which has a part of the threads where several are run at once.
        Where steps have different rows one for all, as tables are.
        """
        extent, each = self.extent, threads // self.work.abreast(threads)
        found = [self.work.columns(unit, each) for unit in self.work.units]
        return found if extent.counts is None else [any(found) or extent.whole] * len(found)

    def _place_chunks(self, apart: bool) -> None:
        """Say where the rows of a chunk stand whose steps have different rows; see `extent`."""
        self.apart = apart
        for tables in self.tables.values():
            run = tables[TABLES.index("counts"), BEFORE : BEFORE + self.extent.steps]
            tables[TABLES.index("chunk"), : self.extent.words] = self.extent.chunk_table(run, apart)

    def use(self, threads: int) -> None:
        """Run on so many threads."""
        self.used = threads
        self.set_call_word("threads", threads)

    def whole(self) -> None:
        """Ask for the whole call in one piece, on one thread, after calls in pieces too."""
        self.use(1)
        for name, value in (
            ("group_from", 0),
            ("group_to", len(self.units)),
            ("chunk_from", 0),
            ("chunk_to", self.extent.steps),
        ):
            self.set_call_word(name, value)

    def call_again(self, threads: int) -> None:
        """The last call once more, at the same addresses, on at most as many threads as it had."""
        if threads != self.used:
            self.use(threads)
        if self.short:
            self.entry(self.address)
        else:
            self._call_in_pieces()

    def _call_in_pieces(self) -> None:
        """Between two of them Python looks whether it is to be interrupted."""
        for group, chunk_from, chunk_to in self.work.pieces(self.threads):
            self.run_piece(group, chunk_from, chunk_to)

    def run_piece(self, group: int, chunk_from: int, chunk_to: int) -> None:
        """Some chunks of the units that are run at once, or of one unit; by place in `order`. Chunks are counted in the order in
        which they are run.
        """
        self.set_call_word("group_from", group)
        self.set_call_word("group_to", group + 1)
        self.set_call_word("chunk_from", chunk_from)
        self.set_call_word("chunk_to", chunk_to)
        self.entry(self.address)


def _bits(number: float) -> int:
    """A double as the word with the same bits."""
    word: int = struct.unpack("q", struct.pack("d", number))[0]
    return word


def _signed(word: int) -> int:
    """A 64-bit word as the signed number with the same bits."""
    word &= 0xFFFFFFFFFFFFFFFF
    return word - 2**64 if word >> 63 else word
