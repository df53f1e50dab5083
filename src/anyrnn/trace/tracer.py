"""Runs a cell's function once on symbols. Keeps what the function does not say in so many words: which rows of which
tensor belong to which gate, the user's line of every op, and the user's name of every value.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

from anyrnn.errors import CellError
from anyrnn.ir.dims import Dim, Shape, shape_text
from anyrnn.ir.graph import Builder, Parameter
from anyrnn.ir.symbol import Symbol
from anyrnn.trace.initial import check_init

PACKAGE = str(Path(__file__).parents[1]) + os.sep
CELLS = str(Path(PACKAGE, "cells")) + os.sep
PYTHON = str(Path(os.__file__).parent) + os.sep
FOREIGN = ("torch", "numpy", "jax", "keras")
"""Libraries whose functions call ours: those that were called on a cell's values by mistake."""
CURRENT: ContextVar[Tracer] = ContextVar("tracer")


def current(who: str) -> Tracer:
    """The tracer at work. Raises CellError outside of a cell."""
    tracer = CURRENT.get(None)
    if tracer is None:
        raise CellError(f"{who} can only be called inside a cell's function, while the cell is being traced")
    return tracer


def tracing() -> bool:
    return CURRENT.get(None) is not None


def user_frames() -> list[FrameType]:
    """The frames of the cell's code, from the innermost to the cell's function itself."""
    frame: FrameType | None = sys._getframe(1)
    found: list[FrameType] = []
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(PACKAGE) and frame.f_code.co_name == "_trace":
            return found
        if _is_users(frame):
            found.append(frame)
        frame = frame.f_back
    return found


def place_of_error(error: BaseException) -> str | None:
    """The file and line of a cell's code in which Python's own error was raised; None if it was raised elsewhere."""
    found, inside = None, False
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = frame.f_code.co_filename
        inside = inside or (path.startswith(PACKAGE) and frame.f_code.co_name == "_trace")
        if inside and _is_users(frame):
            found = f"{path}:{line}"
    return found


def _is_users(frame: FrameType) -> bool:
    """Whether it is of a cell's code, or of what that calls; not of this package, of those that it is made of, or of Python."""
    return _are_users(frame.f_code.co_filename, frame.f_globals.get("__name__", ""))


@lru_cache(maxsize=1024)
def _are_users(path: str, module: str) -> bool:
    """Likewise, of the frames of a module in a file."""
    if path.startswith("<frozen ") or (path.startswith(PYTHON) and "site-packages" not in path):
        return False
    foreign = module.partition(".")[0] in FOREIGN
    return path.startswith(CELLS) or not (foreign or path.startswith(PACKAGE))


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _variable_of(value: Symbol) -> str:
    """The variable of the innermost frame that holds this very object: equal values are one node, under the first one's name."""
    frames = user_frames()
    return next((name for name, held in frames[0].f_locals.items() if held is value), "") if frames else ""


INPUT = "i"
"""How weights call the input."""


def _compared(one: Parameter, other: Parameter) -> dict[str, bool]:
    """What two declarations of a parameter have in common. Functions that make first values are not compared."""
    begins = callable(one.init) and callable(other.init)
    return {
        "shapes": one.shape == other.shape,
        "first values": begins or one.init == other.init,
        "values of trained": one.trained == other.trained,
    }


@dataclass
class Stack:
    """The rows of a stacked parameter: a gate after the other, in order of first use."""

    offset: Dim = field(default_factory=Dim)
    gates: dict[str, tuple[Dim, Dim]] = field(default_factory=dict)
    inits: dict[str, list[tuple[str, Mapping[str, Any]]]] = field(default_factory=dict)
    """By gate, what the cells say of first values in which it was asked for, the outermost first; each with its prefix."""

    def rows(self, gate: str, size: Dim, inits: list[tuple[str, Mapping[str, Any]]]) -> tuple[Dim, Dim]:
        """Offset and size of a gate's rows; a new gate is put below the others."""
        if gate not in self.gates:
            self.gates[gate] = (self.offset, size)
            self.offset = self.offset + size
        self.inits.setdefault(gate, []).extend(one for one in inits if one not in self.inits[gate])
        return self.gates[gate]

    def each(self) -> tuple[tuple[str, Dim], ...]:
        """The gates from top to bottom, with their sizes."""
        return tuple((name, size / len(names.split())) for names, (_, size) in self.gates.items() for name in names.split())


def _begins(name: str, gate: str, inits: Sequence[tuple[str, Mapping[str, Any]]]) -> Any:
    """What a gate's rows of a stacked parameter begin as; None for the layer's default."""
    for prefix, init in inits:
        own = name.removeprefix(prefix)
        for key in (f"{own} {gate}", own):
            if name.startswith(prefix) and key in init:
                return init[key]
    return None


@dataclass
class Stacks:
    """Those of one operand. A gate has rows where it has a matrix, or a bias."""

    columns: Dim
    heads: int
    sizes: dict[str, Dim] = field(default_factory=dict)
    """By gate."""
    weight: Stack = field(default_factory=Stack)
    bias: Stack = field(default_factory=Stack)


@dataclass(frozen=True)
class ProductRule:
    """What a wrapper changes of every `affine` inside of a cell. Each function gets the gate's name first."""

    product: Callable[[str, str, Symbol, int], Symbol | None] = lambda gate, key, operand, gates: None
    """In place of an operand's product with its matrix; None for the product. Gets the operand's name, and of how many gates of
    its size the result is to be; None, too, where the gates are of another size.
    """
    each: Callable[[str, str, Symbol], Symbol] = lambda gate, key, product: product
    """What becomes of one product; gets the operand's name."""
    combined: Callable[[str, Mapping[str, Symbol]], Symbol | None] = lambda gate, products: None
    """In place of the sum of all products, by the operands' names; None for the sum."""


class Tracer(Builder):
    """A Builder that knows the names of the language."""

    def __init__(self, name: str, bias: str, init: Mapping[str, Any]) -> None:
        super().__init__()
        self.name = name
        self.bias = bias
        self.skipped: int | None = None
        """The layer's input, if it enters gates as it is."""
        self.stacks: dict[tuple[str, str], Stacks] = {}
        self.declared: dict[str, Parameter] = {}
        self.prefix = ""
        self.inits = [("", init)]
        """What cells say that parameters begin as, each with the scope in which it was called; the outermost cell first."""
        self.rules: list[ProductRule] = []
        """From the outermost wrapper to the innermost."""
        self.applied: set[ProductRule] = set()
        """Those that have changed something."""
        self.warnings: list[tuple[str, str]] = []
        self._noted: dict[object, tuple[str, ...]] = {}
        self._called_twice: set[tuple[str, str]] = set()
        """Where a cell was called, or a gate asked for, first."""
        self.gate_names: dict[int, str] = {}
        self.helper_names: dict[int, str] = {}
        self.sizes: Mapping[str, Dim] = {}
        """What named sizes are here: those that hyper-parameters say, and of a cell within the cell all."""
        self.rule: ProductRule | None = None
        """The one that is at work."""
        self.declared_by: dict[str, ProductRule | None] = {}
        self.declared_in: dict[str, str] = {}
        """By name, the prefix of the scope."""
        self.joins: dict[str, tuple[str, ...]] = {}
        """By name, the parts that a wrapper has joined."""
        self.scopes: dict[str, object] = {}
        """By prefix, whose they are: a wrapper's, or None for those of cells."""
        self.around: dict[str, str] = {}
        """By the prefix of a scope, that of the scope around it."""
        self.operand_keys: list[tuple[Symbol, str]] = []
        """How weights call the inputs and the states: INPUT for x, the argument's name for others. These objects themselves: a
        cell within may make a value that is equal to what it was given, which has a name of its own.
        """

    @contextmanager
    def at_work(self) -> Iterator[None]:
        token = CURRENT.set(self)
        try:
            yield
        finally:
            CURRENT.reset(token)

    @contextmanager
    def within(self, **changed: Any) -> Iterator[None]:
        """Meanwhile some of what it goes by (`prefix`, `inits`, `sizes`, `operand_keys`, `rules`, `rule`) is something else."""
        before = {name: getattr(self, name) for name in changed}
        vars(self).update(changed)
        try:
            yield
        finally:
            vars(self).update(before)

    def called(
        self,
        cell: str,
        arguments: Mapping[str, Symbol | None],
        shapes: Mapping[str, Shape],
        init: Mapping[str, Any],
        counts: Mapping[str, Dim],
    ) -> AbstractContextManager[None]:
        """Weights call a cell's arguments as that cell does, whatever they are here, its named sizes are those of what it is
        given, and its gates begin as its `init` says. `shapes` are those of its arguments, as it declares them; the first one is
        the input. `counts` are the sizes that its hyper-parameters say.
        """
        keys: list[tuple[Symbol, str]] = []
        sizes = dict(counts)
        for position, (name, value) in enumerate(arguments.items()):
            if value is None:
                continue
            if value.index in [given.index for given, _ in keys]:
                other = next(n for n, v in arguments.items() if v is not None and v.index == value.index)
                apart = "their weights could not be told apart"
                raise CellError(self.located(f"cell {cell!r} is given one value for {other} and {name}: {apart}"))
            keys.append((value, name if position else INPUT))
            for size, dim in zip(shapes[name], value.shape, strict=False):
                if str(size).isidentifier() and sizes.setdefault(str(size), dim) != dim:
                    both = f"{sizes[str(size)]} and {dim}"
                    raise CellError(self.located(f"cell {cell!r} is given {both} features for what is all of size {size}"))
        return self.within(operand_keys=keys, sizes=sizes, inits=[*self.inits, (self.prefix, init)])

    def make(self, *args: Any, **kwargs: Any) -> Symbol:
        self.look_up()
        return super().make(*args, **kwargs)

    def located(self, message: str) -> str:
        frames = user_frames()
        self.look_up()
        if len(frames) > 1 and frames[0].f_code.co_filename.startswith(CELLS):
            return f"{_place(frames[-1])}: {message} (in {_place(frames[0])})"
        return super().located(message)

    def note_call(self, cell: str) -> None:
        """Warn of a cell that is called once more in the same scope, on another line."""
        then = "they share all parameters (`scope` keeps them apart)"
        self._note([("a cell", self.prefix, cell)], f"cell {cell!r} is called", then, of_cell=True)

    def note_gates(self, gates: Sequence[str], operands: Sequence[tuple[str, Symbol]]) -> None:
        """Warn of gates that are asked for once more on another line, of the same operands or of others with the same weights."""
        values = [(name, value.index) for name, value in operands]
        again = [gate for gate in gates if (self.prefix, gate, *values) in self._noted]
        others = [gate for gate in gates if gate not in again]
        what = f"gate {' '.join(again)!r} of {', '.join(value.label for _, value in operands)} is asked for"
        self._note([(self.prefix, gate, *values) for gate in again], what, "it is the same value")
        weights = [(self.prefix, gate, name) for gate in others for name, _ in values]
        self._note(weights, f"gate {' '.join(others)!r} is asked for", "they share its weights")
        self._note([(self.prefix, gate, *values) for gate in others])

    def _note(self, keys: Sequence[object], what: str = "", then: str = "", of_cell: bool = False) -> None:
        """Warn when one of the keys has been noted on another line: of the outermost of the user's functions that has two. Of a
        cell's call once, not of each gate in it too.
        """
        places = tuple(map(_place, reversed(user_frames())))
        before = next((self._noted[key] for key in keys if key in self._noted), places)
        for key in keys:
            self._noted.setdefault(key, places)
        pair = next((pair for pair in zip(before, places, strict=False) if pair[0] != pair[1]), None)
        if pair is None or pair[0].startswith(CELLS) or pair in self._called_twice:
            return
        if of_cell:
            self._called_twice.add(pair)
        lines = " and ".join(place.rpartition(":")[2] for place in pair)
        self.warnings.append((pair[1], f"{what} in lines {lines}: {then}"))

    def label(self, index: int) -> str:
        return self.nodes[index].name or self.gate_names.get(index) or super().label(index)

    def look_up(self) -> None:
        """Note the user's line, and the names that the user has given to values by now."""
        frames = user_frames()
        if not frames:
            return
        self.source = _place(frames[0])
        for frame in frames:
            for name, value in frame.f_locals.items():
                if isinstance(value, Symbol) and value.builder is self:
                    if frame is frames[-1]:
                        self.rename(value.index, name)
                    else:
                        self.helper_names.setdefault(value.index, name)

    def parameter(self, name: str, shape: tuple[Dim, ...], init: Any, trained: bool) -> Symbol:
        """A parameter declared by the cell."""
        self.look_up()
        full = f"{self.prefix}{name}"
        try:
            check_init(init, f"init of parameter {full!r}")
        except CellError as error:
            raise CellError(self.located(str(error))) from None
        if not full.isidentifier():
            raise CellError(self.located(f"the name of a parameter should be that of a Python variable, got {full!r}"))
        self._keep_apart(full, self._stacked())
        parameter = Parameter(full, shape, init, trained=trained)
        known = self.declared.setdefault(full, parameter)
        what = next((what for what, same in _compared(known, parameter).items() if not same), None)
        if what is not None:
            both = f", {shape_text(known.shape)} and {shape_text(shape)}" if what == "shapes" else ""
            raise CellError(self.located(f"parameter {full!r} is declared twice with different {what}{both}"))
        if self.declared_by.setdefault(full, self.rule) is not self.rule:
            both = "by the cell and by a wrapper, or by two wrappers of one kind"
            raise CellError(self.located(f"parameter {full!r} is declared twice, {both}"))
        if self.declared_in.setdefault(full, self.prefix) != self.prefix:
            raise CellError(self.located(f"parameter {full!r} is declared twice, in two scopes"))
        leaf = self.leaf("parameter", full, shape, per_sample=False)
        return leaf if trained else self.apply("stop_gradient", leaf)

    def joined(self, *parts: str) -> str:
        """The name of a parameter that a wrapper makes for some parts. Raises: CellError where others have made the same name."""
        name = "_".join(parts)
        if self.joins.setdefault(f"{self.prefix}{name}", parts) != parts:
            both = " and ".join(" ".join(of[1:]) for of in (self.joins[f"{self.prefix}{name}"], parts))
            raise CellError(self.located(f"parameter {name!r} of a wrapper would be two, of {both}: give a gate another name"))
        return name

    def _stacked(self, but: tuple[str, str] | None = None) -> set[str]:
        """The names of the tensors that affine has made, `but` those of one scope and operand."""
        made = (
            (f"{prefix}{kind}_{key}h", stack)
            for (prefix, key), stacks in self.stacks.items()
            if (prefix, key) != but
            for kind, stack in (("weight", stacks.weight), ("bias", stacks.bias))
        )
        return {name for name, stack in made if stack.gates}

    def _keep_apart(self, name: str, others: Container[str]) -> None:
        if name in others:
            raise CellError(self.located(f"parameter {name!r} is declared by the cell and is affine's too; give it another name"))

    def operand_key(self, operand: Symbol) -> str:
        """The name of an operand in its weight's name."""
        found = next((key for value, key in self.operand_keys if value is operand), None)
        if found is not None:
            return found
        name = _variable_of(operand) or self.nodes[operand.index].name or self.helper_names.get(operand.index, "")
        if name == INPUT:
            message = "an operand called i would share weight_ih with the input; give it another name, or pass it as name=value"
            raise CellError(self.located(message))
        if not name:
            raise CellError(
                self.located(
                    f"an operand of affine needs a name for its weight, and {operand.label} has none: pass it as name=value "
                    "(h=value uses the rows of weight_hh), or assign it to a variable"
                )
            )
        return name

    def skips(self, key: str, operand: Symbol) -> bool:
        """Whether an operand enters gates as it is."""
        return key == INPUT and operand.index == self.skipped

    def _has_bias(self, key: str) -> bool:
        return self.bias in ("both", "input" if key == INPUT else "recurrent")

    def gate(
        self, gate: str, key: str, operand: Symbol, size: Dim, heads: int, weight: bool, bias: bool
    ) -> tuple[Symbol | None, Symbol | None]:
        """The matrix and the bias of one gate for one operand, as slices of the stacked tensors; None where there is none."""
        self.number(operand, "an operand of affine")
        if len(operand.shape) != 1:
            kind = f"a matrix {shape_text(operand.shape)}" if operand.shape else "a scalar"
            raise CellError(self.located(f"an operand of affine must be a vector; {operand.label} is {kind}"))
        columns = operand.shape[0] / heads
        weight_name, bias_name = f"{self.prefix}weight_{key}h", f"{self.prefix}bias_{key}h"
        has_weight, has_bias = weight and not self.skips(key, operand), bias and self._has_bias(key)
        for name, is_made in ((weight_name, has_weight), (bias_name, has_bias)):
            self._keep_apart(name, self.declared if is_made else ())
            if is_made and name in self._stacked(but=(self.prefix, key)):
                raise CellError(self.located(f"parameter {name!r} would be two, of {key!r} here and of what another scope has"))
        stacks = self.stacks.setdefault((self.prefix, key), Stacks(columns, heads))
        if (stacks.columns, stacks.heads) != (columns, heads):
            there, here = f"{stacks.columns} columns", f"{operand.label} has {columns} features"
            if stacks.heads != heads:
                there, here = f"{there} for {stacks.heads} heads", f"{operand.label} has {columns} for {heads}"
            kept_apart = "parameters used twice need the same sizes, or a `scope` around one of them"
            raise CellError(self.located(f"{weight_name} has {there}, but {here}; {kept_apart}"))
        self._keep_whole(gate, stacks, weight_name)
        known = stacks.sizes.setdefault(gate, size)
        if known != size:
            raise CellError(self.located(f"gate {gate!r} has {known} rows in {weight_name}, but {size} are asked for"))
        return (
            self._rows_of(weight_name, (Dim(), columns), stacks.weight, gate, size) if has_weight else None,
            self._rows_of(bias_name, (Dim(),), stacks.bias, gate, size) if has_bias else None,
        )

    def _keep_whole(self, gate: str, stacks: Stacks, name: str) -> None:
        """A gate has one place: refuse it by itself, or with others, where it was asked for otherwise."""
        names = gate.split()
        other = next((known for known in stacks.sizes if known != gate and not {*known.split()}.isdisjoint(names)), None)
        if len({*names}) < len(names) or other is not None:
            twice = f"affine({gate!r}) names a gate twice" if other is None else f"affine({gate!r}) after affine({other!r})"
            raise CellError(self.located(f"{twice}: each gate has its rows in {name} once; ask for the same gates together"))

    def _rows_of(self, name: str, shape: Shape, stack: Stack, gate: str, size: Dim) -> Symbol:
        """A gate's rows of a stacked parameter, whose full shape is known when all gates are."""
        stacked = self.leaf("parameter", name, shape, per_sample=False)
        return self.make("slice", [stacked], (size, *shape[1:]), stack.rows(gate, size, self.inits))

    def parameters(self) -> tuple[Parameter, ...]:
        """All of them: weights, then biases, then what the cell declared."""
        weights, biases = [], []
        for (prefix, key), stacks in self.stacks.items():
            if stacks.weight.gates:
                shape = stacks.weight.offset, stacks.columns
                weights.append(self._stacked_parameter(f"{prefix}weight_{key}h", shape, stacks.weight))
            if stacks.bias.gates:
                biases.append(self._stacked_parameter(f"{prefix}bias_{key}h", (stacks.bias.offset,), stacks.bias))
        return (*weights, *biases, *self.declared.values())

    def _stacked_parameter(self, name: str, shape: tuple[Dim, ...], stack: Stack) -> Parameter:
        begins = {gate: _begins(name, gate, inits) for names, inits in stack.inits.items() for gate in names.split()}
        init = begins if any(value is not None for value in begins.values()) else None
        return Parameter(name, shape, init, stack.each())

    def finish(self) -> None:
        """Give the stacked tensors their full shapes; name what the cell's function has not named after its gate, or as a
        function that it calls does.
        """
        for i, name in (*self.gate_names.items(), *self.helper_names.items()):
            self.rename(i, name)
        shapes = {p.name: p.shape for p in self.parameters()}
        for i, node in enumerate(self.nodes):
            if node.op == "parameter":
                self.nodes[i] = replace(node, shape=shapes[node.attributes[0]])
