"""The passes in order: from a cell's graph to a Plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from anyrnn._cache import remembered
from anyrnn.errors import UnsupportedError
from anyrnn.ir.dims import Dim, cover_once
from anyrnn.ir.graph import Builder, Graph, Node
from anyrnn.ir.ops import same_value
from anyrnn.passes.adjoint import Adjoint, PhaseAdjoint, adjoint, phase_adjoint
from anyrnn.passes.parameters import ParameterPhase, split_parameters
from anyrnn.passes.plan import Buffer, Program
from anyrnn.passes.save import Saves, backward_step, choose_saves
from anyrnn.passes.scan import scanned
from anyrnn.passes.simplify import simplify, simplify_roots
from anyrnn.passes.stage import stage
from anyrnn.passes.step import Step


@dataclass(frozen=True)
class Plan:
    """Everything a backend needs to know of a cell under its options. Structure only."""

    graph: Graph
    """simplified; what the interpreter runs"""
    adjoint: Adjoint
    phase: ParameterPhase
    phase_adjoint: PhaseAdjoint
    saves: Saves
    inference: Program
    training: Program
    backward: Program
    summed: frozenset[str]
    """The sources (see `Weight`) whose gradients are added to what is there, zeros at first: those of which some rows have
    several terms, or none.
    """

    def __hash__(self) -> int:
        """Of little, as it is asked for at every new shape of call."""
        return hash((len(self.graph.nodes), self.graph.outputs))

    def why_not(self, unsupported: Callable[[Sequence[Node]], str | None]) -> str | None:
        """Why a backend cannot run the cell, or None; `unsupported` says what of a kernel's nodes it cannot."""
        kernels = (kernel for program in (self.inference, self.training, self.backward) for kernel in program.kernels)
        reasons = filter(None, (unsupported(kernel.nodes) for kernel in kernels))
        return next((f"the cell uses {reason}" for reason in reasons), None)


MOST_OPS = 10_000
"""Of a step. Half a minute goes by until so many are compiled."""


def plan(traced: Graph) -> Plan:
    """All passes over a traced graph. Plans of equal graphs are equal, each with its graph's own names."""
    graph = replace(traced, parameters=tuple(replace(p, init=None) for p in traced.parameters))  # which may be functions
    return _plan(_Traced(repr(graph), graph))


@dataclass(frozen=True)
class _Traced:
    """A graph by its text, which tells all of it."""

    text: str
    graph: Graph = field(compare=False)


@lru_cache(maxsize=256)
def _plan(traced: _Traced) -> Plan:
    return remembered("plan", traced.text, lambda: make_plan(traced.graph))


def make_plan(traced: Graph) -> Plan:
    """The same, and nothing on disk is looked at."""
    if len(traced.nodes) > MOST_OPS:
        raise UnsupportedError(
            f"cell {traced.name!r} has {len(traced.nodes)} ops in a step; plans are made of {MOST_OPS} at most"
        )
    return _make_plan(simplify(traced))


def _make_plan(graph: Graph) -> Plan:
    joint = adjoint(graph)
    saves = choose_saves(joint)
    phase, steps = _steps(graph, joint, saves)
    inference, training, backward = (stage(*steps[which]) for which in PASSES)
    derivative = phase_adjoint(graph, phase.weights)
    return Plan(graph, joint, phase, derivative, saves, inference, training, backward, _summed(graph, phase, backward))


def with_scans(plan: Plan, which: str) -> Program | None:
    """`inference`, `training` or `backward` of a plan with scans over time in the place of its loop, which take all steps to be
    of all samples; None where there is a state that cannot be scanned.
    """
    found = scanned(*_steps(plan.graph, plan.adjoint, plan.saves)[1][which])
    return found and stage(*found)


PASSES = ("inference", "training", "backward")


def _steps(graph: Graph, joint: Adjoint, saves: Saves) -> tuple[ParameterPhase, dict[str, tuple[Step, list[Buffer]]]]:
    """The parameter phase, and for each pass its step and the buffers that loads name."""
    needed = tuple(("", i) for i in [*joint.roots, *(i for _, i in graph.outputs)])
    phase, nodes = split_parameters(joint.nodes, needed, (parameter.name for parameter in graph.parameters))
    step = _with_loads(nodes[: len(graph.nodes)])
    forward, buffers = _forward_step(graph, step, ()), _forward_buffers(graph)
    training, backward = _forward_step(graph, step, saves.kept), simplify_backward(backward_step(joint, saves, nodes))
    of_backward = _backward_buffers(graph, saves)
    return phase, {"inference": (forward, buffers), "training": (training, buffers), "backward": (backward, of_backward)}


def _summed(graph: Graph, phase: ParameterPhase, backward: Program) -> frozenset[str]:
    whole = {p.name: p.shape for p in graph.parameters} | {w.name: w.shape for w in phase.computed}
    weights = {w.name: w for w in phase.weights}
    terms: dict[str, list[tuple[Dim, Dim]]] = {w.source: [] for w in phase.weights}
    for name in [*(p.weight for p in backward.products), *(s.weight for s in backward.sums)]:
        weight = weights[name]
        terms[weight.source].append((weight.offset, weight.shape[0] if weight.shape else Dim.of(1)))
    size = {name: shape[0] if shape else Dim.of(1) for name, shape in whole.items()}
    return frozenset(source for source, ranges in terms.items() if not cover_once(ranges, size[source]))


def _with_loads(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Inputs and states are values in memory."""
    return tuple(
        Node("load", (), n.shape, (n.attributes[0], 0), True, n.name, n.source) if n.op in ("input", "state") else n
        for n in nodes
    )


def _dim(graph: Graph, index: int) -> Dim | None:
    shape = graph.nodes[index].shape
    return shape[0] if shape else None


def _forward_buffers(graph: Graph) -> list[Buffer]:
    streams = [Buffer(name, "stream", shape[0] if shape else None) for name, shape in graph.inputs]
    return streams + [Buffer(s.name, "state", s.shape[0] if s.shape else None) for s in graph.states]


def _forward_step(graph: Graph, nodes: tuple[Node, ...], kept: tuple[tuple[str, int], ...]) -> Step:
    states = tuple((s.name, graph.output(s.name)) for s in graph.states)
    outputs = [(name, "output", index) for name, index in (("y", graph.output("y")), *graph.more_outputs)]
    outputs += [(name, "saved", index) for name, index in kept]
    return _without_same_values(Step(nodes, False, states, tuple(outputs)))


def _without_same_values(step: Step) -> Step:
    """Once gradients are taken, what has the value of its operand need not be made: whatever reads it reads the operand."""
    builder = Builder()
    made: list[int] = []
    for node in step.nodes:
        inputs = tuple(made[s] for s in node.inputs)
        same = same_value(node.op, inputs)
        if same is None or builder.nodes[same].shape != node.shape:
            same = builder.add(replace(node, inputs=inputs))
        made.append(same)
    states = tuple((name, made[i]) for name, i in step.states)
    return replace(
        step, nodes=tuple(builder.nodes), states=states, outputs=tuple((n, role, made[i]) for n, role, i in step.outputs)
    )


def _backward_buffers(graph: Graph, saves: Saves) -> list[Buffer]:
    buffers = [Buffer(name, "stream", shape[0] if shape else None) for name, shape in graph.inputs]
    buffers += [Buffer("d_y", "cotangent", _dim(graph, graph.output("y")))]
    buffers += [Buffer(f"d_{name}", "stream", _dim(graph, index)) for name, index in graph.more_outputs]
    buffers += [Buffer(s.name, "saved", s.shape[0] if s.shape else None) for s in graph.states]
    buffers += [Buffer(name, "saved", _dim(graph, index)) for name, index in saves.kept]
    return buffers + [Buffer("d_" + s.name, "state", s.shape[0] if s.shape else None) for s in graph.states]


def simplify_backward(step: Step) -> Step:
    """The backward step after the local rules, which join products that are added up."""
    roots = [i for _, i in step.states] + [i for _, _, i in step.outputs] + [i for _, i in step.sums]
    nodes, moved = simplify_roots(
        step.nodes, roots + [i for _, left, right, _ in step.products for i in (left, right)], in_steps=True
    )
    return replace(
        step,
        nodes=nodes,
        states=tuple((name, moved[i]) for name, i in step.states),
        outputs=tuple((name, role, moved[i]) for name, role, i in step.outputs),
        products=tuple((weight, moved[left], moved[right], heads) for weight, left, right, heads in step.products),
        sums=tuple((weight, moved[i]) for weight, i in step.sums),
    )
