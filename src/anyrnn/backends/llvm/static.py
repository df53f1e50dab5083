"""A call of one step as constants and code that need nothing of this process: what object files are made of."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn.backends.llvm import target
from anyrnn.backends.llvm.call_shape import CallShape
from anyrnn.backends.llvm.driver import Code
from anyrnn.backends.llvm.extent import Extent
from anyrnn.backends.llvm.frame import Frame
from anyrnn.backends.llvm.memory import Packed, Scratch
from anyrnn.backends.llvm.run import KINDS, write_code
from anyrnn.backends.llvm.target import Machine
from anyrnn.passes.plan import Program
from anyrnn.sequence.network import Network

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class StaticStep:
    """One step of a network on one thread, with weights that stay as they are.

    `@stack(ptr words)` of the text makes the step. Its words are `words`, where those in `pointers` are addresses: by word, the
    name of an array and an offset. The arrays are these words themselves (`words`), `bases`, and `constants`, which nothing
    writes to. `bases` are the addresses of, in order: `arrays` of the caller (inputs, the output, each state before the step,
    each after it), `sources` (None: nothing is read there), `scratch_bytes` to work in, `packed`. All but the caller's are
    multiples of 64.
    """

    text: str
    words: npt.NDArray[np.int64]
    pointers: Mapping[int, tuple[str, int]]
    constants: Mapping[str, Array]
    arrays: int
    sources: tuple[Array | None, ...]
    scratch_bytes: int
    packed: npt.NDArray[np.uint8]


def static_step(
    network: Network, dtype: str, rows: int, sources: Sequence[Array], machine: Machine, remembers: bool
) -> StaticStep:
    """Of so many samples, for a machine of one thread; `dtype` is what calls say for it. Without `remembers` there are no
    addresses of states: each step is the first one.

    The weights are packed by a call that is made here: by the same program, in vectors of the same length, for this processor.
    """
    of_arrays, _ = KINDS[dtype]
    inputs = [np.zeros((rows, shape[0].evaluate(dict(network.sizes))), of_arrays) for _, shape in network.graph.inputs]
    states = [np.zeros((len(network.units), rows, size), of_arrays) for size in network.state_sizes]
    output = np.zeros((rows, network.output_size), of_arrays)
    of_states = tuple((a.strides[0], a.strides[1]) if remembers else None for a in states)
    of_inputs = tuple((a.nbytes, a.strides[0]) for a in inputs)
    of_output = output.nbytes, output.strides[0]
    shape = CallShape("inference", dtype, Extent(1, rows), of_inputs, of_output, of_states, of_states, packed=True, constant=True)
    arrays = [*inputs, output, *(states * 2 if remembers else [])]
    machine = replace(machine, most_rows=rows)
    code = write_code(network.plan, "inference", dtype, replace(machine, features=target.machine().features))
    entry = _entry(code) if code.matrices or code.biases else _nothing_to_pack
    frame = Frame(network, shape, code, entry, entry)
    randomness = network.randomness(0, None)
    if randomness is not None:  # with probabilities, which steps compute with
        frame.random_choices(randomness)
    packed, scratch = Packed(frame.packed_bytes), Scratch(frame.own_bytes)
    addresses = [array.ctypes.data for array in (*arrays, *sources)]
    frame.call(addresses, scratch, packed)
    frame.prepare(addresses, scratch, packed, trusting=True)
    frame.whole()
    for unit in range(len(frame.units)):
        frame.set_header(unit, "turn", 0)
    again = write_code(network.plan, "inference", dtype, machine, packs=False)
    packs = [[(pack.name, pack.weights, pack.width) for pack in one.matrices] for one in (code, again)]
    assert (code.layout, packs[0]) == (again.layout, packs[1]), "the steps read other words than were filled here"
    words = frame.words.copy()
    words[[*frame.table, *frame.pointers]] = 0  # which are addresses here
    by_way = {"tables": frame.tables, "places": frame.places}
    constants = {f"{kind} {way}": array for kind, of in by_way.items() for way, array in of.items()}
    constants |= {"entries": frame.entries, "fixed": np.zeros(len(frame.fixed), np.uint8)}
    return StaticStep(
        text=again.text,
        words=words,
        pointers=dict(frame.pointers),
        constants=constants,
        arrays=len(arrays),
        sources=_read(network, sources),
        scratch_bytes=frame.own_bytes,
        packed=packed.memory.view(np.uint8),
    )


def _entry(code: Code) -> Callable[[int], None]:
    (address,) = target.load(target.object_code(code.text), "stack")
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)


def _nothing_to_pack(words: int) -> None:
    """In the place of a program."""


def _read(network: Network, sources: Sequence[Array]) -> tuple[Array | None, ...]:
    """The sources that are read although weights are packed and biases added up: vectors."""
    read = {weight.source for weight in network.plan.phase.weights if weight.name in _vectors(network.plan.inference)}
    names = [name for _ in network.units for name in network.sources]
    return tuple(array if name in read else None for name, array in zip(names, sources, strict=True))


def _vectors(program: Program) -> set[str]:
    """The weights that kernels read where they stand."""
    found: set[str] = set()
    for kernel in (kernel for stage in (*program.before, *program.body) for kernel in stage.kernels):
        nodes = kernel.nodes
        read = {s for node in nodes if node.op != "affine" for s in node.inputs} | {i for i, _, _ in kernel.stores}
        found |= {nodes[i].attributes[0] for i in read if nodes[i].op == "parameter"}
    return found
