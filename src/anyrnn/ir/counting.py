"""States that count: every step adds what is the same for all samples. In 16 bits such a state stops where adding 1 to a number
gives the same number.
"""

from __future__ import annotations

import itertools
import math
from functools import cache

from anyrnn.ir.graph import Graph, Node, reachable

SAME_VALUE = ("clip_gradient", "stop_gradient")


def counters(graph: Graph) -> dict[str, float]:
    """By name how far they count: without end, or as far as the remainder of a period or a minimum goes."""
    found = {state.name: _Counting(graph, state.name).limit(graph.output(state.name)) for state in graph.states}
    return {name: limit for name, limit in found.items() if limit}


class _Counting:
    """Of one state."""

    def __init__(self, graph: Graph, state: str) -> None:
        self.nodes, self.state = graph.nodes, state
        self.limit, self.reach = cache(self._limit), cache(self._reach)

    def _limit(self, i: int) -> float:
        """How far a value counts; 0 if it does not."""
        node = self.nodes[i]
        if node.op in SAME_VALUE:
            return self.limit(node.inputs[0])
        if node.op == "where":  # one that looks at the state itself may end it
            return 0 if self._is_read(node.inputs[0]) else max(map(self.limit, node.inputs[1:]))
        if node.op == "minimum":
            ends = [float(self.nodes[s].attributes[0]) for s in node.inputs if self.nodes[s].op == "constant"]
            return min([max(map(self.limit, node.inputs)), *ends])
        period = self._period(node)
        if period is not None:
            return min(self.limit(node.inputs[0]), period)
        of_sample = [s for s in node.inputs if self.nodes[s].per_sample]
        adds = len(of_sample) == 1 and (node.op == "add" or (node.op == "sub" and of_sample == [node.inputs[0]]))
        return max(self.reach(of_sample[0]), self.limit(of_sample[0])) if adds else 0

    def _reach(self, i: int) -> float:
        """How far a value goes that is the state itself, or its remainder; 0 for others."""
        node = self.nodes[i]
        if node.op in SAME_VALUE:
            return self.reach(node.inputs[0])
        if node.op == "where":
            return max(map(self.reach, node.inputs[1:]))
        period = self._period(node)
        if period is not None:
            return min(self.reach(node.inputs[0]), period)
        return math.inf if node.op == "state" and node.attributes[0] == self.state else 0

    def _period(self, node: Node) -> float | None:
        """Of a remainder, s - floor(s / p) * p: p; 0 where that is no constant, and so may be small. None for anything else."""
        if node.op != "sub" or self.nodes[node.inputs[1]].op != "mul":
            return None
        for floor, period in itertools.permutations(self.nodes[node.inputs[1]].inputs):
            quotient = self.nodes[self.nodes[floor].inputs[0]] if self.nodes[floor].op == "floor" else None
            if quotient is not None and quotient.op == "div" and quotient.inputs == (node.inputs[0], period):
                return float(self.nodes[period].attributes[0]) if self.nodes[period].op == "constant" else 0.0
        return None

    def _is_read(self, i: int) -> bool:
        """Whether a value depends on the state."""
        nodes = (self.nodes[j] for j in reachable(self.nodes, [i]))
        return any(node.op == "state" and node.attributes[0] == self.state for node in nodes)
