"""Emits how threads help each other between two barriers. A thread does most of its own share of a stage (the columns' groups of
a step, or what is done for a chunk at once); the last part it claims piece by piece, and when that is done those of the other
threads: no two cores are equally fast at every moment, and each barrier would wait for the slowest.

Claims are counted in some memory of each thread behind the barrier's state, each stage in a place of its own, in even and odd
rounds apart (steps, or chunks): while the one is counted the other is set to zero. So there is a barrier between two rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anyrnn.backends.llvm.builder import FALSE, I64, Value, i64
from anyrnn.backends.llvm.thread_code import ThreadCode

Range = tuple[Value, Value]

MOST_THREADS, MOST_STAGES = 64, 16
"""There is room for the counts of so many; of more stages the last ones are not shared."""
BARRIER_BYTES, COUNT_BYTES = 128, 8
COUNTS_BYTES = 2 * MOST_STAGES * COUNT_BYTES
"""Of a thread: whole lines."""
STATE_BYTES = BARRIER_BYTES + MOST_THREADS * COUNTS_BYTES
"""Of a barrier's state and the counts."""
SHARE = 3
"""A thread's share over what is left to be claimed."""


@dataclass(frozen=True)
class Round:
    """Whether threads help each other, and the number of the round: the step, or the chunk. `turned`: whether a share is gone
    through from its last group to the first.
    """

    shared: Value
    number: Value
    turned: Value


class Claims:
    """Of one program; `helps`: whether threads help each other at all."""

    def __init__(self, thread: ThreadCode, helps: bool) -> None:
        self.thread, b = thread, thread.b
        self.stages = 0
        self.helps = helps
        several = b.compare("sgt", thread.count, i64(1), "several")
        some = b.binary("and", several, b.compare("sle", thread.count, i64(MOST_THREADS), "some"), "some")
        wanted = [thread.is_set(name, "wanted") for name in ("shared", "shared_chunks")]
        self._in_steps, self._in_chunks = (b.binary("and", want, some, "shared") for want in wanted)

    def of_step(self, t: Value) -> Round:
        return Round(self._in_steps, t, self.thread.turned(t))

    def of_chunk(self, number: Value) -> Round:
        return Round(self._in_chunks, number, FALSE)

    def reset(self) -> None:
        """Before the first round of each piece of a call: the piece before may have had other threads."""
        b = self.thread.b
        if not self.helps:
            return
        with b.only_if(b.binary("or", self._in_steps, self._in_chunks), "no_claims"):
            for word in range(2 * MOST_STAGES):
                b.store(i64(0), self._count(self.thread.id, i64(word)))
            self.thread.barrier()

    def call(self, of: Round, share_of: Callable[[Value], Range], call: Callable[[Range], object], piece: int = 1) -> None:
        """Have `call` emit calls for this thread's share of a stage, less what is to be claimed, and for what it claims: pieces
        of so many things. `share_of` gives that of the thread with an id.
        """
        thread, b, stage = self.thread, self.thread.b, self.stages
        first, last = share_of(thread.id)
        if not self.helps or stage == MOST_STAGES:
            call((first, last))
            return
        self.stages += 1
        left = b.select(of.shared, self._left((first, last), piece), i64(0), "left")
        some = b.mul(left, piece)
        call((b.select(of.turned, b.add(first, some), first, "from"), b.select(of.turned, last, b.sub(last, some), "to")))
        with b.only_if(of.shared, "claims"):
            odd = b.binary("and", of.number, i64(1), "odd")
            here, other = b.add(odd, 2 * stage, "word"), b.sub(i64(2 * stage + 1), odd, "word")
            b.store(i64(0), self._count(thread.id, other))
            owners = b.loop("owner", 0, thread.count)
            around = b.add(thread.id, owners.index, "owner")
            owner = b.select(b.compare("sge", around, thread.count), b.sub(around, thread.count), around, "owner")
            first, last = share_of(owner)
            left = self._left((first, last), piece)
            count = self._count(owner, here)
            claim, claimed, none = b.label("claim"), b.label("claimed"), b.label("none")
            b.branch(claim)
            b.place(claim)
            number = b.value(I64, f"atomicrmw add ptr {count}, i64 1 monotonic", "claim")
            b.branch_if(b.compare("slt", number, left, "is_left"), claimed, none)
            b.place(claimed)
            forward = b.sub(last, b.mul(b.sub(left, number), piece), "forward")
            backward = b.add(first, b.mul(b.sub(b.sub(left, 1), number), piece), "backward")
            start = b.select(of.turned, backward, forward, "start")
            call((start, b.add(start, piece)))
            b.branch(claim)
            b.place(none)
            b.end(owners)

    def _left(self, share: Range, piece: int) -> Value:
        """How many pieces of a thread's share are left to be claimed."""
        b, (first, last) = self.thread.b, share
        return b.binary("sdiv", b.sub(last, first), i64(SHARE * piece), "left")

    def _count(self, owner: Value, word: Value) -> Value:
        b = self.thread.b
        counts = b.at(self.thread.barrier_state, b.add(b.mul(owner, COUNTS_BYTES), BARRIER_BYTES), "i8", "counts")
        return b.at(counts, word, I64, "count")
