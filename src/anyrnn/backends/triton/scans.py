"""Writes the Triton function of a scan: the states of all steps of a chunk, by BLOCK_T steps at a time.

A program has one sample and BLOCK_F of the features. In a block of steps each step is a sum of factors times states, and terms;
two such sums one after the other are one again, so that a tree of them gives the states of all steps of the block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyrnn.backends.triton.names import INDENT, Argument, filled, unspecialised
from anyrnn.passes.plan import Scan

if TYPE_CHECKING:
    from anyrnn.backends.triton.text import Writer

BLOCKS = ("BLOCK_T", "BLOCK_F", "COMPUTE")
"""What is known when the text is compiled."""
CALL = ("first", "count", "given", "chunk_first", "slot_first", "slot_sign", "begins", "ends")


def scan_text(writer: Writer, scan: Scan, name: str) -> tuple[str, tuple[Argument, ...]]:
    """The function that is launched, and its arguments."""
    arguments = {name: Argument("call", name, name) for name in CALL}

    def use(argument: Argument) -> str:
        arguments.setdefault(argument.name, argument)
        return argument.name

    dim = writer.buffers[scan.states[0]].dim
    features = "1" if dim is None else use(writer.size(dim))
    places = {}
    for buffer in (*scan.states, *scan.coefficients):
        places[buffer] = [use(argument) for argument in writer.buffer(buffer)]

    def at(buffer: str, unit: str) -> str:
        address, of_step, of_row = places[buffer]
        return f"{address} + ({unit}).to(tl.int64) * {of_step} + row * {of_row} + feature"

    def coefficient(label: str, buffer: str | None, otherwise: str) -> str:
        if buffer is None:
            return f"{label} = nothing + {'tl.where(there, 0.0, 1.0)' if otherwise == '1.0' else '0.0'}"
        return f"{label} = tl.load({at(buffer, 'unit')}, mask=there, other={otherwise}).to(COMPUTE)"

    sign, states = "-" if writer.program.reverse else "+", range(len(scan.states))
    before, after = ("first + 1", "steps") if writer.program.reverse else ("first", "steps + 1")
    factors = [[f"factor_{i}{j}" for j in states] for i in states]
    terms, carried = [f"term_{i}" for i in states], [f"state_{i}" for i in states]
    flat = ", ".join([*(f for row in factors for f in row), *terms])
    body = [
        "row = tl.program_id(0).to(tl.int64)",
        "feature = (tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F))[None, :]",
        f"inside = feature < {features}",
    ]
    slots = [at(state, f"slot_first + slot_sign * ({before})") for state in scan.states]
    body.append("if begins:")
    for state, slot in zip(scan.states, slots, strict=True):
        address, of_row, of_feature = (use(writer.flag(kind, state)) for kind in ("first", "first_row", "first_feature"))
        given = f"tl.load({address} + row * {of_row} + feature.to(tl.int64) * {of_feature}, mask=inside, other=0.0)"
        body.append(f"{INDENT}tl.store({slot}, {given}, mask=inside)")
    body.append("tl.debug_barrier()")
    body += [f"{carried[i]} = tl.load({slot}, mask=inside, other=0.0).to(COMPUTE)" for i, slot in enumerate(slots)]
    inner = [
        "k = (k0 + tl.arange(0, BLOCK_T))[:, None]",
        f"steps = first {sign} k",
        "there = inside & (k < count)",
        "unit = tl.load(given + steps, mask=k < count, other=0) - chunk_first",
        "nothing = tl.zeros((BLOCK_T, BLOCK_F), COMPUTE)",
    ]
    for i in states:
        inner += [coefficient(factors[i][j], scan.factors[i][j], "1.0" if i == j else "0.0") for j in states]
        inner.append(coefficient(terms[i], scan.terms[i], "0.0"))
    inner.append(f"{flat} = tl.associative_scan(({flat}), 0, functions.after_{len(states)})")
    for i, state in enumerate(scan.states):
        sums = " + ".join([*(f"{factors[i][j]} * {carried[j]}" for j in states), terms[i]])
        inner.append(f"new_{i} = {sums}")
        inner.append(f"tl.store({at(state, f'slot_first + slot_sign * ({after})')}, new_{i}, mask=there)")
    inner.append("last = k == tl.minimum(count, k0 + BLOCK_T) - 1")
    inner += [f"{carried[i]} = tl.sum(tl.where(last, new_{i}, 0.0), axis=0)[None, :]" for i in states]
    body += ["for k0 in range(0, count, BLOCK_T):", *(INDENT + line for line in inner)]
    body.append("if ends:")
    for state, value in zip(scan.states, carried, strict=True):
        into = f"{use(writer.flag('last', state))} + row * {features} + feature"
        body.append(f"{INDENT}tl.store({into}, {value}, mask=inside)")
    words = [*(a.name for a in arguments.values()), *(f"{block}: tl.constexpr" for block in BLOCKS)]
    head = [f"@triton.jit(do_not_specialize={unspecialised(arguments.values())})\ndef {name}(", *filled(words, 1), "):"]
    text = [*head, *(INDENT + line for line in body)]
    return "\n".join(text), tuple(arguments.values())
