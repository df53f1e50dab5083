"""Options of a layer as rewrites of the one-step graph, before its adjoint is taken: gradients, stages and kernels follow by
themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from anyrnn.ir.graph import Builder, Graph, Node, affine_parts, reachable
from anyrnn.ir.symbol import Symbol
from anyrnn.passes.adjoint import of_numbers

Change = Callable[[Symbol], Symbol]
ACTIVATIONS = ("sigmoid", "tanh", "relu", "softplus")


def with_input_dropout(graph: Graph, choice: str) -> Graph:
    """Features of the input are zero at random, the others scaled up."""
    name = graph.inputs[0][0]
    return _changed(graph, {_leaf(graph, "input", name): lambda x: _dropped(x, choice)})


def with_output_dropout(graph: Graph) -> Graph:
    """Features of the output are zero at random, the others scaled up; states are not touched."""
    return _with_outputs(graph, {"y": lambda y: _dropped(y, "output")})


def with_recurrent_dropout(graph: Graph, choices: Mapping[str, str]) -> Graph:
    """Features of what products read of states are zero at random, the others scaled up. `choices`: by state."""

    def changed(state: Symbol) -> Symbol:
        return _dropped(state, choices[_name(state)]) if _name(state) in choices else state

    return _with_states_in_products(graph, changed)


def with_weight_dropout(graph: Graph, kind: str, most: int) -> Graph:
    """Weights of products that read states are zero at random, the others scaled up; they are computed before the steps. Matrix
    number k, of at most so many, has the choice `kind.k`.
    """
    of_states: list[bool] = []
    for node in graph.nodes:
        is_product = node.op == "affine"
        of_states.append(node.op == "state" or (not is_product and any(of_states[s] for s in node.inputs)))
    builder = Builder()
    mapped: dict[int, int] = {}
    dropped: dict[int, int] = {}
    for i, node in enumerate(graph.nodes):
        builder.source = node.source
        inputs = [mapped[s] for s in node.inputs]
        if node.op == "affine" and node.per_sample:
            for k, (matrix, operand, _, _) in enumerate(affine_parts(node)[0]):
                if of_states[operand]:
                    if matrix not in dropped:
                        name, number = _parameter_of(graph, matrix), len(dropped)
                        made = _dropped(builder.symbol(mapped[matrix]), f"{kind}.{number}", f"{name}_dropped_{number}")
                        dropped[matrix] = made.index
                    inputs[2 * k] = dropped[matrix]
        mapped[i] = builder.add(replace(node, inputs=tuple(inputs)))
    if not dropped:
        raise ValueError(f"cell {graph.name!r} has no product that reads a state: leave the option out")
    if len(dropped) > most:
        raise ValueError(
            f"cell {graph.name!r} has {len(dropped)} products that read states, and at most {most} can be told apart"
        )
    return _finished(graph, builder, mapped)


def with_zoneout(graph: Graph, choices: Mapping[str, str], at_random: bool) -> Graph:
    """Features of new states are as before the step at random, or else the mean of that. `choices`: by state. An output that is a
    new state follows it.
    """

    def changed(new: Symbol, state: str) -> Symbol:
        builder, choice = new.builder, choices[state]
        before = builder.leaf("state", state, new.shape)
        if at_random:
            return builder.make("choose", [new, before], new.shape, (choice, 0))
        return new + builder.leaf("probability", choice, (), per_sample=False) * (before - new)

    return _with_outputs(graph, {state: partial(changed, state=state) for state in choices})


def with_all_states(graph: Graph) -> Graph:
    """The new states are outputs too."""
    return replace(graph, outputs=(*graph.outputs, *((f"{s.name}.all", graph.output(s.name)) for s in graph.states)))


MARK = "step.mark"
"""The per-step input that says whether a sample has a step, which no cell has by this name."""


def with_held_states(graph: Graph) -> Graph:
    """Where the input `MARK`, one number a sample, is not above zero, states stay as they are and everything else is zero.

    What is made in such a step may be anything, so it must meet no gradient: not even zero times it is zero. So what the step
    reads from outside gets gradients of other steps alone, and so does each sum of products; and what products read that is made
    in the step is zero. Inputs and states are taken for numbers.
    """
    builder, mapped, varies = Builder(), dict[int, int](), of_numbers(graph.nodes)
    mark = builder.leaf("input", MARK)

    def where(value: Symbol, otherwise: Symbol) -> Symbol:
        there = builder.constant(0.0) < builder.stretch(mark, value.shape)
        return builder.apply("where", there, value, otherwise)

    def marked(value: Symbol) -> Symbol:
        """The same value, with gradients of steps that are there."""
        return where(value, builder.apply("stop_gradient", value))

    def read(reader: Node, i: int) -> Symbol:
        value, node = builder.symbol(mapped[i]), graph.nodes[i]
        from_outside = node.row.kind == "leaf" or not node.per_sample
        if not reader.per_sample or node.row.boolean or not varies[i]:
            return value
        if reader.op == "affine":
            return value if from_outside else where(value, builder.constant(0.0))
        return marked(value) if from_outside else value

    for i, node in enumerate(graph.nodes):
        builder.source = node.source
        mapped[i] = builder.add(replace(node, inputs=tuple(read(node, s).index for s in node.inputs)))
        if node.op == "affine" and node.per_sample:
            mapped[i] = marked(builder.symbol(mapped[i])).index
    held: dict[str, int] = {}
    for state in graph.states:
        new, before = builder.symbol(mapped[graph.output(state.name)]), builder.leaf("state", state.name, state.shape)
        held[state.name] = where(new, before).index
    shown = mapped | {graph.output(name): i for name, i in held.items()}  # so that one value is kept of both
    others = {name: where(builder.symbol(shown[i]), builder.constant(0.0)).index for name, i in graph.outputs if name not in held}
    outputs = tuple((name, (held | others)[name]) for name, _ in graph.outputs)
    return replace(graph, nodes=tuple(builder.nodes), outputs=outputs, inputs=(*graph.inputs, (MARK, ())))


def with_clipped_states(graph: Graph, bounds: Mapping[str, tuple[float, float]]) -> Graph:
    """New states lie within bounds, before anything else of the step reads them. `bounds`: by state.

    Where several states have the same new value, what else reads it gets that of the first of them. Where a new state is one
    from before the step, or an input, nothing else changes.
    """
    first = _first_states(graph)
    changes: dict[int, Change] = {}
    for i, state in first.items():
        if state in bounds and graph.nodes[i].row.kind != "leaf":
            changes[i] = partial(_clipped, low=bounds[state][0], high=bounds[state][1])
    builder, mapped, before = _rebuilt(graph, changes)

    def of_output(name: str, i: int) -> int:
        if name not in bounds:
            return before[i] if name in graph.state_names else mapped[i]
        return _clipped(builder.symbol(before[i]), *bounds[name]).index

    outputs = tuple((name, of_output(name, i)) for name, i in graph.outputs)
    return replace(graph, nodes=tuple(builder.nodes), outputs=outputs)


def with_clipped_preactivations(graph: Graph, bound: float) -> Graph:
    """What activation functions get lies within bounds, where it is made of products and inputs by anything but such functions.
    What else reads it gets it as it is.
    """
    of_sums: list[bool] = []
    for node in graph.nodes:
        inside = any(of_sums[s] for s in node.inputs) and node.op not in ACTIVATIONS
        of_sums.append(node.per_sample and (node.op in ("affine", "input") or inside))
    clipped = {s for n in graph.nodes if n.op in ACTIVATIONS for s in n.inputs if of_sums[s]}
    if not clipped:
        sides = "has no activation function of products or inputs, so there is no pre-activation to clip"
        raise ValueError(f"cell {graph.name!r} {sides}")
    builder, mapped = Builder(), dict[int, int]()
    for i, node in enumerate(graph.nodes):
        builder.source = node.source
        given = [builder.symbol(mapped[s]) for s in node.inputs]
        if node.op in ACTIVATIONS:
            given = [_clipped(x, -bound, bound) if s in clipped else x for x, s in zip(given, node.inputs, strict=True)]
        mapped[i] = builder.add(replace(node, inputs=tuple(x.index for x in given)))
    return _finished(graph, builder, mapped)


def with_activations(graph: Graph, functions: Mapping[str, Change]) -> Graph:
    """Other functions in the place of activation functions. `functions`: by op."""
    ops = {node.op for node in graph.nodes if node.per_sample}
    missing = [op for op in functions if op not in ops]
    if missing:
        known = ", ".join(sorted(ops.intersection(ACTIVATIONS))) or "no activation function"
        raise ValueError(f"cell {graph.name!r} has no {missing[0]}; it has {known}")
    builder = Builder()
    mapped: dict[int, int] = {}
    for i, node in enumerate(graph.nodes):
        builder.source = node.source
        if not (node.per_sample and node.op in functions):
            mapped[i] = _copied(builder, node, mapped)
            continue
        made = functions[node.op](builder.symbol(mapped[node.inputs[0]]))
        of_this = isinstance(made, Symbol) and made.builder is builder
        if not of_this or made.shape != node.shape or builder.nodes[made.index].row.boolean:
            raise ValueError(f"what is in the place of {node.op} should give as many numbers as it is given, it gave {made!r}")
        builder.rename(made.index, node.name)
        mapped[i] = made.index
    return _finished(graph, builder, mapped)


def with_clipped_gradients(graph: Graph, bound: float) -> Graph:
    """The gradients of states lie within bounds at every step."""

    def clipped(state: Symbol) -> Symbol:
        return state.builder.apply("clip_gradient", state, -bound, bound)

    return _changed(graph, {_leaf(graph, "state", state.name): clipped for state in graph.states})


def with_cut_gradients(graph: Graph) -> Graph:
    """No gradient goes through products to the states that they read."""
    return _with_states_in_products(graph, lambda s: s.builder.apply("stop_gradient", s))


def _leaf(graph: Graph, op: str, name: str) -> int:
    return next((i for i, n in enumerate(graph.nodes) if n.op == op and n.attributes[0] == name), -1)


def _name(leaf: Symbol) -> str:
    name: str = leaf.builder.nodes[leaf.index].attributes[0]
    return name


def _parameter_of(graph: Graph, index: int) -> str:
    """The first parameter that a value is made of."""
    first = min(i for i in reachable(graph.nodes, [index]) if graph.nodes[i].op == "parameter")
    name: str = graph.nodes[first].attributes[0]
    return name


def _dropped(x: Symbol, choice: str, name: str = "") -> Symbol:
    builder = x.builder
    scaled = x * builder.leaf("scale", choice, (), per_sample=False)
    return builder.make("choose", [scaled, builder.constant(0.0)], x.shape, (choice, 0), name or _named(x, "dropped"))


def _clipped(x: Symbol, low: float, high: float) -> Symbol:
    builder = x.builder
    result = builder.apply("where", x > high, high, builder.apply("where", x < low, low, x))
    builder.rename(result.index, _named(x, "clipped"))
    return result


def _named(x: Symbol, ending: str) -> str:
    name = x.builder.nodes[x.index].name
    return f"{name}_{ending}" if name else ""


def _copied(builder: Builder, node: Node, mapped: Mapping[int, int]) -> int:
    return builder.add(replace(node, inputs=tuple(mapped[s] for s in node.inputs)))


def _changed(graph: Graph, changes: Mapping[int, Change]) -> Graph:
    """Some nodes changed, for everything that reads them and in the outputs."""
    builder, mapped, _ = _rebuilt(graph, changes)
    return _finished(graph, builder, mapped)


def _finished(graph: Graph, builder: Builder, mapped: Mapping[int, int]) -> Graph:
    """The graph of new nodes; `mapped` says where each of the old ones is."""
    return replace(graph, nodes=tuple(builder.nodes), outputs=tuple((n, mapped[i]) for n, i in graph.outputs))


def _rebuilt(graph: Graph, changes: Mapping[int, Change]) -> tuple[Builder, dict[int, int], dict[int, int]]:
    """A graph's nodes with some of them changed for everything that reads them: where each now is, and where it is before its own
    change.
    """
    builder = Builder()
    mapped: dict[int, int] = {}
    before: dict[int, int] = {}
    for i, node in enumerate(graph.nodes):
        builder.source = node.source
        mapped[i] = before[i] = _copied(builder, node, mapped)
        if i in changes:
            mapped[i] = changes[i](builder.symbol(mapped[i])).index
    return builder, mapped, before


def _first_states(graph: Graph) -> dict[int, str]:
    """Of the nodes that are new states, the first state that each is."""
    found: dict[int, str] = {}
    for state in graph.states:
        found.setdefault(graph.output(state.name), state.name)
    return found


def _with_outputs(graph: Graph, changes: Mapping[str, Change]) -> Graph:
    """Some outputs changed: what reads their values in the step reads them as they were. The output y changes with the state that
    it is, the first if it is several.
    """
    builder = Builder(graph.nodes)
    made = {name: changes[name](builder.symbol(i)).index if name in changes else i for name, i in graph.outputs}
    y, first = graph.output("y"), _first_states(graph)
    if "y" not in changes and y in first:
        made["y"] = made[first[y]]
    return replace(graph, nodes=tuple(builder.nodes), outputs=tuple(made.items()))


def _with_states_in_products(graph: Graph, change: Change) -> Graph:
    """States changed for the products that read them, directly or in what is made of them without another product."""
    builder = Builder()
    mapped: dict[int, int] = {}
    inside: dict[int, int] = {}
    """the same for products"""
    for i, node in enumerate(graph.nodes):
        builder.source = node.source
        if node.op == "affine" and node.per_sample:
            operands = {operand for _, operand, _, _ in affine_parts(node)[0]}
            inputs = tuple(inside[s] if s in operands else mapped[s] for s in node.inputs)
            mapped[i] = inside[i] = builder.add(replace(node, inputs=inputs))
            continue
        mapped[i] = _copied(builder, node, mapped)
        inside[i] = change(builder.symbol(mapped[i])).index if node.op == "state" else _copied(builder, node, inside)
    read = any(
        inside[operand] != mapped[operand] for n in graph.nodes if n.op == "affine" for _, operand, *_ in affine_parts(n)[0]
    )
    if not read:
        raise ValueError(f"cell {graph.name!r} has no product that reads a state: leave the option out")
    return _finished(graph, builder, mapped)
