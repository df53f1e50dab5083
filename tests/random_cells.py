"""Cells drawn by hypothesis from the op table, as Python source, so that a failing one can be read and kept.

Every value has a bound, so that everything stays finite: what would grow too large goes through tanh first. All cells have a
product of a state that a state depends on. The states are `h` (size hidden), perhaps `c` (hidden), `p` (other) and `t` (scalar).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

import anyrnn
from anyrnn.trace import Cell, cell

NAMES = ("y", "d_y", "d_h", "d_x", "out", "work")
"""Names of values that the generated programs may use themselves."""
LIMIT = 6.0
"""No value is larger."""

# op of the table: (source of {0}, {1}..., bound of the result from the bounds of the operands)
UNARY: dict[str, tuple[str, Callable[[float], float]]] = {
    "neg": "-{0}", "abs": "abs({0})", "sign": 'apply("sign", {0})', "floor": "floor({0})", "sqrt": "sqrt(1 + {0} * {0})",
    "exp": "exp(-abs({0}))", "log": "log(1 + abs({0}))", "tanh": "tanh({0})", "sigmoid": "sigmoid({0})",
    "softplus": "softplus({0})", "relu": "relu({0})", "sin": "sin({0})", "cos": "cos({0})",
    "stop_gradient": "stop_gradient({0})", "clip_gradient": "clip_gradient({0}, -0.1, 0.05)",
}  # fmt: skip
BOUNDS: dict[str, Callable[..., float]] = {
    "floor": lambda a: a + 1, "sqrt": lambda a: a + 1, "softplus": lambda a: a + 1, "add": lambda a, b: a + b,
    "sub": lambda a, b: a + b, "mul": lambda a, b: a * b, "div": lambda a, b: a,
}  # fmt: skip
BOUNDED_BY_ONE = ("sign", "exp", "tanh", "sigmoid", "sin", "cos")
BINARY = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / (1 + {1} * {1})", "maximum": "maximum({0}, {1})",
    "minimum": "minimum({0}, {1})", "less": "where({0} < {1}, {0}, 0.5 * {1})", "equal": "where(equal({0}, {1}), {1}, 0.5 * {0})",
    "where": "where({0} > 0.25, {1}, {0})",
}  # fmt: skip
REDUCTIONS = {
    "sum": "total({0}) / 8",
    "mean": "mean({0})",
    "norm": "norm({0})",
    "dot": "mean({0} * {0})",
    "largest": "softmax({0})",
}


def bound(op: str, *bounds: float) -> float:
    return 1.0 if op in BOUNDED_BY_ONE else BOUNDS[op](*bounds) if op in BOUNDS else max(bounds)


@dataclass
class Value:
    name: str
    size: str | None
    """None for a scalar of each sample"""
    bound: float


@dataclass
class Program:
    """A cell's source while it is drawn."""

    draw: Any
    values: list[Value] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    counter: Any = field(default_factory=itertools.count)

    def new(self, text: str, size: str | None, bound: float) -> Value:
        if bound > LIMIT:
            text, bound = f"tanh({text})", 1.0
        value = Value(self.pick(NAMES) if self.pick([True, *[False] * 9]) else f"v{next(self.counter)}", size, bound)
        if any(v.name == value.name for v in self.values):
            value = Value(f"v{next(self.counter)}", size, bound)
        self.lines.append(f"{value.name} = {text}")
        self.values.append(value)
        return value

    def any(self, size: str | None = "any") -> Value:
        """Some value of a size; the newer ones are the likelier."""
        fits = [v for v in self.values if v.size == size or (size == "any" and v.size is not None)]
        chosen: Value = self.draw(st.sampled_from(fits[::-1]))
        return chosen

    def pick(self, choices: Any) -> Any:
        return self.draw(st.sampled_from(list(choices)))

    def two_gates(self, size: str, *operands: str) -> str:
        """A product for two gates at once."""
        number = next(self.counter)
        return f'affine("a{number} b{number}", {", ".join(operands)}, size="{size}")'

    def affine(self, size: str, *operands: str) -> str:
        heads = f', size="{size}"' if size != "hidden" else ""
        bias = ", bias=False" if self.pick([False, False, True]) else ""
        return f'affine("g{next(self.counter)}", {", ".join(operands)}{heads}{bias})'

    # one line each

    def elementwise(self) -> Value:
        value = self.any()
        op = self.pick([*UNARY, *BINARY])
        if op in UNARY:
            return self.new(UNARY[op].format(value.name), value.size, bound(op, value.bound))
        other = self.any(self.pick([value.size, None] if any(v.size is None for v in self.values) else [value.size]))
        names = (value, other) if self.pick([True, False]) or other.size is None else (other, value)
        return self.new(BINARY[op].format(*(v.name for v in names)), value.size, bound(op, *(v.bound for v in names)))

    def choice(self) -> Value:
        """Between two values, by a test of numbers that every feature shares."""
        value, other = self.any(), self.any()
        number = next(self.counter)
        test = self.pick([f"mean({other.name}) > 0.1", f"mean({value.name}) < mean({other.name})", f'scalar("k{number}") < rate'])
        return self.new(f"where({test}, {value.name}, 0.5 * {value.name})", value.size, value.bound)

    def parameter(self) -> Value:
        value = self.any()
        number, size = next(self.counter), f'"{value.size}"'
        text = self.pick([
            f'vector("b{number}", {size}) * {{0}}', f'{{0}} + vector("b{number}", {size})',
            f'{{0}} * scalar("s{number}")', f'exp(-exp(vector("b{number}", {size}))) * {{0}}', "rate * {0}",
        ])  # fmt: skip
        return self.new(text.format(value.name), value.size, value.bound + 1)

    def product(self) -> Value:
        size = self.pick(self.sizes())
        kind = self.pick(["gate", "gate", "gates", "matrix", "transposed"])
        value, number = self.any(), next(self.counter)
        if kind == "gate":
            activation = self.pick(["tanh", "sigmoid", "sin"])
            return self.new(f"{activation}({self.affine(size, *self.operands())})", size, 1.0)
        if kind == "gates":
            self.lines.append(f"q{number} = {self.two_gates(size, 'x', value.name)}")
            return self.new(f"tanh(split(q{number}, 2)[0]) * sigmoid(split(q{number}, 2)[1])", size, 1.0)
        if kind == "matrix":
            return self.new(f'tanh(matrix("W{number}", "{size}", "{value.size}") @ {value.name})', size, 1.0)
        return self.new(f'tanh(matrix("W{number}", "{value.size}", "{size}").T @ {value.name})', size, 1.0)

    def moved(self) -> Value:
        """Features in other places: rolled by one, of two values, or of several that are joined for a product or cut again."""
        value, other = self.any(), self.any()
        size, number = self.pick(self.sizes()), next(self.counter)
        first, second = (self.any(size).name for _ in range(2))
        kind = self.pick(["rolled", "of two", "multiplied", "cut"])
        if kind == "multiplied":
            self.lines.append(f"q{number} = concat({value.name}, {other.name})")
            return self.new(f"tanh({self.affine(size, f'q{number}')})", size, 1.0)
        if kind == "cut":
            self.lines.append(f"q{number} = concat({first}, {value.name}, {second})")
            sizes = f'[1, "{size} - 1", "{value.size} + 1", "{size} - 1"]'
            return self.new(f"concat(*split(tanh(q{number}), {sizes})[:2])", size, 1.0)
        parts = [f'split({name}, [1, "{size} - 1"])' for name in ((first, first) if kind == "rolled" else (first, second))]
        return self.new(f"sin(concat({parts[0]}[1], {parts[1]}[0]))", size, 1.0)

    def reduction(self) -> Value:
        value = self.any()
        kind = self.pick(REDUCTIONS)
        text = REDUCTIONS[kind].format(value.name)
        if kind in ("norm", "largest"):
            return self.new(f"tanh({text})", value.size, 1.0)
        return self.new(text, None, value.bound**2 if kind == "dot" else 2 * value.bound)

    def operands(self) -> list[str]:
        count = self.pick([1, 2, 3])
        return list(dict.fromkeys(self.any().name for _ in range(count)))

    def sizes(self) -> list[str]:
        return list(dict.fromkeys(v.size for v in self.values if v.size not in (None, "input")))

    def new_state(self, state: str, size: str) -> None:
        """A bounded new value for a state: of the old one and something new, or any value at all."""
        value = self.any(size)
        if state != "h" and self.pick([True, False, False]) and value.bound <= 1:
            self.lines.append(f"new_{state} = {value.name}")
            return
        scaled = f"tanh({value.name})" if value.bound > 2 else value.name
        mixed = f"0.5 * {state} + 0.5 * {scaled}"
        gated = f"sigmoid({self.affine(size, 'x', state)}) * {state} + 0.5 * {scaled}"
        whole = self.pick([f"tanh({mixed})", f"tanh({scaled})", f"tanh({gated})", f"sigmoid({scaled}) - 0.5 * sigmoid({state})"])
        self.lines.append(f"new_{state} = {whole}")


@st.composite
def sources(draw: Any, two_stages: bool, reduces: bool, two_sizes: bool) -> str:
    """The source of a cell, named `drawn`: with a product of what a product of a state has made, with a reduction on which a
    state depends, with states of two sizes.
    """
    program = Program(draw)
    states = {"h": "hidden"}
    states |= {"c": "hidden"} if draw(st.booleans()) else {}
    states |= {"p": "other"} if two_sizes else {}
    counts = draw(st.booleans())
    program.values = [Value("x", "input", 4.0)] + [Value(name, size, 1.0) for name, size in states.items()]
    program.values += [Value("t", None, 1.0)] if counts else []
    for _ in range(draw(st.integers(1, 4))):
        getattr(program, program.pick(["elementwise", "elementwise", "parameter", "product", "product", "choice", "moved"]))()
    reduced = program.reduction() if reduces else None
    state, size = program.pick(states.items())
    inner = f"sigmoid({program.affine(size, 'x', state)}) * {state}"
    if two_stages:
        program.lines.append(f"reset = {inner}")
    recurrent = program.affine("hidden", *dict.fromkeys(["x", "reset" if two_stages else state, program.any().name]))
    newest = program.new(f"tanh({recurrent})", "hidden", 1.0)
    for _ in range(draw(st.integers(0, 2))):
        getattr(program, program.pick(["elementwise", "parameter"]))()
    for name, of in states.items():
        program.new_state(name, of)
    output = program.any(program.pick(program.sizes())).name
    more = "" if reduced is None else f" + {reduced.name}" if reduced.size in (None, "hidden") else f" + mean({reduced.name})"
    program.lines.append(f"new_h = tanh(new_h + {newest.name}{more})")
    arguments = ["x", *(f'{name}: Vec("{of}", init={draw(st.sampled_from([0.0, 0.5]))})' for name, of in states.items())]
    returned = ", ".join(f"{name}=new_{name}" for name in states)
    if counts:
        arguments.append("t: Scalar(init=0.25)")
        more = draw(st.sampled_from(["", " * sin(mean(h))", " * sin(mean(new_h))"]))
        returned += f", t=0.5 * t + 0.25{more}"
    body = "".join(f"    {line}\n" for line in program.lines)
    return f"def drawn({', '.join(arguments)}, *, rate=0.5):\n{body}    return {output}, State({returned})\n"


def cell_of(source: str) -> Cell:
    """The cell that a source defines."""
    names = {name: getattr(anyrnn, name) for name in dir(anyrnn) if not name.startswith("_")}
    exec(compile(source, "<drawn>", "exec"), names)
    made: Cell = cell(names["drawn"])
    return made
