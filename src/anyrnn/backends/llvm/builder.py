"""Writes LLVM IR as text: SSA names taken from the values' own names, loops in rotated form, vectors of one width.

Text, because it is what one reads when a kernel is slow; the parser of LLVM is the checker.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_float
from dataclasses import dataclass, field
from functools import lru_cache

FLOAT_BITS = {"float": 32, "double": 64}
LOOP_BYTES = 64
"""What innermost loops are aligned to: of short ones, where they begin in a line decided over up to a tenth of their time."""


class Value(str):
    """The name of an SSA value (or a constant's text), with its LLVM type."""

    __slots__ = ("type",)
    type: str

    def __new__(cls, text: str, type: str) -> Value:
        value = super().__new__(cls, text)
        value.type = type
        return value

    @property
    def typed(self) -> str:
        return f"{self.type} {self!s}"


@lru_cache(maxsize=4096)
def _spelled(name: str) -> str:
    """A name as LLVM takes it."""
    return re.sub(r"^(?=\d)|[^A-Za-z0-9_.]+", "_", name)


Emit = Callable[[], Sequence[Value] | None]
"""Emits code, and gives what it has computed."""


def vector(element: str, lanes: int) -> str:
    return f"<{lanes} x {element}>"


def element_of(type: str) -> str:
    """The element of a vector type, or the type itself."""
    return type[1:-1].split(" x ")[1] if type.startswith("<") else type


def lanes_of(type: str) -> int:
    return int(type[1:].split(" ", 1)[0]) if type.startswith("<") else 1


def suffix(type: str) -> str:
    """How intrinsics spell a type: `v16f32`, `f64`, `v8i1`."""
    element = element_of(type)
    short = {"float": "f32", "double": "f64"}.get(element, element)
    return f"v{lanes_of(type)}{short}" if type.startswith("<") else short


def number(element: str, value: float | int) -> str:
    """A scalar constant's text; floats as their exact bits."""
    if element == "float":
        value = c_float(value).value  # infinite where it is too large
    if element in FLOAT_BITS:
        return f"0x{struct.unpack('Q', struct.pack('d', value))[0]:016X}"
    return str(int(value))


def const(type: str, value: float | int) -> Value:
    """A constant of a scalar or vector type."""
    text = number(element_of(type), value)
    return Value(f"splat ({element_of(type)} {text})" if type.startswith("<") else text, type)


I64 = "i64"
PTR = "ptr"
TRUE, FALSE, NULL = Value("true", "i1"), Value("false", "i1"), Value("null", PTR)


def i64(value: int | Value) -> Value:
    return value if isinstance(value, Value) else Value(str(value), I64)


@dataclass
class Loop:
    """An open loop: its index, the carried values inside it, and what is needed to close it.

    The phis, of the index and then of the carried values, stand from line `first_phi` on; they are written when the loop is
    closed.
    """

    index: Value
    values: list[Value]
    body: str
    exit: str
    entry: str
    initial: list[Value]
    stop: Value
    step: Value
    first_phi: int
    guarded: bool
    innermost: bool = True


@dataclass
class Module:
    """Functions and the intrinsics that they declare. `fused` says whether the machine has a fused multiply-add, `caches` whether
    it has caches: else nothing is fetched ahead, and loops begin anywhere.
    """

    fused: bool = True
    caches: bool = True
    functions: list[Function] = field(default_factory=list)
    declarations: dict[str, str] = field(default_factory=dict)
    verbatim: list[str] = field(default_factory=list)
    aligned_loops: int = 0

    def function(
        self,
        name: str,
        parameters: Sequence[tuple[str, str]],
        internal: bool = True,
        directs: bool = False,
        returns: str = "void",
    ) -> Function:
        """`directs`: its time is that of the functions it calls, so LLVM need not look for good code, which takes longer."""
        function = Function(self, name, parameters, internal, directs, returns)
        self.functions.append(function)
        return function

    def declare(self, name: str, returns: str, arguments: Sequence[str]) -> None:
        self.declarations.setdefault(name, f"declare {returns} @{name}({', '.join(arguments)})")

    def __str__(self) -> str:
        aligned = [f'!0 = !{{!"llvm.loop.align", i32 {LOOP_BYTES}}}']
        aligned += [f"!{k} = distinct !{{!{k}, !0}}" for k in range(1, self.aligned_loops + 1)]
        parts = [*self.declarations.values(), *self.verbatim, *(str(f) for f in self.functions), *aligned]
        return "\n".join(parts) + "\n"


class Function:
    """Builds one function. Every method that makes a value takes the name that the value shall carry."""

    def __init__(
        self,
        module: Module,
        name: str,
        parameters: Sequence[tuple[str, str]],
        internal: bool,
        directs: bool,
        returns: str,
    ) -> None:
        self.module = module
        self.name = name
        self.returns = returns
        self.linkage = "internal " if internal else ""
        self.attributes = "nounwind noinline optnone" if directs else "nounwind"
        self._used: dict[str, int] = {}
        self.arguments = [Value("%" + self._fresh(label), type.split(" ")[0]) for type, label in parameters]
        self._signature = ", ".join(f"{type} {value}" for (type, _), value in zip(parameters, self.arguments, strict=True))
        self.open: list[Loop] = []
        self.lines: list[str] = []
        self.current = ""
        self.place(self.label("entry"))

    def __str__(self) -> str:
        body = "\n".join(self.lines)
        return f"define {self.linkage}{self.returns} @{self.name}({self._signature}) {self.attributes} {{\n{body}\n}}\n"

    # names, blocks, raw text

    def _fresh(self, name: str) -> str:
        name = _spelled(name)
        while count := self._used.get(name, 0):
            self._used[name] = count + 1
            name = f"{name}.{count}"
        self._used[name] = 1
        return name

    def label(self, name: str) -> str:
        return self._fresh(name)

    def place(self, label: str) -> None:
        """Start a block. The one before must have been ended by a branch."""
        self.lines.append(f"{label}:")
        self.current = label

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def value(self, type: str, text: str, name: str = "v") -> Value:
        result = Value("%" + self._fresh(name), type)
        self.line(f"{result} = {text}")
        return result

    # arithmetic

    def binary(self, op: str, a: Value, b: Value, name: str = "v") -> Value:
        return self.value(a.type, f"{op} {a.typed}, {b}", name)

    def fadd(self, a: Value, b: Value, name: str = "sum") -> Value:
        return self.binary("fadd", a, b, name)

    def fsub(self, a: Value, b: Value, name: str = "difference") -> Value:
        return self.binary("fsub", a, b, name)

    def fmul(self, a: Value, b: Value, name: str = "product") -> Value:
        return self.binary("fmul", a, b, name)

    def fdiv(self, a: Value, b: Value, name: str = "quotient") -> Value:
        return self.binary("fdiv", a, b, name)

    def fneg(self, a: Value, name: str = "negative") -> Value:
        return self.value(a.type, f"fneg {a.typed}", name)

    def fma(self, a: Value, b: Value, c: Value, name: str = "fma") -> Value:
        """a * b + c, rounded once where the machine can."""
        return self.intrinsic("llvm.fma" if self.module.fused else "llvm.fmuladd", a.type, [a, b, c], name)

    def intrinsic(self, base: str, type: str, arguments: Sequence[Value], name: str = "v") -> Value:
        """Call an intrinsic overloaded on its result type, such as `llvm.sqrt`."""
        full = f"{base}.{suffix(type)}"
        self.module.declare(full, type, [a.type for a in arguments])
        return self.value(type, f"call {type} @{full}({', '.join(a.typed for a in arguments)})", name)

    def call(self, name: str, arguments: Sequence[Value]) -> None:
        """Call a function of this module."""
        self.line(f"call void @{name}({', '.join(a.typed for a in arguments)})")

    def compare(self, predicate: str, a: Value, b: Value, name: str = "test") -> Value:
        """`predicate` such as `olt` (floats) or `slt`, `eq` (integers)."""
        is_float = element_of(a.type) in FLOAT_BITS
        result = vector("i1", lanes_of(a.type)) if a.type.startswith("<") else "i1"
        return self.value(result, f"{'fcmp' if is_float else 'icmp'} {predicate} {a.typed}, {b}", name)

    def select(self, test: Value, a: Value, b: Value, name: str = "v") -> Value:
        return self.value(a.type, f"select {test.typed}, {a.typed}, {b.typed}", name)

    def cast(self, op: str, a: Value, type: str, name: str = "v") -> Value:
        """`bitcast`, `sitofp`, `fptosi`, `zext`, `trunc`, ..."""
        return self.value(type, f"{op} {a.typed} to {type}", name)

    def splat(self, scalar: Value, lanes: int, name: str = "splat") -> Value:
        type = vector(scalar.type, lanes)
        first = self.value(type, f"insertelement {type} poison, {scalar.typed}, i64 0", name)
        return self.value(type, f"shufflevector {type} {first}, {type} poison, <{lanes} x i32> zeroinitializer", name)

    # integers

    def add(self, a: Value, b: int | Value, name: str = "i") -> Value:
        return self.binary("add", a, _like(a, b), name)

    def sub(self, a: Value, b: int | Value, name: str = "i") -> Value:
        return self.binary("sub", a, _like(a, b), name)

    def mul(self, a: Value, b: int | Value, name: str = "i") -> Value:
        if isinstance(b, int) and a.isdigit():  # a constant too, which then stays a part of instructions
            return Value(str(int(a) * b), a.type)
        return self.binary("mul", a, _like(a, b), name)

    def minimum(self, a: Value, b: int | Value, name: str = "least") -> Value:
        other = _like(a, b)
        return self.select(self.compare("slt", a, other), a, other, name)

    def maximum(self, a: Value, b: int | Value, name: str = "most") -> Value:
        other = _like(a, b)
        return self.select(self.compare("sgt", a, other), a, other, name)

    # memory

    def at(self, pointer: Value, index: int | Value, element: str, name: str = "p") -> Value:
        """The address of `pointer[index]`, in elements of `element`."""
        return self.value(PTR, f"getelementptr {element}, ptr {pointer}, {i64(index).typed}", name)

    def load(self, type: str, pointer: Value, name: str = "v", align: int | None = None) -> Value:
        return self.value(type, f"load {type}, ptr {pointer}, align {align or _natural(type)}", name)

    def word(self, words: Value, index: int, name: str, type: str = I64) -> Value:
        """One of an array of 64-bit words, which may be an address."""
        return self.load(type, self.at(words, index, I64, f"{name}.word"), name)

    def store(self, value: Value, pointer: Value, align: int | None = None) -> None:
        self.line(f"store {value.typed}, ptr {pointer}, align {align or _natural(value.type)}")

    def masked_load(self, type: str, pointer: Value, mask: Value, name: str = "v") -> Value:
        """Lanes whose mask is false read nothing and are zero."""
        full = f"llvm.masked.load.{suffix(type)}.p0"
        self.module.declare(full, type, [PTR, "i32 immarg", mask.type, type])
        arguments = f"ptr {pointer}, i32 {_natural(type)}, {mask.typed}, {type} zeroinitializer"
        return self.value(type, f"call {type} @{full}({arguments})", name)

    def masked_store(self, value: Value, pointer: Value, mask: Value) -> None:
        full = f"llvm.masked.store.{suffix(value.type)}.p0"
        self.module.declare(full, "void", [value.type, PTR, "i32 immarg", mask.type])
        self.line(f"call void @{full}({value.typed}, ptr {pointer}, i32 {_natural(value.type)}, {mask.typed})")

    def prefetch(self, pointer: Value, level: int = 1) -> None:
        """Bring a cache line near, to some level of cache; any address will do."""
        if not self.module.caches:
            return
        self.module.declare("llvm.prefetch.p0", "void", [PTR, "i32 immarg", "i32 immarg", "i32 immarg"])
        self.line(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 {4 - level}, i32 1)")

    def ceil_div(self, a: Value, b: int | Value, name: str = "v") -> Value:
        """The quotient of an integer that is not negative, rounded up."""
        if b == 1:
            return a
        divisor = i64(b)
        less = self.sub(divisor, 1) if isinstance(b, Value) else b - 1
        return self.binary("sdiv", self.add(a, less), divisor, name)

    # control

    def branch(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch_if(self, test: Value, then: str, otherwise: str) -> None:
        self.line(f"br i1 {test}, label %{then}, label %{otherwise}")

    def phi(self, type: str, incoming: Sequence[tuple[Value, str]], name: str = "v") -> Value:
        return self.value(type, f"phi {type} " + ", ".join(f"[ {v}, %{label} ]" for v, label in incoming), name)

    @contextmanager
    def only_if(self, test: Value, name: str) -> Iterator[None]:
        """What is emitted inside runs when the test holds."""
        then, after = self.label(name), self.label(f"after_{name}")
        self.branch_if(test, then, after)
        self.place(then)
        yield
        self.branch(after)
        self.place(after)

    def either(
        self, test: Value, then: Emit, otherwise: Emit, names: tuple[str, str] = ("then", "otherwise"), name: str = "v"
    ) -> list[Value]:
        """The values of one of two pieces of code, if they give some; `names` of the pieces, `name` of the values."""
        ways, done = [self.label(way) for way in names], self.label("done")
        self.branch_if(test, *ways)
        found = []
        for label, emit in zip(ways, (then, otherwise), strict=True):
            self.place(label)
            values = emit() or []
            found.append([(value, self.current) for value in values])
            self.branch(done)
        self.place(done)
        return [self.phi(first[0].type, [first, second], name) for first, second in zip(*found, strict=True)]

    def ret(self, value: Value | None = None) -> None:
        self.line(f"ret {'void' if value is None else value.typed}")

    def loop(
        self,
        name: str,
        start: int | Value,
        stop: Value,
        step: int | Value = 1,
        carried: Sequence[tuple[str, Value]] = (),
        once: bool = False,
    ) -> Loop:
        """Open `for name in range(start, stop, step)`; `carried` are (name, initial value) of what goes round, and `once` says
        that there is at least one round.
        """
        start, step = i64(start), i64(step)
        body, exit, entry = self.label(f"{name}.body"), self.label(f"{name}.exit"), self.current
        if once:
            self.branch(body)
        else:
            self.branch_if(self.compare("slt", start, stop, f"{name}.any"), body, exit)
        self.place(body)
        first_phi = len(self.lines)
        index = self.value(I64, "", name)
        values = [self.value(initial.type, "", label) for label, initial in carried]
        initial = [start, *(v for _, v in carried)]
        if self.open:
            self.open[-1].innermost = False
        self.open.append(Loop(index, values, body, exit, entry, initial, stop, step, first_phi, not once))
        return self.open[-1]

    def end(self, loop: Loop, following: Sequence[Value] = ()) -> list[Value]:
        """Close a loop with the carried values of the next round; returns them as they are after the loop."""
        index_next = self.add(loop.index, loop.step, f"{loop.index[1:]}.next")
        again = self.compare("slt", index_next, loop.stop, "again")
        latch = self.current
        self.branch_if(again, loop.body, loop.exit)
        assert self.open.pop() is loop
        if loop.innermost and self.module.caches:
            self.module.aligned_loops += 1
            self.lines[-1] += f", !llvm.loop !{self.module.aligned_loops}"
        carried = zip([loop.index, *loop.values], loop.initial, [index_next, *following], strict=True)
        for position, (value, initial, after) in enumerate(carried):
            incoming = f"[ {initial}, %{loop.entry} ], [ {after}, %{latch} ]"
            self.lines[loop.first_phi + position] = f"  {value} = phi {value.type} {incoming}"
        self.place(loop.exit)
        if not loop.guarded:
            return list(following)
        return [
            self.phi(initial.type, [(initial, loop.entry), (after, latch)], f"{value[1:]}.final")
            for value, initial, after in zip(loop.values, loop.initial[1:], following, strict=True)
        ]


def _like(a: Value, b: int | Value) -> Value:
    return b if isinstance(b, Value) else const(a.type, b)


def _natural(type: str) -> int:
    """The alignment that every address of such elements has."""
    element = element_of(type)
    return {"float": 4, "double": 8, "ptr": 8, "i64": 8, "i32": 4, "bfloat": 2, "i8": 1, "i1": 1}[element]
