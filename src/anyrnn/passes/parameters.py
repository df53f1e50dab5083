"""The parameter phase, split off: arithmetic on parameters alone runs once a call, and the step reads its results.

What the step reads is mostly rows of parameter tensors as they are; then there is no arithmetic at all, and backends read
and write the user's tensors in place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from anyrnn.ir.dims import Dim, Shape
from anyrnn.ir.graph import Node, reachable

CONSTANTS = ("constant", "size", "scale", "probability")
"""What a backend makes itself: no array stands for it."""


@dataclass(frozen=True)
class Weight:
    """A value of the parameter phase that the step reads.

    When it is some rows of a parameter, `parameter` names it and `offset` is the first row; otherwise `node` is what the
    interpreter evaluates.
    """

    name: str
    shape: Shape
    parameter: str | None
    offset: Dim
    node: int

    @property
    def source(self) -> str:
        """The array in which it stands: a parameter, or a result of the parameter phase."""
        return self.parameter or self.name


@dataclass(frozen=True)
class ParameterPhase:
    """`nodes` holds the parameter phase; `weights` are what the step reads of it, by name."""

    nodes: tuple[Node, ...]
    weights: tuple[Weight, ...]

    @property
    def computed(self) -> tuple[Weight, ...]:
        return tuple(w for w in self.weights if w.parameter is None)


def split_parameters(
    nodes: tuple[Node, ...], outputs: tuple[tuple[str, int], ...], parameters: Iterable[str]
) -> tuple[ParameterPhase, tuple[Node, ...]]:
    """The parameter phase, and the step's nodes in which each weight is a `parameter` leaf (indices stay as they are).

    `parameters` are the names of all that a layer has, of which some may be in no node: what is computed is called otherwise.
    """
    step = list(nodes)
    live = sorted(reachable(nodes, (i for _, i in outputs)), reverse=True)
    for i in live:
        if step[i].per_sample:
            for s in step[i].inputs:  # a test is no number that could be handed over: the step makes it itself
                step[s] = replace(step[s], per_sample=True) if step[s].row.boolean else step[s]
    boundary = sorted({s for i in live if step[i].per_sample for s in step[i].inputs if not step[s].per_sample})
    weights: list[Weight] = []
    taken = {*parameters, *(n.attributes[0] for n in nodes if n.op == "parameter")}
    for i in boundary:
        node = nodes[i]
        if node.op in CONSTANTS:
            continue
        weight = _weight(nodes, i, taken)
        taken.add(weight.name)
        weights.append(weight)
        step[i] = Node("parameter", (), node.shape, (weight.name,), False, weight.name, node.source)
    return ParameterPhase(nodes, tuple(weights)), tuple(step)


def _weight(nodes: tuple[Node, ...], index: int, taken: set[str]) -> Weight:
    node = nodes[index]
    if node.op == "parameter":
        return Weight(node.attributes[0], node.shape, node.attributes[0], Dim(), index)
    if node.op == "slice" and nodes[node.inputs[0]].op == "parameter":
        parameter = nodes[node.inputs[0]].attributes[0]
        offset, size = node.attributes
        name = f"{parameter}[{offset}]"
        return Weight(
            name if name not in taken else f"{parameter}[{offset}:{offset + size}]", node.shape, parameter, offset, index
        )
    name = node.name or f"{node.op}_{index}"
    while name in taken:
        name += f"_{index}"
    return Weight(name, node.shape, None, Dim(), index)
