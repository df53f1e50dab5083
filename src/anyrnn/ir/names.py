"""Which values of a graph are worth a line when it is written, and what they are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import Node, Parameter
from anyrnn.ir.notation import Name, Text
from anyrnn.ir.ops import TABLE

LEAVES = tuple(op.name for op in TABLE.values() if op.kind == "leaf" and op.name not in ("constant", "size", "load"))
"""Values from outside that are called by their attribute."""
WRITTEN_TWICE = 2
"""Ops that an unnamed value may consist of and still be written at every use, rather than get a line of its own. A product that
is used twice always gets one.
"""


def written_inputs(nodes: Sequence[Node], i: int) -> tuple[int, ...]:
    """The inputs of a node that are seen where it is written."""
    node = nodes[i]
    if node.op == "norm":
        return (node.inputs[1],)
    mean = mean_of(nodes, i)
    return (mean,) if mean is not None else node.inputs


def mean_of(nodes: Sequence[Node], i: int) -> int | None:
    """What a node is the mean of."""
    node = nodes[i]
    if node.op != "div" or nodes[node.inputs[0]].op != "sum" or nodes[node.inputs[1]].op != "size":
        return None
    (vector,) = nodes[node.inputs[0]].inputs
    return vector if nodes[vector].shape == nodes[node.inputs[1]].attributes else None


def not_trained(nodes: Sequence[Node]) -> list[tuple[int, int]]:
    """Parameters that are read through stop_gradient alone, each with the node that does: it is written as the parameter."""
    readers: dict[int, set[int]] = {}
    for i, node in enumerate(nodes):
        for s in node.inputs:
            readers.setdefault(s, set()).add(i)
    stopped = ((s, by) for s, (by, *more) in readers.items() if nodes[s].op == "parameter" and not more)
    return [(s, by) for s, by in stopped if nodes[by].op == "stop_gradient"]


class Names:
    """Which values have a line, and what all are called.

    `known` are names given before. `lined` are the values with a line, in order; `aliases` are outputs that are called
    something else already.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        outputs: Sequence[tuple[str, int]],
        states: Sequence[str],
        known: Mapping[int, Name] | None = None,
        ends: Sequence[int] = (),
    ) -> None:
        self.nodes = nodes
        self.names: dict[int, Name] = dict(known or {})
        for parameter, stop in not_trained(nodes):
            self.names[parameter] = self.names[stop] = self._leaf(nodes[parameter])
        self.aliases: list[tuple[Name, int]] = []
        self._counted: dict[int, int] = {}
        uses = self._uses([*(i for _, i in outputs), *ends])
        for i in uses:
            if nodes[i].op in LEAVES:
                self.names[i] = self._leaf(nodes[i])
        self._name_outputs(outputs, states)
        lined = [i for i in sorted(uses) if i not in self.names and self._has_line(i, uses[i])]
        bases = [nodes[i].name or f"v{i}" for i in lined]
        taken = {Text.plain(n.base, n.version) for n in self.names.values()} | set(states) | {n.base for n, _ in self.aliases}
        alone = {base for base in bases if bases.count(base) == 1 and base not in taken}
        taken |= alone
        for i, base in zip(lined, bases, strict=True):
            versions = (v for v in range(1, len(nodes) + 2) if Text.plain(base, v) not in taken)
            version = 0 if base in alone else next(versions)
            taken.add(Text.plain(base, version))
            self.names[i] = Name(base, "now" if nodes[i].per_sample else "always", version)
        last = {i for name, i in outputs if name == "y" and uses[i] == 1}
        self.lined = sorted({*lined, *(i for _, i in outputs if nodes[i].op not in LEAVES)}, key=lambda i: (i in last, i))

    def _uses(self, roots: Iterable[int]) -> dict[int, int]:
        """How often each value is written."""
        uses: dict[int, int] = {}
        pending = list(roots)
        while pending:
            i = pending.pop()
            uses[i] = uses.get(i, 0) + 1
            if uses[i] == 1 and i not in self.names:
                pending.extend(written_inputs(self.nodes, i))
        return uses

    def _leaf(self, node: Node) -> Name:
        name = node.attributes[0]
        if node.op == "cotangent":
            return Name(f"d_{name}", "now" if name == "y" else "new")
        return Name(name, "before" if node.op == "state" else "now" if node.op == "input" else "always")

    def _name_outputs(self, outputs: Sequence[tuple[str, int]], states: Sequence[str]) -> None:
        for output, i in sorted(outputs, key=lambda pair: pair[0] not in states):
            name = Name(output, "new" if output in states else "now")
            if i not in self.names and (output in states or self.nodes[i].name in ("", output) or self._is_automatic(i)):
                self.names[i] = name
            else:
                self.aliases.append((name, i))

    def is_given(self, i: int) -> bool:
        """Whether a value has its name from the cell, rather than from us."""
        return self.names[i].base != f"v{i}" and not (self._is_automatic(i) and self.names[i].base == self.nodes[i].name)

    def _is_automatic(self, i: int) -> bool:
        """Whether a name is not the user's but what a product is called by default."""
        return self.nodes[i].op == "affine" and self.nodes[i].name.endswith("_pre")

    def _has_line(self, i: int, uses: int) -> bool:
        node = self.nodes[i]
        if node.op in ("constant", "size") or (node.op == "slice" and not node.per_sample):
            return False
        if node.name and not self._is_automatic(i):
            return True
        return uses > 1 and (node.op == "affine" or self._ops(i) > WRITTEN_TWICE)

    def _ops(self, i: int) -> int:
        node = self.nodes[i]
        if i in self.names or not node.inputs or (node.name and not self._is_automatic(i)):
            return 0
        if node.op == "slice" and not node.per_sample:
            return 0
        if i not in self._counted:
            self._counted[i] = 1 + sum(self._ops(s) for s in dict.fromkeys(written_inputs(self.nodes, i)))
        return self._counted[i]


GateRows = tuple[str, Dim, Dim]
"""(parameter, offset, size)"""


def gate_rows(parameters: Iterable[Parameter]) -> dict[GateRows, str]:
    """The gate that some rows of a parameter belong to, or the gates that several in succession do."""
    found: dict[GateRows, str] = {}
    for parameter in parameters:
        offset = Dim()
        for first, (name, size) in enumerate(parameter.gates):
            rows = size
            found[parameter.name, offset, rows] = name
            for gate, more in parameter.gates[first + 1 :]:
                name, rows = f"{name}_{gate}", rows + more
                found[parameter.name, offset, rows] = name
            offset = offset + size
    return found
