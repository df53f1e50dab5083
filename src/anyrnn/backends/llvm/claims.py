"""Emits how threads that split the columns help each other. A thread does most groups of its own share; the last ones it claims
one by one, and when they are done those of the other threads: no two cores are equally fast at every moment, and each step would
wait for the slowest.

Claims are counted, for each stage of a step, in a line of memory of each thread behind the barrier's state, in even and odd steps
apart: while the one is counted the other is set to zero.
"""

from __future__ import annotations

from collections.abc import Callable

from anyrnn.backends.llvm.builder import I64, Value, i64
from anyrnn.backends.llvm.thread_code import ThreadCode

Range = tuple[Value, Value]

BARRIER_BYTES, LINE_BYTES = 128, 64
MOST_THREADS, MOST_STAGES = 64, 4
"""There is room for the counts of so many."""
STATE_BYTES = BARRIER_BYTES + MOST_THREADS * LINE_BYTES
"""Of a barrier's state and the counts."""
SHARE = 3
"""A thread's share over what is left to be claimed."""


class Claims:
    """Of one program's steps."""

    def __init__(self, thread: ThreadCode) -> None:
        self.thread, b = thread, thread.b
        wanted = b.compare("ne", thread.header("shared"), i64(0), "wanted")
        several = b.binary("and", thread.columns, b.compare("sgt", thread.count, i64(1), "several"), "several")
        some = b.binary("and", several, b.compare("sle", thread.count, i64(MOST_THREADS), "some"), "some")
        self.shared = b.binary("and", wanted, some, "shared")

    def reset(self) -> None:
        """Before the first step of each piece of a call: the piece before may have had other threads."""
        with self.thread.b.only_if(self.shared, "no_claims"):
            for word in range(2 * MOST_STAGES):
                self.thread.b.store(i64(0), self._count(self.thread.id, i64(word)))
            self.thread.barrier()

    def call(self, stage: int, t: Value, groups: Value, own: Range, call: Callable[[Range], None]) -> None:
        """Have `call` emit calls for a thread's `own` part of `groups`, less what is to be claimed, and for what it claims."""
        thread, b = self.thread, self.thread.b
        turned, (first, last) = thread.turned(t), own
        left = b.select(self.shared, self._left(own), i64(0), "left")
        call((b.select(turned, b.add(first, left), first, "from"), b.select(turned, last, b.sub(last, left), "to")))
        with b.only_if(self.shared, "claims"):
            odd = b.binary("and", t, i64(1), "odd")
            here, other = b.add(odd, 2 * stage, "word"), b.sub(i64(2 * stage + 1), odd, "word")
            b.store(i64(0), self._count(thread.id, other))
            owners = b.loop("owner", 0, thread.count)
            around = b.add(thread.id, owners.index, "owner")
            owner = b.select(b.compare("sge", around, thread.count), b.sub(around, thread.count), around, "owner")
            share = first, last = thread.share(groups, "groups", owner)
            left = self._left(share)
            count = self._count(owner, here)
            claim, claimed, none = b.label("claim"), b.label("claimed"), b.label("none")
            b.branch(claim)
            b.place(claim)
            number = b.value(I64, f"atomicrmw add ptr {count}, i64 1 monotonic", "claim")
            b.branch_if(b.compare("slt", number, left, "is_left"), claimed, none)
            b.place(claimed)
            forward, backward = b.add(b.sub(last, left), number), b.sub(b.add(first, b.sub(left, 1)), number)
            group = b.select(turned, backward, forward, "group")
            call((group, b.add(group, 1)))
            b.branch(claim)
            b.place(none)
            b.end(owners)

    def _left(self, share: Range) -> Value:
        """How many groups of a thread's share are left to be claimed."""
        b, (first, last) = self.thread.b, share
        return b.binary("sdiv", b.sub(last, first), i64(SHARE), "left")

    def _count(self, owner: Value, word: Value) -> Value:
        b = self.thread.b
        line = b.at(self.thread.barrier_state, b.add(b.mul(owner, LINE_BYTES), BARRIER_BYTES), "i8", "line")
        return b.at(line, word, I64, "count")
