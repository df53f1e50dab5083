"""A cell's graph over a sequence, op by op: as a Scan whose body is one step, with what depends on no state before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from anyrnn.errors import UnsupportedError
from anyrnn.ir.graph import Graph, Node, affine_parts
from anyrnn.onnx.writing_nodes import Writer
from anyrnn.sequence.network import Network

LEAVES = ("input", "state", "parameter", "hyper", "constant", "size", "probability")
"""Values that are there before any node."""
DECLINED = {
    "scale": "it belongs to random choices, which calls that do not train have none of",
    "choose": "it is a random choice, which calls that do not train have none of",
    "cotangent": "it belongs to gradients",
    "outer": "it belongs to gradients",
    "load": "it belongs to kernels",
    "transpose": "it is of parameters, which are ready before the steps",
}
"""Ops that no exported step has, and why."""


@dataclass
class Steps:
    """A unit (layer and direction) of a network while it is written.

    Args:
        writer: of the graph around it.
        network: of which it is a unit.
        layer, direction: which one.
        weights: what steps read of the parameters, by node: constants or other values of the graph around.
        sequences: the per-step inputs [T, N, features], by name.
    """

    writer: Writer
    network: Network
    layer: int
    direction: int
    weights: Mapping[int, str]
    sequences: Mapping[str, str]
    values: dict[int, str] = field(default_factory=dict)
    """By node, where it is made: in the body or before it."""
    scanned: dict[str, str] = field(default_factory=dict)
    """Of values before the loop, their names in the body."""
    booleans: set[str] = field(default_factory=set)
    """Values that are tests."""
    products: dict[tuple[int, int, bool], str] = field(default_factory=dict)
    """Of matrices and vectors, by their nodes and whether the matrix is transposed."""
    before: dict[int, str] = field(default_factory=dict)
    """Of sums that depend on states, what does not."""

    @property
    def graph(self) -> Graph:
        return self.network.plan.graph

    def __post_init__(self) -> None:
        nodes = self.graph.nodes
        self.sizes = self.network.layer_sizes(self.layer)
        self.live = self._live()
        self.values |= self.weights
        self.multiplied = self._multiplied()
        self.inside: list[bool] = []
        """By node, whether it depends on a state, so that it is made in the body."""
        for i, node in enumerate(nodes):
            of_state = i not in self.weights and any(self.inside[s] for s in node.inputs)
            self.inside.append(node.op == "state" or of_state)

    def _live(self) -> list[int]:
        """The nodes that the outputs need, without those before the steps."""
        seen: set[int] = set()
        stack = [i for _, i in self.graph.outputs]
        while stack:
            i = stack.pop()
            if i not in seen:
                seen.add(i)
                stack.extend(() if i in self.weights else self.graph.nodes[i].inputs)
        return sorted(seen)

    def run(self, first: Mapping[str, str], there: str | None) -> tuple[str, list[str], list[str]]:
        """Write it.

        Args:
            first: states before the first step, [N, size], by name.
            there: bool [T, N, 1], which steps samples have; in others states stay and all else is zero.

        Returns: the output [T, N, size], the last states, and what else steps give.
        """
        writer, graph = self.writer, self.graph
        self._run_before()
        with writer.body() as body:
            states = {name: writer.name(f"{name}_before") for name in graph.state_names}
            for i in self.live:
                if self.inside[i]:
                    node = graph.nodes[i]
                    self.values[i] = states[node.attributes[0]] if node.op == "state" else self._value(i)
            results = self._results(states, there)
        return self._scan(body, states, results, first)

    def run_without_loop(self) -> str:
        """Write what depends on no state. Returns: the output, if it does not either."""
        self._run_before()
        return self.values[self.graph.output("y")]

    def _run_before(self) -> None:
        for i in self.live:
            if not self.inside[i] and i not in self.values:
                self.values[i] = self._value(i)
            elif self.inside[i] and self.graph.nodes[i].op == "affine":
                self._sum_before(i)

    def _results(self, states: Mapping[str, str], there: str | None) -> list[str]:
        """The body's outputs: new states, then what steps give."""
        writer, graph = self.writer, self.graph
        given: list[str] = []
        for name in (*graph.state_names, "y", *(n for n, _ in graph.more_outputs)):
            value, own = self._read(graph.output(name)), name in states
            if there is not None:
                otherwise = states[name] if own else writer.constant(0.0)
                value = writer.node("Where", self._scanned(there, True), value, otherwise, hint=f"{name}_held")
            elif value in given or value in states.values() or value in self.scanned.values():
                value = writer.node("Identity", value, hint=f"{name}_given")
            given.append(value)
        return given

    def _scan(
        self, body: Sequence[Any], states: Mapping[str, str], results: Sequence[str], first: Mapping[str, str]
    ) -> tuple[str, list[str], list[str]]:
        writer, count = self.writer, len(states)
        kind = writer.dtype.name
        if not self.scanned:  # a loop is as long as what it reads
            self._scanned(next(iter(self.sequences.values())))
        outputs = [(name, self.features(i)) for name, i in self._given()]
        ports = [writer.port(name, kind, [None, self.features(self.graph.output(s))]) for s, name in states.items()]
        ports += [
            writer.port(name, "bool" if outside in self.booleans else kind, [None, None])
            for outside, name in self.scanned.items()
        ]
        ends = [writer.port(r, kind, [None, size]) for r, (_, size) in zip(results, outputs, strict=True)]
        step = writer.graph(body, writer.name("step"), ports, ends, [])
        hints = [f"{name}_last" for name in states] + [name.replace(".", "_") for name, _ in outputs[count:]]
        found = writer.several(
            "Scan",
            [*(first[name] for name in states), *self.scanned],
            hints,
            body=step,
            num_scan_inputs=len(self.scanned),
            scan_input_directions=[self.direction] * len(self.scanned),
            scan_output_directions=[self.direction] * (len(outputs) - count),
        )
        return found[count], found[:count], found[count + 1 :]

    def _given(self) -> list[tuple[str, int]]:
        graph = self.graph
        return [(n, graph.output(n)) for n in (*graph.state_names, "y")] + list(graph.more_outputs)

    def features(self, i: int) -> int:
        shape = self.graph.nodes[i].shape
        return shape[0].evaluate(self.sizes) if shape else 1

    # values

    def _scanned(self, outside: str, boolean: bool = False) -> str:
        """The step of a sequence, in the body."""
        if outside not in self.scanned:
            self.scanned[outside] = self.writer.name(f"{outside.removeprefix(self.writer.prefix)}_t")
            if boolean:
                self.booleans.add(outside)
        return self.scanned[outside]

    def _read(self, i: int, inside: bool = True) -> str:
        """A node's value, where it is read."""
        if inside and not self.inside[i] and self.graph.nodes[i].per_sample:
            return self._scanned(self.values[i], self.graph.nodes[i].row.boolean)
        return self.values[i]

    def _value(self, i: int) -> str:
        node = self.graph.nodes[i]
        if node.op in LEAVES:
            return self._leaf(node)
        if node.op in DECLINED:
            raise UnsupportedError(f"cell {self.graph.name!r}: {node.op} cannot be exported: {DECLINED[node.op]}")
        values = [] if node.op == "affine" else [self._read(s, self.inside[i]) for s in node.inputs]
        made = SPELLED[node.op](self, i, values)
        if node.row.boolean:
            self.booleans.add(made)
        return made

    def _leaf(self, node: Node) -> str:
        name = node.attributes[0]
        if node.op == "input":
            return self.sequences[name]
        if node.op == "probability":
            randomness = self.network.randomness(0, None)
            assert randomness is not None
            return self.writer.constant(randomness.at(self.layer, self.direction, 0).probability(name))
        if node.op == "hyper":
            return self.writer.constant(float(dict(self.network.hypers)[name]), name)
        return self.writer.constant(float(name if node.op == "constant" else name.evaluate(self.sizes)))

    def hint(self, i: int) -> str:
        """The name that a value has in the user's source."""
        node = self.graph.nodes[i]
        return node.name if node.name.isidentifier() else node.op

    # products

    def affine(self, i: int) -> str:
        """A sum of products and biases."""
        addends = [self._scanned(self.before[i])] if i in self.before else self._vectors(i)
        if not self.inside[i]:
            addends = [self.product(*t) for t in self._terms(i, False)] + addends
        return self.writer.total(addends + [self.product(*t) for t in self._terms(i, True)], self.hint(i))

    def _sum_before(self, i: int) -> None:
        """Of what depends on a state, what is known before the loop."""
        terms = self._terms(i, False)
        if terms:
            self.before[i] = self.writer.total([*(self.product(*t) for t in terms), *self._vectors(i)], f"{self.hint(i)}_before")

    def _terms(self, i: int, inside: bool) -> list[Term]:
        """Those of operands that samples have, by where they are made."""
        terms, _ = affine_parts(self.graph.nodes[i])
        return [t for t in terms if self.graph.nodes[t[1]].per_sample and self.inside[t[1]] == inside]

    def _vectors(self, i: int) -> list[str]:
        """What an affine adds that is the same for all samples: at most one."""
        terms, biases = affine_parts(self.graph.nodes[i])
        of_parameters = [self.product(*t) for t in terms if not self.graph.nodes[t[1]].per_sample]
        vectors = of_parameters + [self.values[b] for b in biases]
        return [self.writer.total(vectors, f"{self.hint(i)}_bias")] if vectors else []

    def product(self, matrix: int, operand: int, turned: bool, heads: int) -> str:
        """A matrix times a vector. All matrices that a vector is multiplied by are one product."""
        if heads != 1:
            return self._in_blocks(matrix, operand, turned, heads)
        key = matrix, operand, turned
        if key not in self.products:
            wanted = [k for k in self.multiplied if k[1] == operand]
            columns = [self.values[m] if t else self.writer.turned(self.values[m], 1, 0) for m, _, t in wanted]
            sizes = [self.graph.nodes[m].shape[1 if t else 0].evaluate(self.sizes) for m, _, t in wanted]
            made = self.writer.node("MatMul", self.values[operand], self.writer.joined(columns, 1, "weights"), hint="products")
            pieces = [made]
            if len(wanted) > 1:
                pieces = self.writer.several("Split", [made, self.writer.integers(*sizes)], ["product"] * len(wanted), axis=-1)
            self.products |= dict(zip(wanted, pieces, strict=True))
        return self.products[key]

    def _multiplied(self) -> list[tuple[int, int, bool]]:
        """What is multiplied whole: matrix, operand, and whether the matrix is transposed."""
        found: dict[tuple[int, int, bool], None] = {}
        for i in self.live:
            if self.graph.nodes[i].op == "affine" and i not in self.weights:
                terms, _ = affine_parts(self.graph.nodes[i])
                found |= dict.fromkeys((matrix, operand, turned) for matrix, operand, turned, heads in terms if heads == 1)
        return list(found)

    def _in_blocks(self, matrix: int, operand: int, turned: bool, heads: int) -> str:
        """Of a matrix that is block-diagonal."""
        writer, node = self.writer, self.graph.nodes[operand]
        rows, columns = (dim.evaluate(self.sizes) for dim in self.graph.nodes[matrix].shape)
        blocks = writer.reshaped(self.values[matrix], heads, rows // heads, columns)
        blocks = blocks if turned else writer.turned(blocks, 0, 2, 1)
        size, of_result = (rows // heads, columns) if turned else (columns, rows // heads)
        sides = [0] * (0 if not node.per_sample else 1 if self.inside[operand] else 2)
        parts = writer.reshaped(self.values[operand], *sides, heads, 1, size, hint="parts")
        return writer.reshaped(writer.node("MatMul", parts, blocks, hint="products"), *sides, heads * of_result, hint="product")


Term = tuple[int, int, bool, int]
"""Of an affine: matrix, operand, whether the matrix is transposed, how many blocks it has."""


def _by(op: str, steps: Steps, i: int, values: list[str]) -> str:
    """By a node of ONNX that is the op."""
    return steps.writer.node(op, *values, hint=steps.hint(i))


def _softplus(steps: Steps, i: int, values: list[str]) -> str:
    return steps.writer.softplus(values[0], steps.hint(i))


def _same(steps: Steps, i: int, values: list[str]) -> str:
    return values[0]


def _sum(steps: Steps, i: int, values: list[str]) -> str:
    return steps.writer.summed(values[0], -1, steps.hint(i))


def _largest(steps: Steps, i: int, values: list[str]) -> str:
    return steps.writer.largest(values[0], -1)


def _affine(steps: Steps, i: int, values: list[str]) -> str:
    return steps.affine(i)


def _fill(steps: Steps, i: int, values: list[str]) -> str:
    return steps.writer.node("Expand", values[0], steps.writer.integers(steps.features(i)), hint=steps.hint(i))


def _slice(steps: Steps, i: int, values: list[str]) -> str:
    offset, size = (dim.evaluate(steps.sizes) for dim in steps.graph.nodes[i].attributes)
    bounds = [steps.writer.integers(n) for n in (offset, offset + size, -1)]
    return steps.writer.node("Slice", values[0], *bounds, hint=steps.hint(i))


def _concat(steps: Steps, i: int, values: list[str]) -> str:
    """Features that are alike for all samples are repeated for each."""
    writer, inputs = steps.writer, steps.graph.nodes[i].inputs
    of_samples = next(v for v, s in zip(values, inputs, strict=True) if steps.graph.nodes[s].per_sample)
    parts = []
    for value, s in zip(values, inputs, strict=True):
        if not steps.graph.nodes[s].per_sample:
            sides = writer.joined([writer.node("Shape", of_samples, hint="samples", end=-1), writer.integers(steps.features(s))])
            value = writer.node("Expand", value, sides, hint="repeated")
        parts.append(value)
    return writer.joined(parts, -1, steps.hint(i))


Spelling = Callable[[Steps, int, list[str]], str]
SPELLED: dict[str, Spelling] = {
    **{
        op: partial(_by, of_onnx)
        for op, of_onnx in (
            ("add", "Add"), ("sub", "Sub"), ("mul", "Mul"), ("div", "Div"), ("neg", "Neg"), ("maximum", "Max"),
            ("minimum", "Min"), ("abs", "Abs"), ("sign", "Sign"), ("floor", "Floor"), ("sqrt", "Sqrt"), ("exp", "Exp"),
            ("log", "Log"), ("tanh", "Tanh"), ("sigmoid", "Sigmoid"), ("relu", "Relu"),
            ("sin", "Sin"), ("cos", "Cos"), ("less", "Less"), ("equal", "Equal"), ("where", "Where"),
        )
    },
    "softplus": _softplus,
    "stop_gradient": _same,
    "clip_gradient": _same,
    "norm": _same,
    "sum": _sum,
    "largest": _largest,
    "affine": _affine,
    "fill": _fill,
    "slice": _slice,
    "concat": _concat,
}  # fmt: skip
"""One spelling an op: from the names of its inputs that of its result."""
