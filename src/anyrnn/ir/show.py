"""A graph's equations, as text and as LaTeX.

Both are in the user's granularity: what the cell's function assigned to a variable has a line of its own, what it left
unnamed is written where it is used. They come from the trace, so they say what is computed and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anyrnn.ir.graph import SINGLE, Graph, Node, affine_parts
from anyrnn.ir.names import LEAVES, GateRows, Names, gate_rows, mean_of
from anyrnn.ir.notation import ATOM, COMPARISON, INFIX, MATRIX, SUM, Latex, Name, Notation, Piece, Rows, Text
from anyrnn.ir.ops import TABLE

if TYPE_CHECKING:
    from anyrnn.passes.adjoint import Adjoint


def text(graph: Graph) -> str:
    """The equations of a graph as plain text, one line for each value that the user named; `c'` is the new value of c."""
    return _aligned(equations(graph, Text()))


def latex(graph: Graph) -> str:
    """The equations of a graph as a LaTeX block for math mode; needs the package amsmath.

    States before the step have the index t-1, the others t. `W_{ix}` and `b_{ix}` are what the operand x adds to the gate i.
    """
    lines = equations(graph, Latex(graph.inputs[0][0]))
    body = " \\\\\n".join(f"  {line.left} &= {line.right}" for line in lines)
    return f"\\begin{{aligned}}\n{body}\n\\end{{aligned}}"


def with_single_names(graph: Graph) -> Graph:
    """The same with the names that its lines have: where several values have one name, each has its own."""
    found = Names(graph.nodes, graph.outputs, [s.name for s in graph.states])
    versions = {i: name for i, name in found.names.items() if name.version and found.is_given(i)}
    nodes = (
        replace(n, name=Text.plain(versions[i].base, versions[i].version)) if i in versions else n
        for i, n in enumerate(graph.nodes)
    )
    return replace(graph, nodes=tuple(nodes))


def gradient_text(adjoint: Adjoint, traced: Graph) -> str:
    """The equations of a cell's gradient as plain text, for one step. `traced` knows whose rows of the parameters are whose.

    `d_v` is the gradient with respect to v. That of a new state, `d_h'`, arrives from the step after; that of the state before,
    `d_h`, goes to the step before. Those of parameters are summed over all steps and samples.
    """
    graph = adjoint.graph
    known = Names(graph.nodes, graph.outputs, [s.name for s in graph.states])
    forward = {i: name for i, name in known.names.items() if known.is_given(i)}
    results = [(f"d_{name}", i) for name, i in (*adjoint.inputs, *adjoint.states)]
    ends = [i for p in adjoint.products for i in (p.left, p.right)] + [i for _, i in adjoint.sums]
    names = Names(adjoint.nodes, results, (), forward, ends)
    writer = Writer(adjoint.nodes, names.names, Text(), gate_rows(traced.parameters))
    lines = writer.lines([i for i in names.lined if i not in forward], names.aliases)
    for product in adjoint.products:
        sides = writer.piece(product.left).text, writer.piece(product.right).text
        lines.append(Line(_gradient_of(writer.piece(product.matrix).text), f"sum of outer({sides[0]}, {sides[1]})"))
    sums: dict[int, list[str]] = {}
    for parameter, value in adjoint.sums:
        sums.setdefault(value, []).append(_gradient_of(writer.piece(parameter).text))
    lines += [Line(", ".join(parameters), f"sum of {writer.piece(value).text}") for value, parameters in sums.items()]
    return _aligned(lines + writer.definitions)


def _gradient_of(parameter: str) -> str:
    return f"d_({parameter})" if "(" in parameter or " " in parameter else f"d_{parameter}"


@dataclass(frozen=True)
class Line:
    """An equation."""

    left: str
    right: str


def _aligned(lines: Sequence[Line]) -> str:
    width = max(len(line.left) for line in lines)
    return "\n".join(f"{line.left:<{width}} = {line.right}" for line in lines)


def equations(graph: Graph, notation: Notation) -> list[Line]:
    """The lines of a graph in a notation, what is needed first; then what `norm` means, where it is used."""
    names = Names(graph.nodes, graph.outputs, [s.name for s in graph.states])
    writer = Writer(graph.nodes, names.names, notation, gate_rows(graph.parameters))
    return writer.lines(names.lined, names.aliases) + writer.definitions


class Writer:
    """Writes values in a notation."""

    def __init__(
        self, nodes: Sequence[Node], names: Mapping[int, Name], notation: Notation, gates: Mapping[GateRows, str] | None = None
    ) -> None:
        self.nodes, self.names, self.notation = nodes, names, notation
        self.gates = gates or {}
        bases = {name.base for name in names.values()}
        self.bound = Name(next((v for v in "vuwa" if v not in bases), "v"), "always")
        self.norms: dict[str, str] = {}
        """What `norm` means (there may be several): its written definition, and its name."""

    def lines(self, lined: Sequence[int], aliases: Sequence[tuple[Name, int]]) -> list[Line]:
        name = self.notation.name
        lines = [Line(name(self.names[i]), self._right(self.formula(i))) for i in lined]
        return lines + [Line(name(alias), self.piece(i).text) for alias, i in aliases]

    def _right(self, formula: Piece) -> str:
        return self.notation.test(formula) if formula.level == COMPARISON else formula.text

    @property
    def definitions(self) -> list[Line]:
        argument = Piece(self.notation.name(self.bound))
        return [Line(self.notation.function(name, argument).text, meaning) for meaning, name in self.norms.items()]

    def piece(self, i: int) -> Piece:
        """A value where it is used: its name, or how it is made."""
        return Piece(self.notation.name(self.names[i]), ATOM) if i in self.names else self.formula(i)

    def formula(self, i: int) -> Piece:
        """How a value is made."""
        node, notation = self.nodes[i], self.notation
        if node.op == "constant":
            return notation.number(node.attributes[0])
        if node.op == "size":
            return notation.size(node.attributes[0])
        if node.op in LEAVES:
            return Piece(notation.name(Name(node.attributes[0], "always")), ATOM)
        if node.op == "affine":
            return self._affine(node)
        if node.op == "slice" and self.nodes[node.inputs[0]].op == "parameter":
            return Piece(notation.rows(self._rows(node)))
        if node.op == "norm":
            return notation.function(self._norm(node), self.piece(node.inputs[1]))
        mean = mean_of(self.nodes, i)
        if mean is not None:
            return notation.function("mean", self.piece(mean))
        arguments = [self.piece(s) for s in node.inputs]
        if node.op == "fill" or (node.op == "sum" and self.nodes[node.inputs[0]].shape == SINGLE):
            return arguments[0]
        if node.op == "slice":
            return notation.features(arguments[0], *node.attributes)
        if node.op == "concat":
            return notation.concat([self._part(s) for s in node.inputs])
        if node.op == "transpose":
            return notation.transpose(arguments[0])
        if node.op == "neg":
            return notation.negative(arguments[0])
        if node.op == "mul" and node.inputs[0] == node.inputs[1]:
            return notation.square(arguments[0])
        if node.op in INFIX:
            row, (left, right) = node.row, node.inputs
            if node.op == "add" and self.nodes[right].op == "neg" and right not in self.names:
                row, arguments[1] = TABLE["sub"], self.piece(self.nodes[right].inputs[0])
            featurewise = bool(self.nodes[left].shape and self.nodes[right].shape)
            return notation.infix(row, arguments[0], arguments[1], featurewise)
        return notation.call(node.row, arguments)

    def _part(self, i: int) -> Piece:
        """What a vector is put together of: of zeros it must be said how many."""
        node = self.nodes[i]
        if i not in self.names and node.op == "fill" and self.nodes[node.inputs[0]].attributes == (0.0,):
            return self.notation.zeros(node.shape[0])
        return self.piece(i)

    def _affine(self, node: Node) -> Piece:
        terms, biases = affine_parts(node)
        written = [self.notation.product(self.piece(m), heads, transposed, self.piece(v)) for m, v, transposed, heads in terms]
        written += [self.piece(b) for b in biases]
        return Piece(" + ".join(p.text for p in written), SUM) if len(written) > 1 else Piece(written[0].text, MATRIX)

    def _rows(self, node: Node) -> Rows:
        parameter = self.nodes[node.inputs[0]]
        offset, size = node.attributes
        key = (parameter.attributes[0], offset, size)
        return Rows(key[0], self.gates.get(key), offset, size, size == parameter.shape[0])

    def _norm(self, node: Node) -> str:
        """The name of a normalisation; notes what it means."""
        inner = Writer(self.nodes, {node.inputs[1]: self.bound}, self.notation, self.gates)
        meaning = inner.piece(node.inputs[0]).text
        return self.norms.setdefault(meaning, "norm" if not self.norms else f"norm{len(self.norms) + 1}")
