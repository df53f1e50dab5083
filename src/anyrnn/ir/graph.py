"""Nodes, graphs, and the builder that makes them.

A Graph is immutable pure data: a tuple of nodes in an order in which inputs come first, and named outputs. Equal
nodes are one node (the builder hash-conses), so that a graph's text is its identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

from anyrnn.errors import CellError
from anyrnn.ir.dims import Dim, Shape, shape_text
from anyrnn.ir.ops import TABLE, Op

if TYPE_CHECKING:
    from anyrnn.ir.symbol import Symbol


@dataclass(frozen=True)
class Node:
    """One value. `shape` is () for a scalar, (size,) for a vector, (rows, columns) for a parameter matrix."""

    op: str
    inputs: tuple[int, ...] = ()
    shape: Shape = ()
    attributes: tuple[Any, ...] = ()
    per_sample: bool = True
    """False for what depends on parameters and constants alone: the parameter phase."""
    name: str = field(default="", compare=False)
    source: str = field(default="", compare=False)

    @property
    def row(self) -> Op:
        return TABLE[self.op]


NUMBERS: Any = Real
"""What a cell may write for a constant: Python's numbers and NumPy's."""
SINGLE: Shape = (Dim.of(1),)
"""Of a vector with one feature."""


@dataclass(frozen=True)
class Parameter:
    """A parameter tensor of a cell. `gates` are those whose rows it stacks, each with its size."""

    name: str
    shape: Shape
    init: Any = field(default=None, compare=False)
    """What it begins as: None for the layer's default, a number, or a function of a shape and a `numpy.random.Generator`; of
    stacked gates, a dict of such by gate.
    """
    gates: tuple[tuple[str, Dim], ...] = field(default=(), compare=False)
    trained: bool = field(default=True, compare=False)

    @property
    def pieces(self) -> tuple[tuple[Dim, Any], ...]:
        """From top to bottom, how many rows begin as what."""
        if isinstance(self.init, dict):
            return tuple((rows, self.init.get(gate)) for gate, rows in self.gates)
        return ((self.shape[0] if self.shape else Dim.of(1), self.init),)


@dataclass(frozen=True)
class State:
    """A state of a cell: its name, shape (() for a scalar) and initial value."""

    name: str
    shape: Shape
    init: float = 0.0


@dataclass(frozen=True)
class Graph:
    """One step of a cell, or of its adjoint.

    `outputs` names values: `y`, then each state's new value under the state's name, then what else each step gives.
    `inputs` are the per-step inputs (name, shape) in order; the first is the input of the layer.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[tuple[str, int], ...]
    inputs: tuple[tuple[str, Shape], ...]
    states: tuple[State, ...]
    parameters: tuple[Parameter, ...]
    hypers: tuple[str, ...] = ()
    """The run-time scalars, whose values are no part of the structure: see Network."""
    name: str = field(default="cell", compare=False)
    warnings: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    """Lines of the source, and what was traced there that may not be meant."""

    @cached_property
    def identity(self) -> str:
        """The same text for equal graphs, in every process; names and places in the source are no part of it."""
        nodes = [(n.op, n.inputs, n.shape, n.attributes, n.per_sample) for n in self.nodes]
        parameters = [(p.name, p.shape) for p in self.parameters]
        return repr((nodes, self.outputs, self.inputs, self.states, parameters, self.hypers))

    def output(self, name: str) -> int:
        return dict(self.outputs)[name]

    @cached_property
    def state_names(self) -> tuple[str, ...]:
        return tuple(state.name for state in self.states)

    @property
    def more_outputs(self) -> tuple[tuple[str, int], ...]:
        """Beside y and the new states."""
        return self.outputs[1 + len(self.states) :]

    @property
    def size_names(self) -> list[str]:
        """The named sizes that a layer must give, in order of appearance."""
        dims: list[Dim] = [d for _, s in self.inputs for d in s] + [d for s in self.states for d in s.shape]
        dims += [d for p in self.parameters for d in p.shape] + [d for n in self.nodes for d in n.shape]
        return list(dict.fromkeys(name for d in dims for name in sorted(d.names)))

    @property
    def input_size_name(self) -> str:
        """The named size of the input, `hidden` where it has the states'."""
        (name,) = self.inputs[0][1][0].names
        return name

    def other_sizes(self, hidden: int, given: Mapping[str, int] | None = None) -> dict[str, int]:
        """The named sizes beside the input's and `hidden`: half of the latter where they are not given."""
        names = (name for name in self.size_names if name not in (self.input_size_name, "hidden"))
        return {name: (given or {}).get(name, max(1, hidden // 2)) for name in names}

    @property
    def products(self) -> list[tuple[int, int]]:
        """The matrix and the vector of each product of a step."""
        return [(matrix, vector) for n in self.nodes if n.op == "affine" for matrix, vector, _, _ in affine_parts(n)[0]]

    @cached_property
    def counters(self) -> dict[str, float]:
        """The states that count, and how far, see `ir.counting`."""
        from anyrnn.ir.counting import counters

        return counters(self)


def users(nodes: Sequence[Node]) -> list[list[int]]:
    """For each node, the nodes that read it."""
    result: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes):
        for source in dict.fromkeys(node.inputs):
            result[source].append(i)
    return result


def reachable(nodes: Sequence[Node], roots: Iterable[int]) -> set[int]:
    """What the roots depend on, themselves included."""
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        i = stack.pop()
        if i not in seen:
            seen.add(i)
            stack.extend(nodes[i].inputs)
    return seen


def exact_for_steps(nodes: Sequence[Node], roots: Iterable[int] = ()) -> set[int]:
    """What an op that jumps (`floor`, `sign`, a test) is made of, op by op: there the last bit decides between numbers far apart.
    `roots` are read by such ones elsewhere.
    """
    found = set(roots)
    for i in reversed(range(len(nodes))):
        node = nodes[i]
        single = node.op == "sum" and nodes[node.inputs[0]].shape == SINGLE  # the feature of a vector that has one
        passes = node.row.kind in ("elementwise", "structure") or single
        if node.row.jumps or (i in found and passes):
            found.update(node.inputs)
    return found


class Builder:
    """Makes nodes, one for each distinct value, checking shapes as it goes."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.nodes: list[Node] = []
        self._known: dict[Node, int] = {}
        for node in nodes:
            self.add(node)
        self.source = ""
        """Where in the user's file the current op stands; set by the tracer."""

    def add(self, node: Node) -> int:
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return known

    def rename(self, index: int, name: str) -> None:
        if not self.nodes[index].name:
            self.nodes[index] = replace(self.nodes[index], name=name)

    def symbol(self, index: int) -> Symbol:
        from anyrnn.ir.symbol import Symbol

        return Symbol(self, index)

    def make(self, op: str, inputs: Sequence[Symbol], shape: Shape, attributes: tuple[Any, ...] = (), name: str = "") -> Symbol:
        """A node of given shape; it is per sample when one of its inputs is."""
        per_sample = any(self.nodes[s.index].per_sample for s in inputs)
        node = Node(op, tuple(s.index for s in inputs), shape, attributes, per_sample, name, self.source)
        return self.symbol(self.add(node))

    def leaf(self, op: str, name: str, shape: Shape = (), per_sample: bool = True) -> Symbol:
        return self.symbol(self.add(Node(op, (), shape, (name,), per_sample, name, self.source)))

    def leaf_load(self, buffer: str, later: int, like: Node) -> int:
        """A value that stands in memory: of `buffer`, `later` steps after the current one."""
        return self.add(Node("load", (), like.shape, (buffer, later), True, like.name, like.source))

    def constant(self, value: float) -> Symbol:
        return self.symbol(self.add(Node("constant", (), (), (float(value),), False, "", self.source)))

    def lift(self, value: Any, who: str = "a value") -> Symbol:
        """A symbol of this builder from a symbol, a size or a number, which may stand in a NumPy array without axes."""
        from anyrnn.ir.symbol import Symbol

        if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
            value = value.item()
        if isinstance(value, Symbol):
            if value.builder is not self:
                raise CellError(
                    self.located(f"{who} belongs to another trace; a cell may only use what it was given or made itself")
                )
            return value
        if isinstance(value, Dim):
            return self.size(value)
        if isinstance(value, NUMBERS) and not isinstance(value, bool):
            try:
                return self.constant(float(value))
            except OverflowError:
                raise CellError(self.located(f"{who} is a whole number that no float holds")) from None
        kind = type(value).__name__
        fix = "use vector, scalar or matrix for parameters, and Step for what each step is given"
        raise CellError(self.located(f"{who} is a {kind}; expected a traced value or a number ({fix})"))

    def label(self, index: int) -> str:
        """How messages call a value."""
        node = self.nodes[index]
        return node.name or f"the result of {'a comparison' if node.op in ('less', 'equal') else node.op}"

    def number(self, symbol: Symbol, who: str) -> Symbol:
        """The symbol, which must be no test: tests are for `where` alone."""
        if self.nodes[symbol.index].row.boolean:
            raise CellError(self.located(f"{who} should be a number, not a test (use where(test, a, b))"))
        return symbol

    def located(self, message: str) -> str:
        return f"{self.source}: {message}" if self.source else message

    # ops

    def apply(self, op: str, *operands: Any) -> Symbol:
        """An elementwise op or a reduction."""
        row = TABLE.get(op)
        if row is None or row.meaning is None:
            known = ", ".join(sorted(o.name for o in TABLE.values() if o.meaning is not None))
            raise CellError(self.located(f"unknown op {op!r}; the ops are: {known}"))
        if len(operands) != row.arity:
            takes = f"{row.arity} operand{'s' if row.arity != 1 else ''}"
            raise CellError(self.located(f"{op} takes {takes}, got {len(operands)}"))
        symbols = [self.lift(v, f"operand {i + 1} of {op}") for i, v in enumerate(operands)]
        for i, symbol in enumerate(symbols):
            if op != "where" or i > 0:
                self.number(symbol, f"operand {i + 1} of {op}")
            elif not self.nodes[symbol.index].row.boolean:
                raise CellError(self.located(f"operand 1 of {op} should be a test, such as u > 0"))
        if row.kind == "reduction":
            return self.make(op, symbols, self._reduced(op, symbols[0]))
        symbols = self._as_scalars(symbols)
        return self.make(op, symbols, self._stretched(op, symbols))

    def _as_scalars(self, symbols: list[Symbol]) -> list[Symbol]:
        """Vectors of a single feature beside longer ones are that feature."""
        if {s.shape for s in symbols if s.shape} - {SINGLE} and any(s.shape == SINGLE for s in symbols):
            return [self.as_scalar(s) if s.shape == SINGLE else s for s in symbols]
        return symbols

    def as_scalar(self, symbol: Symbol) -> Symbol:
        """The feature of a vector that has one."""
        node = self.nodes[symbol.index]
        if not node.row.boolean:
            return self.apply("sum", symbol)
        compared = [self.symbol(i) for i in node.inputs]
        return self.apply(node.op, *[self.as_scalar(s) if s.shape == SINGLE else s for s in compared])

    def _stretched(self, op: str, symbols: Sequence[Symbol]) -> Shape:
        shape: Shape = ()
        for s in symbols:
            if s.shape and shape and s.shape != shape:
                sides = " and ".join(f"{t.label} {shape_text(t.shape)}" for t in symbols)
                hint = "; affine makes features of one size of those of another" if op == "add" else ""
                if {len(t.shape) for t in symbols} == {1, 2}:
                    hint = "; scale the rows of a matrix by g * (W @ h), and its columns by W @ (g * h)"
                raise CellError(self.located(f"{op} mixes sizes: {sides}{hint}"))
            shape = shape or s.shape
        if len(shape) == 2 and any(self.nodes[s.index].per_sample for s in symbols):
            raise CellError(self.located(f"{op} makes a matrix for every sample; matrix-valued states are outside the language"))
        return shape

    def _reduced(self, op: str, symbol: Symbol) -> Shape:
        if len(symbol.shape) != 1 and not (len(symbol.shape) == 2 and not self.nodes[symbol.index].per_sample):
            raise CellError(self.located(f"{op} needs a vector, but {symbol.label} has shape {shape_text(symbol.shape)}"))
        return ()

    def affine(self, terms: Sequence[tuple[Symbol, Symbol, bool, int]], biases: Sequence[Symbol] = (), name: str = "") -> Symbol:
        """Sum of matrix @ vector over `terms` (matrix, vector, transposed, heads), plus bias vectors."""
        shape: Shape | None = None
        for matrix, operand, transposed, heads in terms:
            rows, columns = self._matrix_shape(matrix, heads)
            if transposed:
                rows, columns = columns, rows
            if len(operand.shape) == 2:
                sides = f"{matrix.label} @ {operand.label} is a product of two matrices"
                raise CellError(self.located(f"{sides}, which cells do not have; multiply a vector by one after the other"))
            if operand.shape != (columns,):
                sides = f"{matrix.label} {shape_text(matrix.shape)} with {operand.label} {shape_text(operand.shape)}"
                raise CellError(self.located(f"a product of {sides} mixes sizes"))
            if shape is not None and shape != (rows,):
                raise CellError(self.located(f"an affine sum mixes sizes {shape_text(shape)} and {rows}"))
            shape = (rows,)
        if shape is None:
            raise CellError(self.located("an affine needs at least one operand"))
        inputs = [s for matrix, operand, _, _ in terms for s in (matrix, operand)] + list(biases)
        for bias in biases:
            if bias.shape != shape:
                raise CellError(
                    self.located(
                        f"a bias {bias.label} {shape_text(bias.shape)} does not fit a product of size {shape_text(shape)}"
                    )
                )
        return self.make("affine", inputs, shape, tuple((transposed, heads) for _, _, transposed, heads in terms), name)

    def _matrix_shape(self, matrix: Symbol, heads: int) -> tuple[Dim, Dim]:
        node = self.nodes[matrix.index]
        if len(node.shape) != 2 or node.per_sample:
            raise CellError(self.located(f"{matrix.label} {shape_text(node.shape)} is not a parameter matrix"))
        rows, columns = node.shape
        return rows, columns * heads

    def slice(self, symbol: Symbol, offset: Dim, size: Dim) -> Symbol:
        """`size` features from `offset` on; of a matrix, rows."""
        if offset == Dim() and symbol.shape[0] == size:
            return symbol
        return self.make("slice", [symbol], (size, *symbol.shape[1:]), (offset, size))

    def concat(self, symbols: Sequence[Symbol]) -> Symbol:
        """Features of vectors one after the other; of parameter matrices, rows."""
        total = sum((s.shape[0] for s in symbols), Dim())
        return self.make("concat", symbols, (total, *symbols[0].shape[1:]))

    def fill(self, symbol: Symbol, size: Dim) -> Symbol:
        """A scalar, for every one of `size` features."""
        return self.stretch(symbol, (size,))

    def stretch(self, symbol: Symbol, shape: Shape) -> Symbol:
        """A scalar, for every element of a vector or a parameter matrix."""
        return symbol if symbol.shape == shape else self.make("fill", [symbol], shape, shape)

    def transpose(self, symbol: Symbol) -> Symbol:
        rows, columns = symbol.shape
        return self.make("transpose", [symbol], (columns, rows))

    def outer(self, left: Symbol, right: Symbol) -> Symbol:
        """The products of all features of two vectors of parameters, [left, right]."""
        return self.make("outer", [left, right], (*left.shape, *right.shape))

    def size(self, dim: Dim) -> Symbol:
        return self.symbol(self.add(Node("size", (), (), (dim,), False, str(dim), self.source)))


def affine_parts(node: Node) -> tuple[list[tuple[int, int, bool, int]], list[int]]:
    """The terms (matrix, operand, transposed, heads) and the bias vectors of an affine node, as indices."""
    count = len(node.attributes)
    terms = [(node.inputs[2 * k], node.inputs[2 * k + 1], *node.attributes[k]) for k in range(count)]
    return terms, list(node.inputs[2 * count :])
