"""The module of an object file: constants, and the functions that are called from outside.

`NAME_begin(ptr stream)` writes the first states. `NAME_step(ptr stream, inputs, outputs)` makes a step, and returns 0; or 1 for
an integer that is no class, before it does anything. `NAME_stream_bytes()` is how large a stream is: the states, which are all
that lasts from step to step, and behind them room to work in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn._memory import ALIGNMENT
from anyrnn.aot.lowering import Gather, Join, Kernel, Largest, Lowered
from anyrnn.backends.llvm.builder import I64, NULL, PTR, Function, Module, Value, const, i64
from anyrnn.backends.llvm.memory import Arena
from anyrnn.backends.llvm.platforms import Platform
from anyrnn.backends.llvm.run import said
from anyrnn.backends.llvm.static import StaticStep, static_step
from anyrnn.runtime.network import Network

Array = npt.NDArray[Any]
I32 = "i32"
RETURNED = f"signext {I32}"
"""As an `int` is in C."""


@dataclass(frozen=True)
class StateArray:
    """A state in a stream: whose it is, its first values [layers, N, size], and where it begins."""

    layer: str
    name: str
    first: Array
    offset: int


class ObjectModule:
    """Of a network, for so many samples and a machine. `name` is what the names of functions begin with."""

    def __init__(self, name: str, network: Network, rows: int, platform: Platform) -> None:
        lowered = Lowered(network)
        self.name, self.rows, self.platform, self.operations = name, rows, platform, lowered.operations
        self.inputs, self.outputs, self.dtype = network.inputs, network.outputs, network.dtype
        self.sizes = {given.name: given.size or 1 for given in self.inputs} | {o.name: o.size for o in self.operations}
        """features of each value"""
        self.states: list[StateArray] = []
        """in the order in which they stand in a stream"""
        self.state_bytes = 0
        for layer, states in lowered.states.items():
            for state, first in states.items():
                self.states.append(StateArray(layer, state, np.repeat(first, rows, 1), self.state_bytes))
                self.state_bytes += self.states[-1].first.nbytes
        kernels = [operation for operation in self.operations if isinstance(operation, Kernel)]
        machine = platform.machine
        dtypes = [said(self.dtype.name, "int8" * k.int8) for k in kernels]
        self._steps = [
            static_step(k.network, dtype, rows, k.sources, machine, k.states_of is not None)
            for k, dtype in zip(kernels, dtypes, strict=True)
        ]
        self._numbers = {kernel.name: number for number, kernel in enumerate(kernels)}
        arena = Arena()
        self._places = {o.name: arena.take(self._bytes(o.name)) for o in self.operations if o.name not in self.outputs}
        """of what is made on the way, where it stands in the room to work in"""
        self._rooms = [_Room.of(step, arena.bytes) for step in self._steps]
        self.work_bytes = max([arena.bytes, *(room.end for room in self._rooms)]) + ALIGNMENT
        """of the room, wherever it begins"""
        self.stream_bytes = self.state_bytes + self.work_bytes
        self.stream_bytes += -self.stream_bytes % self.dtype.itemsize
        """as C has them"""
        self.module = Module(machine.fused, machine.has_caches)
        for number in range(len(self._steps)):
            self._emit_kernel(number)
        self._emit_begin()
        self._emit_bytes()
        self._emit_step()

    def object_code(self) -> bytes:
        programs = {self._program(number): step.text for number, step in enumerate(self._steps)}
        return self.platform.object_code(str(self.module), programs)

    def _program(self, number: int) -> str:
        """What a kernel's program is called."""
        return f"kernel.{number}"

    def _bytes(self, name: str) -> int:
        """Of a value's features, of all samples."""
        return self.rows * self.sizes[name] * self.dtype.itemsize

    def _constant(self, name: str, array: Array) -> Value:
        """Numbers of the module, where they begin."""
        bytes = array.tobytes()
        text = 'c"\\' + bytes.hex("\\") + '"' if bytes.strip(b"\0") else "zeroinitializer"
        self.module.verbatim.append(f'@"{name}" = internal constant [{len(bytes)} x i8] {text}, align {ALIGNMENT}\n')
        return Value(f'@"{name}"', PTR)

    def _emit_kernel(self, number: int) -> None:
        """`layer.K(ptr room, arrays of the caller)`: a step, see `StaticStep`."""
        module, step, room, kernel = self.module, self._steps[number], self._rooms[number], self._program(number)
        module.declare(kernel, "void", [PTR])
        given = [("ptr", f"array{k}") for k in range(step.arrays)]
        b = module.function(f"layer.{number}", [("ptr", "work"), *given])
        work, *arrays = b.arguments
        words, bases, scratch = (b.at(work, getattr(room, name), "i8", name) for name in ("words", "bases", "scratch"))
        _copy(b, words, self._constant(f"words.{number}", step.words), step.words.nbytes)
        constants = {name: self._constant(f"{name}.{number}", array) for name, array in step.constants.items()}
        places = {"words": words, "bases": bases, **constants}
        for word, (array, offset) in step.pointers.items():
            b.store(_address(b, b.at(places[array], offset, "i8", array)), b.at(words, word, I64))
        for k, source in enumerate(step.sources):
            arrays.append(NULL if source is None else self._constant(f"source{k}.{number}", source))
        for k, address in enumerate([*arrays, scratch, self._constant(f"packed.{number}", step.packed)]):
            b.store(_address(b, address), b.at(bases, k, I64))
        b.call(kernel, [words])
        b.ret()

    def _emit_begin(self) -> None:
        b = self.module.function(f"{self.name}_begin", [("ptr", "stream")], internal=False)
        if self.states:
            first = np.concatenate([state.first.ravel() for state in self.states])
            _copy(b, b.arguments[0], self._constant("first", first), self.state_bytes)
        b.ret()

    def _emit_bytes(self) -> None:
        b = self.module.function(f"{self.name}_stream_bytes", [], internal=False, returns=RETURNED)
        b.ret(const(I32, self.stream_bytes))

    def _emit_step(self) -> None:
        names = [*(given.name for given in self.inputs), *self.outputs]
        given = [("ptr", _shown(name)) for name in names]
        b = self.module.function(f"{self.name}_step", [("ptr", "stream"), *given], internal=False, returns=RETURNED)
        stream, *arrays = b.arguments
        values: dict[str, Value] = dict(zip(names, arrays, strict=True))
        for gather in (operation for operation in self.operations if isinstance(operation, Gather)):
            self._check_classes(b, gather, values[gather.inputs[0]])
        behind = b.add(_address(b, b.at(stream, self.state_bytes, "i8")), ALIGNMENT - 1)
        work = b.cast("inttoptr", b.binary("and", behind, i64(-ALIGNMENT), "aligned"), PTR, "work")
        values |= {name: b.at(work, place, "i8", _shown(name)) for name, place in self._places.items()}
        for operation in self.operations:
            inputs, made = [values[name] for name in operation.inputs], values[operation.name]
            if isinstance(operation, Kernel):
                own = [b.at(stream, offset, "i8", "state") for offset in self._states_of(operation)]
                b.call(f"layer.{self._numbers[operation.name]}", [work, *inputs, made, *own, *own])
            elif isinstance(operation, Gather):
                self._gather(b, operation, inputs[0], made)
            elif isinstance(operation, Largest):
                self._largest(b, operation, inputs[0], made)
            elif isinstance(operation, Join):
                self._join(b, operation, inputs, made)
        b.ret(const(I32, 0))

    def _states_of(self, kernel: Kernel) -> list[int]:
        """Where its states begin in a stream."""
        layer, first = kernel.states_of or ("", 0)
        return [s.offset + first * s.first[0].nbytes for s in self.states if s.layer == layer]

    def _check_classes(self, b: Function, gather: Gather, classes: Value) -> None:
        """Leave the function for a number that is no class."""
        sample = b.loop("sample", 0, i64(self.rows), once=True)
        number = b.load(I32, b.at(classes, sample.index, I32), "class")
        refused, passed = b.label("refused"), b.label("passed")
        b.branch_if(b.compare("uge", number, const(I32, len(gather.table)), "is_none"), refused, passed)
        b.place(refused)
        b.ret(const(I32, 1))
        b.place(passed)
        b.end(sample)

    def _gather(self, b: Function, gather: Gather, classes: Value, made: Value) -> None:
        table = self._constant(f"table.{len(self.module.verbatim)}", np.asarray(gather.table, self.dtype))
        bytes = gather.size * self.dtype.itemsize
        sample = b.loop("sample", 0, i64(self.rows), once=True)
        number = b.cast("zext", b.load(I32, b.at(classes, sample.index, I32), "class"), I64, "class")
        _copy(b, b.at(made, b.mul(sample.index, bytes), "i8", "row"), b.at(table, b.mul(number, bytes), "i8", "vector"), bytes)
        b.end(sample)

    def _join(self, b: Function, join: Join, inputs: Sequence[Value], made: Value) -> None:
        item, offset = self.dtype.itemsize, 0
        sample = b.loop("sample", 0, i64(self.rows), once=True)
        row = b.at(made, b.mul(sample.index, join.size * item), "i8", "row")
        for name, array in zip(join.inputs, inputs, strict=True):
            bytes = self.sizes[name] * item
            _copy(b, b.at(row, offset, "i8", "part"), b.at(array, b.mul(sample.index, bytes), "i8", _shown(name)), bytes)
            offset += bytes
        b.end(sample)

    def _largest(self, b: Function, largest: Largest, array: Value, made: Value) -> None:
        type, features = {4: "float", 8: "double"}[self.dtype.itemsize], self.sizes[largest.inputs[0]]
        sample = b.loop("sample", 0, i64(self.rows), once=True)
        row = b.at(array, b.mul(sample.index, features), type, "row")
        feature = b.loop("feature", 0, i64(features), 1, [("most", b.load(type, row, "first"))], once=True)
        (most,), number = feature.values, b.load(type, b.at(row, feature.index, type), "number")
        (found,) = b.end(feature, [b.select(b.compare("ogt", number, most, "is_more"), number, most, "most")])
        b.store(found, b.at(made, sample.index, type))
        b.end(sample)


@dataclass(frozen=True)
class _Room:
    """Where a kernel's own memory stands, and where it ends."""

    words: int
    bases: int
    scratch: int
    end: int

    @classmethod
    def of(cls, step: StaticStep, begin: int) -> _Room:
        arena = Arena(begin)
        bases = (step.arrays + len(step.sources) + 2) * 8
        return cls(arena.take(step.words.nbytes), arena.take(bases), arena.take(step.scratch_bytes), arena.bytes)


def _shown(name: str) -> str:
    """A value's name as a part of names in the text, which have an end."""
    return f"value.{name[:64]}"


def _address(b: Function, pointer: Value) -> Value:
    return b.cast("ptrtoint", pointer, I64, "address")


def _copy(b: Function, to: Value, what: Value, bytes: int) -> None:
    """So many bytes from an address to another."""
    b.module.declare("llvm.memcpy.p0.p0.i64", "void", [PTR, PTR, I64, "i1 immarg"])
    b.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {what}, i64 {bytes}, i1 false)")
