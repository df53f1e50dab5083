"""Emits the call that Python makes: `stack(ptr words)`, once, or for a long call again and again, so that it can be interrupted.

Its words are: the address of a function that runs a team, threads, how many blocks are a group, the first group and the end of
the groups, the first chunk and the end of the chunks, the states of barriers, entries of a table, the table, bases, then the
address of each block. Each entry of the table (word, base, offset) says which word of the whole to set to the address of a base
plus an offset.

The blocks of a group are done at once, each by its share of the threads, which have a barrier of their own; or one after the
other where there are fewer threads than blocks.
"""

from __future__ import annotations

from anyrnn.backends.llvm.block import HEADER
from anyrnn.backends.llvm.builder import I64, PTR, Function, Module, Value, i64
from anyrnn.backends.llvm.claims import STATE_BYTES
from anyrnn.backends.llvm.denormals import flush_denormals, restore_mode
from anyrnn.backends.llvm.target import Machine

STACK = (
    "team",
    "threads",
    "abreast",
    "group_from",
    "group_to",
    "chunk_from",
    "chunk_to",
    "barriers",
    "entries",
    "table",
    "bases",
)
STACK_WORDS = len(STACK)
MOST_ABREAST = 2
"""Blocks of a group: the directions of a layer. Each has the state of a barrier, and behind them there is that of the team."""
BARRIERS_BYTES = (MOST_ABREAST + 1) * STATE_BYTES


def emit_stack(module: Module, machine: Machine, folds: bool) -> None:
    """`stack`, and `work(ptr words, i64 id, i64 count)`, which each thread of the team does. `folds`: what the two blocks of a
    group have made has to be added, see `fold`.
    """
    _emit_work(module, machine, folds)
    b = module.function("stack", [("ptr", "words")], internal=False)
    (words,) = b.arguments
    _put_addresses(b, words)
    _count_steps(b, words)
    count = _word(b, words, "threads")

    def by_team() -> None:
        team = _word(b, words, "team", PTR)
        b.line(f"call void {team}(ptr @work, {words.typed}, {count.typed})")

    def alone() -> None:
        b.call("work", [words, i64(0), i64(1)])

    if machine.one_thread:
        alone()
    else:
        b.either(b.compare("sle", count, i64(1), "is_one"), alone, by_team, names=("alone", "together"))
    b.ret()


def _emit_work(module: Module, machine: Machine, folds: bool) -> None:
    b = module.function("work", [("ptr", "words"), ("i64", "id"), ("i64", "count")], directs=True)
    words, id, count = b.arguments
    mode = flush_denormals(b, machine)
    barriers, abreast = _word(b, words, "barriers", PTR), _word(b, words, "abreast")
    barrier = b.at(barriers, MOST_ABREAST * STATE_BYTES, "i8", "barrier")
    chunks = [_word(b, words, "chunk_from"), _word(b, words, "chunk_to")]
    at_once = b.compare("sge", count, abreast, "at_once")
    mine = b.binary("sdiv", b.mul(id, abreast), count, "mine")
    first, after = (_first_of(b, lane, abreast, count) for lane in (mine, b.add(mine, 1)))
    lane0, lane1 = b.select(at_once, mine, i64(0), "lane0"), b.select(at_once, b.add(mine, 1), abreast, "lane1")
    share = [b.select(at_once, b.sub(id, first), id, "own_id"), b.select(at_once, b.sub(after, first), count, "own_count")]
    own_barrier = b.at(barriers, b.mul(lane0, STATE_BYTES), "i8", "own_barrier")
    group = b.loop("group", _word(b, words, "group_from"), _word(b, words, "group_to"))
    lane = b.loop("lane", lane0, lane1, once=True)
    b.call("run", [_block(b, words, b.add(b.mul(group.index, abreast), lane.index)), *share, own_barrier, *chunks])
    b.call("barrier", [barrier, b.select(at_once, i64(1), count, "waiting")])
    b.end(lane)
    if folds:
        _fold(b, words, group.index, (id, count, barrier), chunks[1])
    is_last = b.compare("eq", b.add(group.index, 1), group.stop, "is_last")
    b.call("barrier", [barrier, b.select(is_last, i64(1), count, "waiting")])  # the team ends together anyway
    b.end(group)
    restore_mode(b, machine, mode)
    b.ret()


def _first_of(b: Function, lane: Value, abreast: Value, count: Value) -> Value:
    """The first of the threads that do a lane, those with `lane == id * abreast / count`."""
    return b.ceil_div(b.mul(lane, count), abreast, "first")


def _fold(b: Function, words: Value, group: Value, team: tuple[Value, Value, Value], chunk_to: Value) -> None:
    """Once both blocks of a group are done with their last chunk."""
    id, count, barrier = team
    pair = b.compare("eq", _word(b, words, "abreast"), i64(2), "pair")
    block = _block(b, words, b.mul(group, b.select(pair, i64(2), i64(1))))
    chunk, steps = (b.word(block, HEADER.index(name), name) for name in ("chunk", "steps"))
    done = b.compare("sge", b.mul(chunk_to, chunk), steps, "done")
    stepped = b.compare("eq", b.word(block, HEADER.index("skip_steps"), "skip_steps"), i64(0), "stepped")
    with b.only_if(b.binary("and", pair, b.binary("and", done, stepped)), "both"):
        b.call("barrier", [barrier, count])
        b.call("fold", [block, _block(b, words, b.add(b.mul(group, 2), 1)), id, count])


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
    abreast = _word(b, words, "abreast")
    first, last = (b.mul(_word(b, words, name), abreast) for name in ("group_from", "group_to"))
    loop = b.loop("block", first, last)
    block = _block(b, words, loop.index)
    turn = b.at(block, HEADER.index("turn"), I64, "turn.word")
    steps = b.load(I64, b.at(block, HEADER.index("steps"), I64, "steps.word"), "steps")
    b.store(b.add(b.load(I64, turn, "turn"), steps, "turn"), turn)
    b.end(loop)


def _block(b: Function, words: Value, number: Value) -> Value:
    return b.load(PTR, b.at(words, b.add(number, STACK_WORDS), I64, "block.word"), "block")


def _word(b: Function, words: Value, name: str, type: str = I64) -> Value:
    return b.word(words, STACK.index(name), name, type)
