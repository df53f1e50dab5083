"""Whether a cell's graph is what a recurrent operator of a library (ONNX, cuDNN) computes: compared with traces of what these
compute, whatever names its values have, and in whatever order its parameters stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import permutations, product
from typing import Any

import numpy as np

from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import Builder, Graph, Node, affine_parts, reachable
from anyrnn.ir.interpret import Interpreter
from anyrnn.ir.symbol import Symbol
from anyrnn.passes.parameters import CONSTANTS
from anyrnn.passes.simplify import simplify, simplify_roots
from anyrnn.sequence.network import Network
from anyrnn.trace import Cell
from anyrnn.trace.language import maximum, minimum, where
from anyrnn.weights import operators
from anyrnn.weights.operators import KINDS
from anyrnn.weights.tree import Part

SPELLINGS = {
    "affine": "Affine", "elu": "Elu", "hardsigmoid": "HardSigmoid", "leakyrelu": "LeakyRelu", "relu": "Relu",
    "scaledtanh": "ScaledTanh", "sigmoid": "Sigmoid", "softplus": "Softplus", "softsign": "Softsign", "tanh": "Tanh",
    "thresholdedrelu": "ThresholdedRelu",
}  # fmt: skip
"""How ONNX writes the names of activation functions."""
COMMUTATIVE = ("add", "mul", "maximum", "minimum", "equal")


@dataclass(frozen=True)
class Function:
    """An activation function, and the clip of what it is given."""

    name: str
    numbers: tuple[float, ...]
    clip: float | None


@dataclass(frozen=True)
class Standard:
    """An operator that computes what a graph does.

    `weights`: for each part of the weights of the operator's own cell, the nodes of the graph that are added up to it, each a
    matrix that is transposed or not; of no nodes it is zero. `states`: the graph's states in the operator's order.
    """

    op: str
    cell: str
    flags: Mapping[str, int]
    functions: tuple[Function, ...]
    weights: Mapping[Part, tuple[tuple[int, bool], ...]]
    states: tuple[str, ...]

    @property
    def peepholes(self) -> bool:
        """Whether gates see the cell state."""
        return any(part.parameter.startswith("peephole_") for part in self.weights)

    def attributes(self, directions: int) -> dict[str, Any]:
        """Of a node with the same in so many directions."""
        found: dict[str, Any] = dict(self.flags)
        if [f.name for f in self.functions] != USUAL[self.op]:
            found["activations"] = [SPELLINGS[f.name] for f in self.functions] * directions
        for k, name in enumerate(("activation_alpha", "activation_beta")):
            numbers = [f.numbers[k] for f in self.functions if len(f.numbers) > k]
            if numbers:
                found[name] = numbers * directions
        if self.functions[0].clip is not None:
            found["clip"] = self.functions[0].clip
        return found

    @property
    def overflows(self) -> bool:
        """Whether onnxruntime's node gives infinity where the graph does not: its softplus is log(1 + exp(v)), in float32."""
        return any(f.name == "softplus" for f in self.functions)

    def is_exact(self, dtype: np.dtype[Any]) -> bool:
        """Whether its attributes, which are float32, are the numbers that a computation in a dtype has."""
        numbers = [n for f in self.functions for n in (*f.numbers, f.clip or 0.0)]
        return all(dtype == np.float32 or float(np.float32(n)) == n for n in numbers)


USUAL = {"RNN": ["tanh"], "GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}


SQUASH = 2
"""The number of the function of a new cell state, whose argument is not clipped."""


@dataclass(frozen=True)
class Hole:
    """In the place of a function that is to be found."""

    number: int

    def __call__(self, value: Symbol) -> Symbol:
        # a node that no cell has in calls that do not train, so that it stands for nothing else
        return value.builder.make("choose", [value, value], value.shape, ("function", self.number))


@dataclass(frozen=True)
class Pattern:
    """What an operator computes, with holes for its functions. `cell`: that of its weights in the table of `anyrnn.weights`."""

    op: str
    cell: str
    flags: Mapping[str, int]
    graph: Graph
    functions: int


@cache
def patterns() -> tuple[Pattern, ...]:
    """The plainer ones first."""

    def traced(cell: Cell, **given: Any) -> Graph:
        return simplify(cell.trace(**given))

    gates = {"gates": Hole(0), "candidate": Hole(1)}
    found = [Pattern("RNN", "rnn_tanh", {}, traced(operators.rnn, function=Hole(0)), 1)]
    for after in (True, False):
        graph = traced(operators.gru, after=after, **gates)
        found.append(Pattern("GRU", "gru", {"linear_before_reset": 1} if after else {}, graph, 2))
    for peepholes, coupled in product((False, True), (False, True)):
        graph = traced(operators.lstm, peepholes=peepholes, coupled=coupled, squash=Hole(SQUASH), **gates)
        cell = "lstm_peephole" if peepholes else "lstm"
        found.append(Pattern("LSTM", cell, {"input_forget": 1} if coupled else {}, graph, 3))
    return tuple(found)


Term = tuple[str, tuple[Node, ...], int]
"""A function of one value: its name, nodes and result. Leaves are the value, and its numbers as run-time scalars."""


@cache
def functions() -> tuple[Term, ...]:
    """Those that nodes of ONNX may have."""
    return tuple(_term(name, kind.meaning, ("alpha", "beta")[: len(kind.defaults)]) for name, kind in KINDS.items())


@cache
def clips() -> tuple[Term, ...]:
    """Ways of writing bounds."""
    spelled: list[Callable[[Symbol, Any, Any], Symbol]] = [
        lambda v, low, high: maximum(minimum(v, high), low),
        lambda v, low, high: minimum(maximum(v, low), high),
        lambda v, low, high: where(v > high, high, where(v < low, low, v)),
    ]
    return tuple(_term("clip", meaning, ("low", "high")) for meaning in spelled)


def _term(name: str, meaning: Callable[[Symbol, Any, Any], Symbol], numbers: Sequence[str]) -> Term:
    builder = Builder()
    value = builder.leaf("input", ANYTHING, (Dim.of("any"),))
    given = [builder.leaf("hyper", n, per_sample=False) for n in numbers] + [None, None]
    root = meaning(value, given[0], given[1]).index
    nodes, places = simplify_roots(builder.nodes, [root])
    return name, nodes, places[root]


ANYTHING = "*"
"""The input of a function, which any value may be."""


@dataclass(frozen=True)
class Found:
    """What has been found to stand for what, by the pattern's nodes and names."""

    nodes: Mapping[int, int] = field(default_factory=dict)
    weights: Mapping[int, tuple[tuple[int, bool], ...]] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)
    functions: Mapping[int, Function] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)

    def adding(self, kind: str, key: Any, value: Any) -> Iterator[Found]:
        """Nothing where it contradicts."""
        known = getattr(self, kind)
        if known.get(key, value) == value:
            yield self if key in known else replace(self, **{kind: {**known, key: value}})


@dataclass(frozen=True)
class Matcher:
    """Compares the nodes of a pattern with those of a graph."""

    pattern: Sequence[Node]
    graph: Graph
    sizes: Mapping[str, int]
    hypers: Mapping[str, float]
    own: Mapping[str, int] = field(default_factory=dict)
    """The sizes by the pattern's names."""

    def match(self, p: int, s: int, found: Found) -> Iterator[Found]:
        """All ways in which a node is a pattern's."""
        if p in found.nodes:
            if found.nodes[p] == s:
                yield found
            return
        for more in self._matched(p, s, found):
            yield from more.adding("nodes", p, s)

    def _matched(self, p: int, s: int, found: Found) -> Iterator[Found]:
        pattern, node = self.pattern[p], self.graph.nodes[s]
        if pattern.op == "input" and pattern.attributes == (ANYTHING,):
            if node.per_sample and not node.row.boolean:
                yield found
        elif pattern.op == "input":
            if node.op == "input" and node.attributes[0] == self.graph.inputs[0][0]:
                yield found
        elif pattern.op == "state":
            if node.op == "state" and self._alike(pattern, node):
                yield from found.adding("states", pattern.attributes[0], node.attributes[0])
        elif pattern.op in ("constant", "hyper"):
            number = self._number(s)
            if pattern.op == "constant" and number == pattern.attributes[0]:
                yield found
            elif pattern.op == "hyper" and number is not None:
                yield from found.adding("numbers", pattern.attributes[0], number)
        elif not pattern.per_sample:
            if not node.per_sample and node.op not in CONSTANTS and self._alike(pattern, node):
                yield from found.adding("weights", p, ((s, False),))
        elif pattern.op == "choose":
            number = pattern.attributes[1]
            for function, of in self._functions(s):
                clips = {f.clip for k, f in found.functions.items() if k != SQUASH}
                if function.clip is None if number == SQUASH else not clips - {function.clip}:
                    for more in found.adding("functions", number, function):
                        yield from self.match(pattern.inputs[0], of, more)
        elif pattern.op == "affine":
            if node.op == "affine":
                yield from self._affine(pattern, node, found)
        elif node.op == pattern.op and len(node.inputs) == len(pattern.inputs):
            for inputs in permutations(node.inputs) if node.op in COMMUTATIVE else (node.inputs,):
                yield from self._all(list(zip(pattern.inputs, inputs, strict=True)), found)

    def _all(self, pairs: Sequence[tuple[int, int]], found: Found) -> Iterator[Found]:
        if not pairs:
            yield found
            return
        for more in self.match(*pairs[0], found):
            yield from self._all(pairs[1:], more)

    def _affine(self, pattern: Node, node: Node, found: Found) -> Iterator[Found]:
        """Products in any order; of biases there may be none, or more than the pattern has."""
        wanted, places = affine_parts(pattern)
        terms, biases = affine_parts(node)
        if len(terms) != len(wanted) or not self._alike(pattern, node) or any(heads != 1 for *_, heads in terms):
            return
        for ordered in permutations(terms):
            more = found
            for (matrix, _, _, _), (given, _, turned, _) in zip(wanted, ordered, strict=True):
                shape = [dim.evaluate(self.sizes) for dim in self.graph.nodes[given].shape]
                if shape[:: -1 if turned else 1] != [dim.evaluate(self.own) for dim in self.pattern[matrix].shape]:
                    break
                more = replace(more, weights={**more.weights, matrix: ((given, turned),)})
            else:
                for k, place in enumerate(places):
                    chosen = biases[k : k + 1] if k < len(places) - 1 else biases[k:]
                    more = replace(more, weights={**more.weights, place: tuple((b, False) for b in chosen)})
                operands = zip([w[1] for w in wanted], [t[1] for t in ordered], strict=True)
                yield from self._all(list(operands), more)

    def _alike(self, pattern: Node, node: Node) -> bool:
        """In shape."""
        return [d.evaluate(self.own) for d in pattern.shape] == [d.evaluate(self.sizes) for d in node.shape]

    def _number(self, s: int) -> float | None:
        """Of a value that depends on no parameter."""
        nodes = self.graph.nodes
        if nodes[s].per_sample or nodes[s].shape or nodes[s].row.boolean:
            return None
        if any(nodes[i].op in ("parameter", "scale", "probability") for i in reachable(nodes, [s])):
            return None
        given = {i: np.float64(self.hypers[n.attributes[0]]) for i, n in enumerate(nodes) if n.op == "hyper"}
        with np.errstate(all="ignore"):
            value = float(Interpreter(np, np.float64, self.sizes).run(nodes, given, [s])[s])
        return value if np.isfinite(value) else None

    def _functions(self, s: int) -> Iterator[tuple[Function, int]]:
        """The functions that a value may be the result of, and of what."""
        for name, numbers, of in self._terms(functions(), s):
            for _, (low, high), inner in self._terms(clips(), of):
                if high == -low > 0:
                    yield Function(name, numbers, high), inner
            yield Function(name, numbers, None), of

    def _terms(self, terms: Sequence[Term], s: int) -> Iterator[tuple[str, tuple[float, ...], int]]:
        for name, nodes, root in terms:
            inside = replace(self, pattern=nodes)
            place = next(i for i, n in enumerate(nodes) if n.op == "input")
            for found in inside.match(root, s, Found()):
                order = [n for n in ("alpha", "beta", "low", "high") if n in found.numbers]
                yield name, tuple(found.numbers[n] for n in order), found.nodes[place]


def standard(network: Network, layer: int) -> Standard | None:
    """The operator that computes what a layer's cell does, if there is one."""
    graph, sizes = network.plan.graph, network.layer_sizes(layer)
    if len(graph.inputs) != 1 or graph.more_outputs or len(graph.states) > 2:
        return None
    own = {"input": sizes[network.input_name], "hidden": network.output_size}
    for pattern in patterns():
        if len(pattern.graph.states) != len(graph.states):
            continue
        matcher = Matcher(pattern.graph.nodes, graph, sizes, dict(network.hypers), own)
        for found in _outputs(matcher, pattern.graph):
            names = _parts(pattern.graph)
            weights = {names[p]: nodes for p, nodes in found.weights.items()}
            chosen = tuple(found.functions[k] for k in range(pattern.functions))
            states = tuple(found.states[state.name] for state in pattern.graph.states)
            return Standard(pattern.op, pattern.cell, pattern.flags, chosen, weights, states)
    return None


def _outputs(matcher: Matcher, pattern: Graph) -> Iterator[Found]:
    for found in matcher.match(pattern.output("y"), matcher.graph.output("y"), Found()):
        if len(found.states) == len(pattern.states):
            pairs = [(pattern.output(name), matcher.graph.output(of)) for name, of in found.states.items()]
            yield from matcher._all(pairs, found)


def _parts(graph: Graph) -> dict[int, Part]:
    """What parts of its parameters the nodes of a pattern are."""
    by_name = {parameter.name: parameter for parameter in graph.parameters}
    found = {}
    for i, node in enumerate(graph.nodes):
        if node.op == "parameter":
            gates = by_name[node.attributes[0]].gates
            found[i] = Part(node.attributes[0], gates[0][0] if len(gates) == 1 else "")
        elif node.op == "slice" and not node.per_sample:
            parameter, offset = by_name[graph.nodes[node.inputs[0]].attributes[0]], Dim()
            for gate, rows in parameter.gates:
                if offset == node.attributes[0]:
                    found[i] = Part(parameter.name, gate)
                offset = offset + rows
    return found
