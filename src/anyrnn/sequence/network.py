"""What a recurrent network is, apart from its numbers: a cell, its sizes, layers and directions, the names and shapes of its
parameters.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from anyrnn.errors import CellError, UnsupportedError, meant
from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import Graph, Node, Parameter, affine_parts
from anyrnn.ir.ops import RANDOM
from anyrnn.ir.philox import Randomness
from anyrnn.passes.compile import Plan, plan
from anyrnn.passes.options import with_all_states, with_held_states
from anyrnn.passes.plan import MOVES
from anyrnn.passes.simplify import simplify
from anyrnn.sequence.options import BY_FEATURE, OPTIONS, LayerOptions, first_parameter, is_number
from anyrnn.trace import Cell
from anyrnn.trace.cell import check_bias
from anyrnn.trace.signature import LAYER_ARGUMENTS


@dataclass(frozen=True)
class Network:
    """`sizes` gives `input`, `hidden` and whatever else the cell names; it is kept as pairs so that a Network is hashable."""

    graph: Graph
    sizes: tuple[tuple[str, int], ...]
    layers: int = 1
    bidirectional: bool = False
    hypers: tuple[tuple[str, float], ...] = ()
    """Values of the cell's run-time scalars. Networks that differ in them alone share plans and code, which are the graph's."""
    probabilities: tuple[tuple[str, tuple[float, ...]], ...] = ()
    """Of each random choice, by layer: see `ir.philox`."""
    reverse: bool = False
    """Of one direction: it goes from the last step to the first."""
    learned_state: bool = False
    """First values of states are parameters."""
    merge: str = "concat"
    """How the outputs of both directions become that of the layer."""
    residual: bool = False
    """Each layer above the first adds its input to its output."""
    first_layer: int = 0
    """The number of the first layer, where a network is a part of another."""

    @cached_property
    def _hash(self) -> int:
        return hash((self.graph, self.sizes, self.layers, self.ways, self.hypers, self.probabilities, self.first_layer))

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        """Without what follows from the rest, of which hashes are others in other processes."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def plan(self) -> Plan:
        return plan(self.graph)

    def randomness(self, seed: Any, places: tuple[Any, Any] | None, draw: Callable[..., Any] | None = None) -> Randomness | None:
        """What a call's random choices depend on; None where there are none. See `ir.philox`."""
        return Randomness(seed, dict(self.probabilities), places, self.first_layer, draw) if self.probabilities else None

    @cached_property
    def draws(self) -> bool:
        """Whether a call makes random choices, and not only computes with their probabilities."""
        return any(node.op == "choose" for node in self.graph.nodes)

    @property
    def ways(self) -> tuple[int, ...]:
        """The directions of a layer, in the order of their outputs: 0 from the first step to the last, 1 from the last to the
        first.
        """
        return (0, 1) if self.bidirectional else (int(self.reverse),)

    @property
    def directions(self) -> int:
        return len(self.ways)

    @cached_property
    def units(self) -> tuple[tuple[int, int], ...]:
        """(layer, direction) of each run of the cell, in order."""
        return tuple((layer, direction) for layer in range(self.layers) for direction in self.ways)

    def layer_sizes(self, layer: int) -> Mapping[str, int]:
        """The sizes as layer `layer` sees them: the layers above the first take the outputs below."""
        sizes = dict(self.sizes)
        if layer:
            sizes[self.input_name] = self.width
        return sizes

    @property
    def input_name(self) -> str:
        """The named size of the cell's input."""
        return self.graph.input_size_name

    @cached_property
    def output_size(self) -> int:
        """Features of one direction's output."""
        return self.graph.nodes[self.graph.output("y")].shape[0].evaluate(dict(self.sizes))

    @cached_property
    def with_all_states(self) -> Network:
        """The same, whose steps give their states too."""
        return replace(self, graph=with_all_states(self.graph))

    @cached_property
    def held(self) -> Network:
        """The same, with a further input that says whether a sample has a step (see `with_held_states`)."""
        return replace(self, graph=with_held_states(simplify(self.graph)))

    @cached_property
    def held_has_its_bits(self) -> bool:
        """Whether results have the same bits with `held`, which adds up what comes to a state or an input of other ops than
        products before the rest. Not where features move, whose stages are others then; nor where the step itself may add up in
        another order: three terms or more, of which some but not all are of other ops, unless the last one is that of the only
        product.
        """
        graph = self.plan.graph
        if any(node.op in MOVES and node.per_sample for node in graph.nodes):
            return False
        for leaf in (i for i, node in enumerate(graph.nodes) if node.op in ("input", "state")):
            readers = [(i, node.op == "affine") for i, node in enumerate(graph.nodes) for s in node.inputs if s == leaf]
            others, products = ([i for i, is_product in readers if is_product is kind] for kind in (False, True))
            shown = any(i == leaf for _, i in graph.outputs)
            product_is_last = len(products) == 1 and products < others and not shown
            if (shown or products) and shown + len(others) + bool(products) > 2 and not product_is_last:
                return False
        return True

    @property
    def merges(self) -> bool:
        """Whether the outputs of both directions are made one, feature by feature."""
        return self.merge in BY_FEATURE

    @cached_property
    def width(self) -> int:
        """Features of a layer's output."""
        return self.output_size if self.merges else self.directions * self.output_size

    @property
    def adds_ends(self) -> bool:
        """Whether the input that a residual layer adds can be told apart by direction, whose last steps are different."""
        return self.residual and not self.merges

    def by_way(self, y: Any) -> list[tuple[int, Any]]:
        """Of each direction, its last step in a sequence of outputs [T, N, width], and its features of them."""
        size = y.shape[-1] // self.directions
        return [(0 if way else -1, y[..., k * size : (k + 1) * size]) for k, way in enumerate(self.ways)]

    @cached_property
    def parts(self) -> tuple[Network, ...]:
        """What is run in one call after the other: this network, or where something happens between its layers that no kernel
        does, each layer by itself, with the outputs of both directions one behind the other.
        """
        if not self.merges and not self.residual:
            return (self,)
        plain = replace(self, layers=1, merge="concat", residual=False)
        sizes = [tuple(self.layer_sizes(layer).items()) for layer in range(self.layers)]
        chances = [tuple((name, (p[layer],)) for name, p in self.probabilities) for layer in range(self.layers)]
        return tuple(
            replace(plain, sizes=s, probabilities=p, first_layer=self.first_layer + layer)
            for layer, (s, p) in enumerate(zip(sizes, chances, strict=True))
        )

    @property
    def is_one_call(self) -> bool:
        return self.parts[0] is self

    @property
    def input_size(self) -> int:
        return self.graph.inputs[0][1][0].evaluate(dict(self.sizes))

    def state_size(self, shape: tuple[Dim, ...]) -> int:
        """Features of a state; 1 for a scalar."""
        return shape[0].evaluate(dict(self.sizes)) if shape else 1

    @cached_property
    def state_sizes(self) -> tuple[int, ...]:
        return tuple(self.state_size(s.shape) for s in self.graph.states)

    def suffix(self, layer: int, direction: int) -> str:
        """What parameters of a layer and direction carry behind their names."""
        return f"_l{self.first_layer + layer}" + ("_reverse" if direction and self.bidirectional else "")

    def parameters(self, layer: int) -> tuple[tuple[Parameter, tuple[int, ...]], ...]:
        """A layer's parameters with their shapes, for each direction the same."""
        return self._parameters[layer]

    @cached_property
    def _parameters(self) -> tuple[tuple[tuple[Parameter, tuple[int, ...]], ...], ...]:
        def shaped(sizes: Mapping[str, int]) -> tuple[tuple[Parameter, tuple[int, ...]], ...]:
            return tuple((p, tuple(d.evaluate(sizes) for d in p.shape)) for p in self.graph.parameters)

        return tuple(map(shaped, map(self.layer_sizes, range(self.layers))))

    @cached_property
    def parameter_names(self) -> tuple[str, ...]:
        """Of all layers and directions."""
        return tuple(p.name + self.suffix(*unit) for unit in self.units for p in self.graph.parameters)

    @cached_property
    def first_names(self) -> tuple[tuple[str, ...], ...]:
        """For each state, the parameters that are its learned first values in each unit."""
        return tuple(tuple(first_parameter(s.name) + self.suffix(*unit) for unit in self.units) for s in self.graph.states)

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The arrays that a step reads: parameters as they are, then results of the parameter phase."""
        weights = self.plan.phase.weights
        direct = dict.fromkeys(w.parameter for w in weights if w.parameter is not None)
        return (*direct, *(w.name for w in weights if w.parameter is None))

    def source_shapes(self, layer: int) -> list[tuple[int, ...]]:
        """The shapes of a layer's `sources`."""
        sizes = self.layer_sizes(layer)
        shapes = {p.name: p.shape for p in self.graph.parameters} | {w.name: w.shape for w in self.plan.phase.computed}
        return [tuple(d.evaluate(sizes) for d in shapes[name]) for name in self.sources]

    @cached_property
    def further_inputs(self) -> tuple[tuple[str, int], ...]:
        """The per-step inputs beside the first, which every layer gets, with their features."""
        return tuple((name, shape[0].evaluate(dict(self.sizes))) for name, shape in self.graph.inputs[1:] if shape)

    @cached_property
    def further_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.further_inputs)


def merged(y: Any, merge: str) -> Any:
    """A layer's output of the outputs of both directions, which stand one behind the other in the last dimension."""
    if merge not in BY_FEATURE:
        return y
    size = y.shape[-1] // 2
    forward, backward = y[..., :size], y[..., size:]
    if merge == "mul":
        return forward * backward
    return forward + backward if merge == "sum" else (forward + backward) * 0.5


def check_wanted(network: Network, who: str, return_outputs: Any, return_states: Any) -> None:
    """Raises ValueError for what no call of a network gives."""
    if return_states not in ("last", "all"):
        raise ValueError(f"{who}return_states should be 'last' or 'all', got {return_states!r}")
    if return_outputs not in ("all", "last", "none"):
        raise ValueError(f"{who}return_outputs should be 'all', 'last' or 'none', got {return_outputs!r}")
    if return_outputs == "last" and network.residual and not network.adds_ends:
        sides = f"one for both directions (merge={network.merge!r}), whose last steps are different"
        raise ValueError(f"{who}return_outputs='last': the input that residual layers add is {sides}")


@dataclass(frozen=True)
class Networks:
    """A layer's network as calls that do not train run it, and as those do that train."""

    evaluation: Network
    training: Network


@dataclass(frozen=True)
class Traced:
    """A layer's network but for dropout between layers, which may be changed: of the cell's function as it was when the layer was
    made, whatever becomes of what it reads from outside. Where it is unpickled it is traced again, as that process has the cell.
    """

    given: tuple[Any, ...]
    network: Network
    options: LayerOptions

    def __reduce__(self) -> tuple[Any, ...]:
        return traced, self.given

    def __deepcopy__(self, memo: dict[int, Any]) -> Traced:
        return self

    def with_dropout(self, dropout: float) -> Networks:
        plain = self.network
        graph, between_layers = self.options.with_parameters(plain.graph), bool(dropout) and plain.layers > 1
        chances = self.options.probabilities(graph, plain.layers, dropout)

        def network(changed: Graph) -> Network:
            drawn = {n.attributes[0] for n in changed.nodes if n.op in RANDOM}
            return replace(plain, graph=changed, probabilities=tuple((name, p) for name, p in chances if name in drawn))

        return Networks(network(self.options.evaluated(graph)), network(self.options.trained(graph, between_layers)))


def traced(
    cell: Cell, input_size: int, hidden_size: int, num_layers: int, bias: bool | str, bidirectional: bool, options: dict[str, Any]
) -> Traced:
    """Of a cell; `options` are split into those of layers, hyper-parameters and named sizes."""
    given = cell, input_size, hidden_size, num_layers, bias, bidirectional, options
    of_layer = LayerOptions(**{name: value for name, value in options.items() if name in OPTIONS})
    of_cell = {k: v for k, v in options.items() if k not in OPTIONS}
    plain = _make_network(cell, input_size, hidden_size, num_layers, bias, of_layer.skip_input, bidirectional, of_cell)
    if of_layer.reverse and bidirectional:
        raise ValueError("reverse is for one direction; a bidirectional layer has both")
    if of_layer.merge != "concat" and not bidirectional:
        raise ValueError(f"merge={of_layer.merge!r} is for bidirectional layers")
    if of_layer.residual and num_layers == 1:
        raise ValueError("residual is for layers above the first, and num_layers=1 has none")
    structure = {name: getattr(of_layer, name) for name in ("reverse", "learned_state", "merge", "residual")}
    plain = replace(plain, **structure)
    check_sizes(plain)
    return Traced(given, plain, of_layer)


def _make_network(
    cell: Cell,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    bias: bool | str,
    skip_input: bool,
    bidirectional: bool,
    options: dict[str, Any],
) -> Network:
    """A Network of a cell; `options` are split into hyper-parameters and named sizes."""
    hypers = {k: v for k, v in options.items() if k in dict(cell.signature.hypers)}
    graph = cell.trace(bias, skip_input, **hypers)
    named = {k: v for k, v in options.items() if k not in hypers}
    of_input = graph.input_size_name
    if of_input == "hidden" and input_size != hidden_size:
        raise ValueError(f"cell {cell.name!r} takes inputs of the hidden size {hidden_size}, got input_size={input_size}")
    sizes = {"hidden": hidden_size, of_input: input_size, **named}
    missing = [name for name in graph.size_names if name not in sizes]
    unknown = [name for name in named if name not in graph.size_names or name in (of_input, "hidden")]
    if missing:
        raise TypeError(
            f"cell {cell.name!r} needs the size{'s' if len(missing) > 1 else ''} {', '.join(missing)} as keyword "
            f"argument{'s' if len(missing) > 1 else ''}"
        )
    if unknown:
        known = [n for n in (*graph.size_names, *dict(cell.signature.hypers)) if n not in (of_input, "hidden")]
        of_layers = f"of layers of any cell: {', '.join(OPTIONS)}"
        slip = meant(unknown[0], (*known, *OPTIONS, *LAYER_ARGUMENTS))
        there_are = f"options of cell {cell.name!r}: {', '.join(known) or 'none'}; {of_layers}"
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}{slip}; {there_are}")
    for name, value in named.items():
        check_size(name, value)
    values = cell.values(hypers)
    numbers = tuple((name, values[name]) for name in graph.hypers)
    return Network(graph, tuple(sorted(sizes.items())), num_layers, bidirectional, numbers)


def check_sizes(network: Network) -> None:
    """Every size in the cell, and every block of a block-diagonal product, is a whole number of features, and what is taken of a
    vector lies in it. Raises: CellError, ValueError.
    """
    for layer in range(min(2, network.layers)):  # the others have the sizes of the second
        sizes = network.layer_sizes(layer)
        if sizes["hidden"] != network.layer_sizes(0)["hidden"]:
            raise ValueError(
                f"cell {network.graph.name!r} takes inputs of the hidden size, but layers above get {sizes['hidden']}"
            )
        _check_alike(network, sizes)
        for name, features in network.further_inputs:
            (size,) = dict(network.graph.inputs)[name]
            if size.evaluate(sizes) != features:
                sides = f"has {features} features in the first layer and would have {size.evaluate(sizes)} in those above"
                raise ValueError(f"cell {network.graph.name!r}: per-step input {name!r} {sides}; every layer gets the same")
        for node in network.graph.nodes:
            _check_node(network.graph.nodes, node, sizes, network.graph.name)


def _check_alike(network: Network, sizes: Mapping[str, int]) -> None:
    """Outputs and states are arrays of all layers, so that they have one size in all of them."""
    graph = network.graph
    shapes = {"the output": graph.nodes[graph.output("y")].shape} | {f"state {s.name!r}": s.shape for s in graph.states}
    for who, shape in shapes.items():
        first, here = (shape[0].evaluate(given) if shape else 1 for given in (network.layer_sizes(0), sizes))
        if here != first:
            sides = f"has {first} features in the first layer and would have {here} in those above"
            raise ValueError(f"cell {graph.name!r}: {who} {sides}; make a layer of each, one after the other")


def _check_node(nodes: Sequence[Node], node: Node, sizes: Mapping[str, int], who: str) -> None:
    more: list[Dim] = []
    if node.op == "affine":
        more = [nodes[matrix].shape[0] / heads for matrix, _, _, heads in affine_parts(node)[0]]
    elif node.op == "slice":
        offset, size = node.attributes
        more = [offset, nodes[node.inputs[0]].shape[0] - offset - size]
    try:
        for dim in node.shape:
            dim.evaluate(sizes, least=1)
        for dim in more:
            dim.evaluate(sizes)
    except ValueError as error:
        where = f"{node.source}: " if node.source else ""
        raise CellError(f"{where}cell {who!r}: {error}") from None


def counted_to(dtype: str) -> int | None:
    """How far a number can be counted in a dtype of 16 bits, by its name; None for others."""
    return {"bfloat16": 2**8, "float16": 2**11}.get(dtype.rpartition(".")[2])


def check_counters(network: Network, dtype: str) -> None:
    """Raises: UnsupportedError where a state would stop counting, since adding 1 to a large number gives the same number."""
    limit = counted_to(dtype)
    state = next((state for state, end in network.graph.counters.items() if limit and end > limit), None)
    if state is not None:
        sides = f"state {state!r} counts steps, in {dtype} to {limit} only; use float32"
        raise UnsupportedError(f"cell {network.graph.name!r}: {sides}")


def check_dropout(dropout: Any) -> None:
    if not is_number(dropout) or not 0 <= dropout <= 1:
        raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element being zeroed")


def check_budget(memory_budget: Any) -> None:
    if memory_budget is not None:
        check_size("memory_budget", memory_budget)


def check_size(name: str, value: Any) -> None:
    """Raises: TypeError, ValueError for what is no size."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
    if value <= 0:
        raise ValueError(f"{name} must be greater than zero")


def check_arguments(bias: Any, batch_first: Any, input_size: Any, hidden_size: Any, num_layers: Any, dropout: Any) -> None:
    """The checks of torch.nn's constructors, with their types, and their warning."""
    check_dropout(dropout)
    check_bias(bias)
    for name, value in (
        ("bias", bool(bias) if isinstance(bias, str) else bias),
        ("batch_first", batch_first),
    ):
        if not isinstance(value, bool):
            raise TypeError(f"{name} should be of type bool, got: {type(value).__name__}")
    for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
        check_size(name, value)
    if dropout and num_layers == 1:
        without = f"dropout acts between layers, and dropout={dropout} has no effect with num_layers=1"
        warnings.warn(without, UserWarning, stacklevel=3)
