"""Emits the call that Python makes: `stack(ptr words)`, once, or for a long call again and again, so that it can be interrupted.

Its words are: the address of a function that runs a team, threads, the first block and the end of the blocks, the first chunk
and the end of the chunks, the barrier's state, entries of a table, the table, bases, then the address of each block. Each entry
of the table (word, base, offset) says which word of the whole to set to the address of a base plus an offset.
"""

from __future__ import annotations

from anyrnn.backends.llvm.block import HEADER
from anyrnn.backends.llvm.builder import I64, PTR, Function, Loop, Module, Value, i64
from anyrnn.backends.llvm.denormals import flush_denormals, restore_mode
from anyrnn.backends.llvm.target import Machine

STACK = ("team", "threads", "block_from", "block_to", "chunk_from", "chunk_to", "barrier", "entries", "table", "bases")
STACK_WORDS = len(STACK)


def emit_stack(module: Module, machine: Machine) -> None:
    """`stack`, and `work(ptr words, i64 id, i64 count)`, which each thread of the team does."""
    _emit_work(module, machine)
    b = module.function("stack", [("ptr", "words")], internal=False)
    (words,) = b.arguments
    _put_addresses(b, words)
    _count_steps(b, words)
    count = _word(b, words, "threads")
    alone, together = b.label("alone"), b.label("together")
    b.branch_if(b.compare("sle", count, i64(1), "single"), alone, together)
    b.place(alone)
    b.call("work", [words, i64(0), i64(1)])
    b.ret()
    b.place(together)
    team = _word(b, words, "team", PTR)
    b.line(f"call void {team}(ptr @work, {words.typed}, {count.typed})")
    b.ret()


def _emit_work(module: Module, machine: Machine) -> None:
    b = module.function("work", [("ptr", "words"), ("i64", "id"), ("i64", "count")])
    words, id, count = b.arguments
    mode = flush_denormals(b, machine)
    barrier = _word(b, words, "barrier", PTR)
    chunks = [_word(b, words, "chunk_from"), _word(b, words, "chunk_to")]
    loop = _blocks(b, words)
    b.call("run", [_block(b, words, loop), id, count, barrier, *chunks])
    is_last = b.compare("eq", b.add(loop.index, 1), loop.stop, "is_last")
    b.call("barrier", [barrier, b.select(is_last, i64(1), count, "waiting")])  # the team ends together anyway
    b.end(loop)
    restore_mode(b, machine, mode)
    b.ret()


def _put_addresses(b: Function, words: Value) -> None:
    """What the table says."""
    entries, table, bases = _word(b, words, "entries"), _word(b, words, "table", PTR), _word(b, words, "bases", PTR)
    entry = b.loop("entry", 0, entries)
    here = b.at(table, b.mul(entry.index, 3), I64, "here")
    word, base, offset = (b.load(I64, b.at(here, k, I64), n) for k, n in enumerate(("word", "base", "offset")))
    address = b.add(b.load(I64, b.at(bases, base, I64), "base"), offset, "address")
    b.store(address, b.at(words, word, I64))
    b.end(entry)


def _count_steps(b: Function, words: Value) -> None:
    """Add the steps of this call to what each block's kernels count."""
    loop = _blocks(b, words)
    block = _block(b, words, loop)
    turn = b.at(block, HEADER.index("turn"), I64, "turn.word")
    steps = b.load(I64, b.at(block, HEADER.index("steps"), I64, "steps.word"), "steps")
    b.store(b.add(b.load(I64, turn, "turn"), steps, "turn"), turn)
    b.end(loop)


def _blocks(b: Function, words: Value) -> Loop:
    return b.loop("block", _word(b, words, "block_from"), _word(b, words, "block_to"))


def _block(b: Function, words: Value, loop: Loop) -> Value:
    return b.load(PTR, b.at(words, b.add(loop.index, STACK_WORDS), I64, "block.word"), "block")


def _word(b: Function, words: Value, name: str, type: str = I64) -> Value:
    return b.word(words, STACK.index(name), name, type)
