"""Emits what a thread does before the first chunk and after the last: weights are packed, states come in and go out, sums that
are gradients go to the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from anyrnn.backends.llvm.block import first_of, last_of, step_at
from anyrnn.backends.llvm.builder import I64, NULL, PTR, TRUE, Value, const, i64
from anyrnn.backends.llvm.copies import Copies
from anyrnn.backends.llvm.factors import packed_steps
from anyrnn.backends.llvm.gradients import GradientSums
from anyrnn.backends.llvm.shapes import TILE_VECTORS, BiasPack, MatrixPack
from anyrnn.backends.llvm.thread_code import ThreadCode
from anyrnn.passes.plan import Program

CHECKED, TRUSTED = 1, 2
"""What `kept` says of packed weights that are left from an earlier call: pack anew if they look changed, or never."""


@dataclass(frozen=True)
class Ends:
    """Of one program. `summed` names the weights whose gradients have several terms; `state_values` has states' first values
    (their cotangents, `d_` before the name that no state has, begin as zeros).
    """

    thread: ThreadCode
    program: Program
    copies: Copies
    matrices: Sequence[MatrixPack]
    biases: Sequence[BiasPack]
    sums: Sequence[GradientSums]
    summed: frozenset[str]
    state_values: dict[str, float]

    def weights_in(self, late: Container[str], needed: Value, of_states: Mapping[str, Collection[str]]) -> None:
        """Pack the weights, but not those that are left from an earlier call, and `late` packs only if they are `needed`. Of
        packs that multiply states alone, those `of_states`, a single step from zeros reads no more than the products with zeros.
        """
        thread, b = self.thread, self.thread.b
        kept = thread.header("kept")
        with b.only_if(b.compare("ne", kept, i64(TRUSTED), "untrusted"), "pack"):
            checked = b.compare("eq", kept, i64(CHECKED), "checked")
            for pack in self.matrices:
                wanted = needed if pack.name in late else TRUE
                if pack.stands is not None:
                    packed = b.compare("ne", thread.pack(pack.name), thread.weight(pack.weights[0][0])[0], "packed")
                    wanted = b.binary("and", wanted, packed, "wanted")
                with b.only_if(wanted, "pack"):
                    if pack.name in of_states:
                        fresh, from_zero = b.compare("eq", kept, i64(0)), self._starts_from_zero(of_states[pack.name])
                        ways = partial(self._pack_zeros, pack), partial(self._pack, pack, checked)
                        b.either(b.binary("and", fresh, from_zero, "of_zeros"), *ways)
                    else:
                        self._pack(pack, checked)

    def _starts_from_zero(self, states: Collection[str]) -> Value:
        """Whether the call is a single step, and the caller gives no array for these states."""
        thread, b = self.thread, self.thread.b
        found = b.compare("eq", thread.steps, i64(1), "one_step")
        for state in states:
            first = thread.word(thread.layout.buffer(first_of(state)), "first")
            found = b.binary("and", found, b.compare("eq", first, i64(0)), "from_zero")
        return found

    def _pack_zeros(self, pack: MatrixPack) -> None:
        """The products with zeros alone."""
        thread, b = self.thread, self.thread.b
        address, size, depth = thread.pack(pack.name), thread.size(pack.size), thread.size(pack.depth)
        share = thread.share(thread.groups(pack.size, pack.width), "pack")
        sizes = [size, depth, i64(len(pack.weights) * pack.width * thread.element.panel_row), i64(pack.width), *share]
        for k, (weight, _) in enumerate(pack.weights):
            target = b.at(address, k * pack.width * thread.element.panel_row, "i8", "pack_at")
            b.call(self.copies.pack_zeros(), [target, *thread.weight(weight), *sizes])

    def biases_in(self) -> None:
        """Add up the biases of each sum. They are little work, for one thread."""
        if self.biases:
            b = self.thread.b
            with b.only_if(b.compare("eq", self.thread.id, i64(0), "first_thread"), "pack_biases"):
                self._pack_biases()

    def _pack(self, pack: MatrixPack, checked: Value) -> None:
        """Each thread packs its part of the groups. Behind a pack stands, for each weight and group, a number that tells of the
        weights that are packed there.
        """
        thread, b = self.thread, self.thread.b
        groups = thread.groups(pack.size, pack.width)
        share = thread.share(groups, "pack")
        address, size, depth = thread.pack(pack.name), thread.size(pack.size), thread.size(pack.depth)
        panel_row = thread.element.panel_row
        k_bytes = len(pack.weights) * pack.width * panel_row
        of_group = packed_steps(b, thread.element, depth)
        prints = b.at(address, b.mul(b.mul(groups, of_group), k_bytes), "i8", "prints")
        for k, (weight, transposed) in enumerate(pack.weights):
            target = b.at(address, k * pack.width * panel_row, "i8", "pack_at")
            if pack.heads > 1:
                sizes = [size, depth, i64(k_bytes), i64(pack.width), *share]
                b.call(self.copies.pack_blocks(transposed, pack.heads), [target, *thread.weight(weight), *sizes])
                continue
            of_weight = b.select(checked, b.at(prints, b.mul(groups, k), I64, "prints"), NULL, "prints")
            arguments = [target, *thread.weight(weight), size, depth, i64(k_bytes), i64(pack.width), *share, of_weight]
            b.call(self.copies.pack_matrix(transposed), arguments)

    def _pack_biases(self) -> None:
        thread, b = self.thread, self.thread.b
        for bias in self.biases:
            address = thread.pack(bias.name)
            panels = b.mul(thread.groups(bias.size, TILE_VECTORS), TILE_VECTORS, "panels")
            sources = [(thread.weight(w)[0], thread.size(bias.size)) for w in bias.weights]
            for k, (source, size) in enumerate(sources or [(address, i64(0))]):
                b.call(self.copies.add_bias(), [address, source, size, panels, i64(int(k == 0))])

    def states_in(self, t: Value, rows: tuple[Value, Value]) -> None:
        """The first values of some rows, whose first step is t."""
        element = self.thread.element
        for state in self.program.states:
            value = const(element.type, self.state_values.get(state, 0.0))
            self._copy_state(state, first_of(state), self._step(t, self.program.reverse), rows, outward=False, value=value)

    def states_out(self, t: Value, rows: tuple[Value, Value]) -> None:
        """The last values of some rows, whose last step is t."""
        zero = const(self.thread.element.type, 0.0)
        for state in self.program.states:
            self._copy_state(state, last_of(state), self._step(t, not self.program.reverse), rows, outward=True, value=zero)

    def _step(self, t: Value, after: bool) -> Value:
        """Where a state stands before a step of the sequence, or after it."""
        return self.thread.b.add(t, int(after), "state_step")

    def _copy_state(self, state: str, caller: str, step: Value, rows: tuple[Value, Value], outward: bool, value: Value) -> None:
        """This thread's part of some rows between ours and the caller's array; `value` stands for an array that is not there."""
        thread, b, copies = self.thread, self.thread.b, self.copies
        index, theirs = thread.layout.buffer(state), thread.layout.buffer(caller)
        ours = step_at(b, b.at(thread.block, index, I64, f"{state}.words"), step, state)
        callers = [thread.word(theirs, caller, PTR), thread.word(theirs + 3, f"{caller}.row_bytes")]
        part = thread.part_of(*rows)
        dim = self.program.buffer(state).dim
        if dim is None:
            b.call(copies.scalars(outward), [ours, *callers, *part, value])
            return
        arguments = [ours, thread.word(index + 4, f"{state}.panel_bytes"), *callers, thread.size(dim), *part]
        b.call(copies.state_out() if outward else copies.state_in(), arguments if outward else [*arguments, value])

    def gradient(self, weight: str) -> tuple[Value, Value, Value]:
        """Address and row distance of a weight's gradient, and whether terms are added to what is there: not zero then."""
        thread, adds = self.thread, self.thread.header("adds")
        if weight in self.summed:
            thread.barrier()  # another thread may have made the term before
            adds = i64(1)
        index = thread.layout.weight(weight)
        return thread.word(index + 2, "gradient", PTR), thread.word(index + 3, "gradient.row_bytes"), adds

    def share_of(self, sums: GradientSums) -> tuple[Value, Value]:
        """This thread's panels of a sum."""
        return self.thread.share(self.thread.groups(sums.size, 1) if sums.size is not None else i64(1), "panels")

    def sums_in(self) -> None:
        """Begin with the gradients that are there."""
        for sums in self.sums:
            gradient, _, _ = self.gradient(sums.weights[0])
            self.thread.b.call(self.copies.sum_out(adds=False), [gradient, self.thread.pack(sums.name), *self._features_of(sums)])

    def sums_out(self) -> None:
        for sums in self.sums:
            for weight in sums.weights:
                gradient, _, _ = self.gradient(weight)
                copy = self.copies.sum_out(adds=weight in self.summed)
                self.thread.b.call(copy, [self.thread.pack(sums.name), gradient, *self._features_of(sums)])

    def _features_of(self, sums: GradientSums) -> list[Value]:
        """This thread's share of a sum, from and up to which feature."""
        thread, b, (first, last) = self.thread, self.thread.b, self.share_of(sums)
        if sums.size is None:
            return [first, last]
        size, lanes = thread.size(sums.size), thread.element.lanes
        return [b.minimum(b.mul(end, lanes), size) for end in (first, last)]
