"""What is wrong with a cell, as far as a few runs of small layers show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn.ir.graph import Graph, Node
from anyrnn.ir.interpret import Interpreter
from anyrnn.numpy import Recurrent
from anyrnn.passes.adjoint import adjoint
from anyrnn.trace import Cell
from anyrnn.workbench.faults import Fault

Array = npt.NDArray[Any]
SAMPLES, INPUTS = 4, 12
HIDDEN = range(16, 129)
"""The first size that a cell can have: it may have to be a multiple of some number."""
STEPS, LARGEST = 1000, 1e3
"""A state whose norm is larger within so many steps of unit noise grows without bound, or nearly so."""
BOUNDED = 1.2
"""One whose largest norm of the second half is below so many times that of the quarter before it does not grow."""
LINEAR = 3.0
"""One whose last norm is below so many times that of half as many steps grows as sums do, which may be meant."""
STUCK = 1e-6
"""An output that moves less than this with unit noise says nothing of its input."""
GRADIENT_ERROR = 1e-5
"""Of the gradient's magnitude: what central differences in float64 leave of a right one is some 1e-8."""
SLIGHT = 1e-6


def _least_layer(
    cell: Cell, graph: Graph, input_size: int, hidden_size: int, more: Mapping[str, int]
) -> tuple[Recurrent, int, dict[str, Any]]:
    """A layer of the first size that the cell can have, or else of those that were asked for; its size, and the other sizes.

    Raises: ValueError where there is none, with what is wrong with those that were asked for.
    """
    wrong: list[ValueError] = []
    for inputs, hidden in (*((INPUTS, hidden) for hidden in HIDDEN), (input_size, hidden_size)):
        others: dict[str, Any] = dict(graph.other_sizes(hidden, more))
        width = hidden if graph.input_size_name == "hidden" else inputs
        try:
            return Recurrent(cell, width, hidden, backend="reference", dtype="float64", seed=0, **others), hidden, others
        except ValueError as error:
            wrong.append(error)
    raise wrong[-1]


def _has_another_gradient(node: Node) -> bool:
    """Whether the derivative is not that of the value, on purpose."""
    return node.op in ("stop_gradient", "clip_gradient") or (node.row.jumps and not node.row.boolean)


class Trial:
    """A small layer of a cell, in float64 by the reference backend, as it begins."""

    def __init__(self, cell: Cell, graph: Graph, input_size: int, hidden_size: int, more: Mapping[str, int]) -> None:
        """The sizes are asked for where the cell cannot have small ones."""
        self.graph = graph
        self.layer, self.hidden, self.others = _least_layer(cell, graph, input_size, hidden_size, more)
        self.sizes = self.layer.network.layer_sizes(0)
        self.random = np.random.default_rng(0)
        self.allowed = sorted({node.op for node in graph.nodes if _has_another_gradient(node) and node.per_sample})
        """Ops because of which no gradient is compared."""

    def noise(self, steps: int) -> tuple[Array, dict[str, Any]]:
        """The input, normal; the other per-step inputs by name, times or masks as a rule, within 0 and 1."""
        network = self.layer.network
        further = {name: self.random.uniform(size=(steps, SAMPLES, n)) for name, n in network.further_inputs}
        return self.random.normal(size=(steps, SAMPLES, network.input_size)), further

    def faults(self) -> Iterator[Fault]:
        """Not finite at zero, growing, stuck. Later trials make no sense when an earlier one fails."""
        for values, gradients in ((0.0, False), (0.0, True), (1.0, False), (1.0, True)):
            fault = self._not_finite(values, gradients)
            if fault is not None:
                yield fault
                return
        yield from self._long_run()

    def _leaves(self, scale: float) -> dict[int, Array]:
        """Values of all leaves; inputs are noise of a scale, see `noise`, states begin as the cell says, moved by such noise."""
        found: dict[int, Array] = {}
        hypers = dict(self.layer.network.hypers)
        first = {s.name: s.init for s in self.graph.states}
        for i, node in enumerate(self.graph.nodes):
            shape = (SAMPLES, node.shape[0].evaluate(self.sizes) if node.shape else 1)
            if node.op == "parameter":
                found[i] = self.layer.parameters[node.attributes[0] + "_l0"]
            elif node.op == "hyper":
                found[i] = np.array(hypers[node.attributes[0]])
            elif node.op == "input":
                first_input = node.attributes[0] == self.graph.inputs[0][0]
                found[i] = scale * (self.random.normal(size=shape) if first_input else self.random.uniform(size=shape))
            elif node.op == "state":
                moved = 0.5 * scale * self.random.normal(size=shape) if node.shape else np.zeros(shape)
                found[i] = first[node.attributes[0]] + moved
        return found

    def _not_finite(self, scale: float, gradients: bool) -> Fault | None:
        """One step, and its adjoint: the first op whose operands are finite and whose result is not."""
        values: dict[int, Any] = dict(self._leaves(scale))
        nodes: Sequence[Node] = self.graph.nodes
        roots = [i for _, i in self.graph.outputs]
        if gradients:
            joint = adjoint(self.graph)
            nodes = joint.nodes
            for i, node in enumerate(nodes):
                if node.op == "cotangent":
                    values[i] = np.ones((SAMPLES, node.shape[0].evaluate(self.sizes) if node.shape else 1))
            roots = [i for _, i in (*joint.inputs, *joint.states, *joint.sums)]
            roots += [i for product in joint.products for i in (product.left, product.right)]
        with np.errstate(all="ignore"):
            Interpreter(np, np.float64, self.sizes).run(nodes, values, roots)
        for i in sorted(values):
            if not nodes[i].inputs or np.isfinite(values[i]).all():
                continue
            if all(np.isfinite(values[s]).all() for s in nodes[i].inputs if s in values):
                when = "at zero" if scale == 0 else "for inputs of unit noise"
                bad = "NaN" if np.isnan(values[i]).any() else "infinite"
                called = (
                    f"{nodes[i].name!r} ({nodes[i].op})" if nodes[i].name and not gradients else f"the result of {nodes[i].op}"
                )
                what = (
                    f"the gradient is {bad} {when}: the derivative of what stands here"
                    if gradients
                    else f"{called} is {bad} {when}"
                )
                return Fault("error", nodes[i].source, what)
        return None

    def _long_run(self) -> Iterator[Fault]:
        """Step by step over unit noise."""
        layer, states = self.layer, self.graph.states
        x, further = self.noise(STEPS)
        with np.errstate(all="ignore"):
            y, every = layer(x, **further, return_states="all")
            by_state = [every] if len(states) == 1 else every
            norms = [np.linalg.norm(a[0], axis=-1).max(-1) for a in by_state]
        for state, norm in zip(states, norms, strict=True):
            largest = LARGEST if state.shape else STEPS * LARGEST  # numbers may count
            over = np.flatnonzero(~(norm <= largest))
            if over.size:
                after = f"after {int(over[0]) + 1} steps of unit noise ({self.hidden} features)"
                what = f"grows: its norm is over {largest:g} {after}" if norm[over[0]] > largest else f"is NaN {after}"
                bounded = norm[STEPS // 2 :].max() < BOUNDED * norm[STEPS // 4 : STEPS // 2].max()
                linear = norm[-1] < LINEAR * norm[STEPS // 2 - 1]
                if bounded:
                    what = f"is large, though it does not grow: {what.removeprefix('grows: ')}"
                elif linear:
                    what += "; it adds up, step by step"
                where = self.graph.nodes[self.graph.output(state.name)].source
                yield Fault("warning" if bounded or linear else "error", where, f"state {state.name!r} {what}")
                return
        if self._is_stuck(y) and self._is_stuck(layer(x, **{name: np.round(values) for name, values in further.items()})[0]):
            where, stuck = self.graph.nodes[self.graph.output("y")].source, "it is the same whatever comes in, after a while"
            if self._moves_later(x, further):
                yield Fault("warning", where, f"as the cell begins, with parameters that are zero, the output is stuck: {stuck}")
            else:
                yield Fault("error", where, f"the output is stuck: {stuck}")

    @staticmethod
    def _is_stuck(y: Array) -> bool:
        return float(np.ptp(y[STEPS // 2 :], axis=0).max()) < STUCK

    def _moves_later(self, x: Array, further: Mapping[str, Any]) -> bool:
        """Whether the output moves once no parameter is zero, as gains may be in the beginning."""
        other = copy(self.layer)
        moved = {name: self.random.normal(size=value.shape) for name, value in other.parameters.items() if not value.any()}
        other.parameters = {**other.parameters, **moved}
        with np.errstate(all="ignore"):
            return not self._is_stuck(other(x, **further)[0])

    def gradient_error(self) -> float | None:
        """The largest difference between the gradient and central differences along some directions, as a part of its magnitude;
        None where the cell has ops whose derivative is not that of their value.
        """
        if self.allowed:
            return None
        layer = self.layer
        x, further = self.noise(3)
        y, _, reserve = layer.forward_training(x, **further)
        weights = np.cos(np.arange(y.size)).reshape(y.shape)
        found_gradients: Any = layer.backward(reserve, weights)
        d_inputs, _, gradients = found_gradients
        worst = 0.0
        places: list[tuple[Array, Array]] = [(x, d_inputs[0] if isinstance(d_inputs, tuple) else d_inputs)]
        trained = {p.name + "_l0" for p in self.graph.parameters if p.trained}
        places += [(layer.parameters[name], gradients[name]) for name in gradients if name in trained]
        scale = max(float(np.abs(g).max()) for _, g in places) or 1.0
        for array, gradient in places:
            direction = self.random.choice([-1.0, 1.0], size=array.shape)
            found = []
            for sign in (1, -1):
                array += sign * SLIGHT * direction
                found.append(float((layer(x, **further)[0] * weights).sum()))
                array -= sign * SLIGHT * direction
            expected = (found[0] - found[1]) / (2 * SLIGHT)
            worst = max(worst, abs(float((gradient * direction).sum()) - expected) / (scale * array.size**0.5))
        return worst
