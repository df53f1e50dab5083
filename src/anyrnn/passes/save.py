"""What the forward pass keeps for the backward pass, and what the backward pass computes again.

States are kept anyway, at every step, and inputs are the caller's. Of the rest, what is one costly op (or only cheap ones)
away from something kept is computed again; a scalar of each sample is kept rather than any vector; else the value itself is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from anyrnn.ir.graph import Builder, Node, reachable
from anyrnn.ir.ops import same_value
from anyrnn.passes.adjoint import Adjoint
from anyrnn.passes.plan import MOVES
from anyrnn.passes.step import Step

INFINITE = 1000


@dataclass(frozen=True)
class Saves:
    """`kept` are forward nodes that the forward pass stores, by buffer name; `in_memory` maps every forward node that the
    backward pass reads to its buffer and how many steps later it is stored there.
    """

    kept: tuple[tuple[str, int], ...]
    in_memory: tuple[tuple[int, tuple[str, int]], ...]


def choose_saves(adjoint: Adjoint) -> Saves:
    """Which forward values the forward pass stores, and where all stand that the backward pass reads."""
    graph = adjoint.graph
    count = len(graph.nodes)
    state_names = {s.name for s in graph.states}
    memory: dict[int, tuple[str, int]] = {}
    for name, index in graph.outputs:
        if name in state_names:
            memory[index] = (name, 1)
    for index, node in enumerate(graph.nodes):
        if node.op in ("input", "state"):
            memory[index] = (node.attributes[0], 0)
    roots = adjoint.roots
    live = reachable(adjoint.nodes, roots)
    needed = {s for i in live if i >= count for s in adjoint.nodes[i].inputs if s < count} | {r for r in roots if r < count}
    for i in sorted(needed, reverse=True):
        if graph.nodes[i].row.boolean:  # a test is never stored: what it compares is
            needed = (needed - {i}) | set(graph.nodes[i].inputs)
    kept: dict[int, str] = {}
    given = [*state_names, *(name for name, _ in graph.inputs), "y"]
    reserved = {*given, *(f"d_{name}" for name in given)}

    def keep(index: int) -> None:
        name = graph.nodes[index].name or f"v{index}"
        taken = {*kept.values(), *reserved}
        while name in taken:
            name += f"_{index}"
        kept[index] = name
        memory[index] = (kept[index], 0)

    @cache  # nodes are looked at in order, and what they are made of is kept by then if at all
    def can_be_moved(index: int) -> bool:
        """What stands in memory, or is moved from there itself."""
        node = graph.nodes[index]
        return index in memory or not node.per_sample or (node.op in MOVES and all(map(can_be_moved, node.inputs)))

    costs: list[tuple[int, set[int]]] = []

    def cost(index: int) -> tuple[int, set[int]]:
        """Costly ops to compute a node again, and the scalars to keep for it."""
        node = graph.nodes[index]
        if index in memory or not node.per_sample:
            return 0, set()
        if node.shape == () and not node.row.boolean:
            return 0, {index}
        if node.row.kind in ("linear", "reduction", "leaf") or (node.op in MOVES and not all(map(can_be_moved, node.inputs))):
            return INFINITE, set()
        of_operands = [costs[s] for s in node.inputs]
        total = int(node.row.costly) + sum(ops for ops, _ in of_operands)
        return min(total, INFINITE), set[int]().union(*(scalars for _, scalars in of_operands))

    for index in range(count):
        costs.append(cost(index))
        ops, scalars = costs[index]
        if index not in needed:
            continue
        if ops > 1:
            keep(index)
            costs[index] = 0, set()
        else:
            for scalar in sorted(scalars - kept.keys()):
                keep(scalar)
    names = tuple((name, index) for index, name in kept.items())
    return Saves(names, tuple(memory.items()))


def backward_step(adjoint: Adjoint, saves: Saves, step: tuple[Node, ...]) -> Step:
    """The backward step as a graph of its own: forward values are loads, cotangents of new states come from the step after.
    `step` are the forward nodes with weights as leaves.
    """
    builder = Builder()
    memory = dict(saves.in_memory)
    nodes = [*step, *adjoint.nodes[len(step) :]]
    state_shapes = {s.name: s.shape for s in adjoint.graph.states}
    done: dict[int, int] = {}

    def get(index: int) -> int:
        pending = [index]
        while pending:  # operands first; a chain of ops may be longer than Python's stack
            missing = [] if pending[-1] in memory else [s for s in nodes[pending[-1]].inputs if s not in done]
            if missing:
                pending.append(missing[0])
            else:
                i = pending.pop()
                done[i] = make(i)
        return done[index]

    def make(index: int) -> int:
        node = nodes[index]
        if index in memory:
            return builder.leaf_load(*memory[index], node)
        if node.op == "cotangent":
            name = node.attributes[0]
            return builder.leaf_load("d_" + name, 1 if name in state_shapes else 0, node)
        inputs = tuple(done[s] for s in node.inputs)
        same = same_value(node.op, inputs)
        if same is None or builder.nodes[same].shape != node.shape:
            return builder.add(replace(node, inputs=inputs))
        return same

    states = tuple((f"d_{name}", get(i)) for name, i in adjoint.states)
    outputs = tuple((f"d_{name}", "output", get(i)) for name, i in adjoint.inputs)
    products = tuple((nodes[p.matrix].attributes[0], get(p.left), get(p.right), p.heads) for p in adjoint.products)
    sums = tuple((nodes[w].attributes[0], get(i)) for w, i in adjoint.sums if nodes[w].op == "parameter")
    return Step(tuple(builder.nodes), True, states, outputs, products, sums)
