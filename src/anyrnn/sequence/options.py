"""What a layer does beside its cell's equations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any

from anyrnn.ir import philox
from anyrnn.ir.graph import Graph, Parameter
from anyrnn.ir.ops import TABLE
from anyrnn.ir.symbol import Symbol
from anyrnn.passes import options as rewrites

ByState = Mapping[str, Any]
Bounds = float | tuple[float, float]


BY_FEATURE = ("sum", "mean", "mul")
MERGES = ("concat", *BY_FEATURE, "separate")


@dataclass(frozen=True)
class LayerOptions:
    """Options of layers of any cell; give them as keyword arguments of `Recurrent`. All are off by default.

    Those with probabilities act in training calls (of torch's modules in training mode). Zoneout, and dropout between layers,
    keep a bit for each choice until the backward pass; the others keep nothing. Choices depend on a seed, the sample, the
    feature, the layer and the direction, and on the step where it says so; not on threads, batches or lengths. Torch's modules
    take the seed of a call from torch's default generator (`torch.manual_seed`), NumPy's layers from their own, JAX's from the
    key that a call is given. What dropout keeps is scaled up by 1 / (1 - p).

    Args:
        input_dropout: Probability of zeroing features of each layer's input, the same ones at all steps of a sample. Source: Gal
            & Ghahramani 2016, A Theoretically Grounded Application of Dropout in Recurrent Neural Networks.
        recurrent_dropout: Probability of zeroing features of a state for the products that read it, the same ones at all steps of
            a sample. The state itself is not changed. Source: Gal & Ghahramani 2016; Keras has it by this name.
        weight_dropout: Probability of zeroing weights of products that read states, the same ones at all steps and for all
            samples: DropConnect of the recurrent weights. Source: Wan et al. 2013, Regularization of Neural Networks using
            DropConnect; Merity et al. 2017.
        output_dropout: Probability of zeroing features of each layer's output, the same ones at all steps of a sample. States are
            not changed. Source: Merity et al. 2017, Regularizing and Optimizing LSTM Language Models.
        zoneout: Probability with which a feature of a state stays as it was before a step, chosen at every step; of all states
            that are vectors, or by state (`{"h": 0.05, "c": 0.5}`). Nothing is scaled: calls that do not train take the mean: p *
            before + (1 - p) * after. An output that is a state follows it. Source: Krueger et al. 2016, Zoneout.
        clip_state: Bounds of new states, before anything else reads them: a number b for [-b, b], or a pair; of all states that
            are vectors, or by state. No gradient goes to what is beyond. Source: cuDNN's `cudnnRNNSetClip`.
        clip_preactivation: Bound b of what activation functions (sigmoid, tanh, relu, softplus) get, where that is made of
            products and inputs by anything but those: [-b, b]. No gradient goes to what is beyond. Source: ONNX's `clip`.
        clip_gradient: Bound b of the gradients of states at every step: [-b, b]. Source: Graves 2013, Generating Sequences With
            Recurrent Neural Networks.
        activations: Other functions in the place of a cell's activation functions: `{"tanh": "relu"}`, by name or as functions of
            the language (`{"tanh": lambda v: where(v > 0, v, 0.1 * v)}`), for each that is there: sigmoid, tanh, relu, softplus.
            With a function that cannot be pickled, as a lambda, neither can a module. Source: ONNX's `activations`; Keras's
            `activation` and `recurrent_activation`.
        merge: What a bidirectional layer gives of its two directions' outputs, to the caller and to the layer above: `concat`,
            one behind the other, [.., 2 * H]; or `sum`, `mean` or `mul`, feature by feature, [.., H]. `separate` gives the caller
            a pair, and the layer above both. Source: Keras's `merge_mode`.
        residual: Each layer above the first adds its input, before any dropout, to its output. Source: Wu et al. 2016, Google's
            Neural Machine Translation System.
        reverse: Sequences are read from their last step to their first. Outputs stand where their inputs do, and the last state
            is that after the first step. Source: ONNX's direction `reverse`; Keras's `go_backwards` turns outputs around too.
        learned_state: The states before the first step are parameters, `h0_l0` and so on, which all samples share; they begin as
            the cell's own first values. Calls that are given states do not use them (`initial_state` gives them on, with their
            gradient), but after a reset every state begins with them. Source: Lasagne's `learn_init`.
        skip_input: Each gate gets the layer's input as it is, without a product (unless the cell names it otherwise, `h=x`); the
            input has the hidden size. Source: cuDNN's `CUDNN_SKIP_INPUT`, which is for the first layer only; here it is for all.
        cut_gradient: No gradient goes through products to the states that they read; it goes through the rest of the step, and to
            the weights. Source: FlashRNN's `gradient_recurrent_cut` (Poeppel et al. 2024).
    """

    input_dropout: float = 0.0
    recurrent_dropout: float = 0.0
    weight_dropout: float = 0.0
    output_dropout: float = 0.0
    zoneout: float | ByState = 0.0
    clip_state: Bounds | ByState | None = None
    clip_preactivation: float | None = None
    clip_gradient: float | None = None
    activations: Mapping[str, str | Callable[..., Any]] | None = None
    merge: str = "concat"
    residual: bool = False
    reverse: bool = False
    learned_state: bool = False
    skip_input: bool = False
    cut_gradient: bool = False

    def __post_init__(self) -> None:
        for name in ("input_dropout", "recurrent_dropout", "weight_dropout", "output_dropout"):
            check_probability(name, getattr(self, name))
        for name in ("clip_preactivation", "clip_gradient"):
            bound = getattr(self, name)
            if bound is not None and not (is_number(bound) and bound > 0):
                raise ValueError(f"{name} should be a positive number, got {bound!r}")
        if self.merge not in MERGES:
            raise ValueError(f"merge should be one of {', '.join(MERGES)}, got {self.merge!r}")
        if self.activations is not None:
            check_activations(self.activations)
        for name in ("residual", "reverse", "learned_state", "skip_input", "cut_gradient"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} should be of type bool, got: {type(getattr(self, name)).__name__}")

    def with_parameters(self, graph: Graph) -> Graph:
        """The same step, with the parameters that the options have."""
        if not self.learned_state:
            return graph
        learned = tuple(Parameter(first_parameter(state.name), state.shape, state.init) for state in graph.states)
        taken = {parameter.name for parameter in graph.parameters}.intersection(parameter.name for parameter in learned)
        if taken:
            raise ValueError(f"learned_state: cell {graph.name!r} has a parameter {min(taken)!r} already")
        return replace(graph, parameters=(*graph.parameters, *learned))

    def evaluated(self, graph: Graph) -> Graph:
        """The step of calls that do not train."""
        return self._gradients(self._zoneout(self._clips(graph), at_random=False))

    def trained(self, graph: Graph, between_layers: bool) -> Graph:
        """The step of calls that train; with dropout `between_layers` if asked for."""
        graph = self._clips(graph)
        if self.recurrent_dropout:
            graph = _named("recurrent_dropout", rewrites.with_recurrent_dropout, graph, self._of_states(graph, "recurrent"))
        if self.weight_dropout:
            graph = _named("weight_dropout", rewrites.with_weight_dropout, graph, "weights", philox.MOST)
        graph = self._gradients(self._zoneout(graph, at_random=True))
        if self.input_dropout:
            graph = rewrites.with_input_dropout(graph, "input")
        if between_layers:
            graph = rewrites.with_input_dropout(graph, "between_layers")
        return rewrites.with_output_dropout(graph) if self.output_dropout else graph

    def probabilities(self, graph: Graph, layers: int, between_layers: float) -> tuple[tuple[str, tuple[float, ...]], ...]:
        """Of every random choice, by layer; a cell's first layer has none `between_layers`."""
        found = {"between_layers": (0.0, *[float(between_layers)] * (layers - 1))}
        found |= {"input": (float(self.input_dropout),) * layers, "output": (float(self.output_dropout),) * layers}
        found |= dict.fromkeys(self._of_states(graph, "recurrent").values(), (float(self.recurrent_dropout),) * layers)
        found |= {f"weights.{k}": (float(self.weight_dropout),) * layers for k in range(philox.MOST)}
        chosen = self._of_states(graph, "zoneout")
        found |= {chosen[state]: (p,) * layers for state, p in self._zoneouts(graph).items()}
        chances = tuple((choice, of_layers) for choice, of_layers in found.items() if any(of_layers))
        if len(graph.states) > philox.MOST and any(choice.startswith(("recurrent.", "zoneout.")) for choice, _ in chances):
            raise ValueError(f"cell {graph.name!r} has {len(graph.states)} states; random choices are for {philox.MOST} at most")
        return chances

    def _clips(self, graph: Graph) -> Graph:
        if self.clip_preactivation is not None:
            bound = float(self.clip_preactivation)
            graph = _named("clip_preactivation", rewrites.with_clipped_preactivations, graph, bound)
        if self.activations:
            functions = {op: _function(value) for op, value in self.activations.items()}
            graph = _named("activations", rewrites.with_activations, graph, functions)
        if self.clip_state is not None:
            by_state = of_states(graph, "clip_state", self.clip_state, _bounds)
            graph = rewrites.with_clipped_states(graph, by_state)
        return graph

    def _gradients(self, graph: Graph) -> Graph:
        if self.cut_gradient:
            graph = _named("cut_gradient", rewrites.with_cut_gradients, graph)
        return graph if self.clip_gradient is None else rewrites.with_clipped_gradients(graph, float(self.clip_gradient))

    def _zoneout(self, graph: Graph, at_random: bool) -> Graph:
        chosen = self._of_states(graph, "zoneout")
        choices = {state: chosen[state] for state in self._zoneouts(graph)}
        return rewrites.with_zoneout(graph, choices, at_random) if choices else graph

    def _zoneouts(self, graph: Graph) -> dict[str, float]:
        """The probability by state, of those that have one."""
        found = of_states(graph, "zoneout", self.zoneout, lambda value: check_probability("zoneout", value))
        return {state: p for state, p in found.items() if p}

    def _of_states(self, graph: Graph, kind: str) -> dict[str, str]:
        """The name of a choice for each state that is a vector."""
        return {state.name: f"{kind}.{position}" for position, state in enumerate(graph.states) if state.shape}


def first_parameter(state: str) -> str:
    """The parameter that is a state's learned first value."""
    return f"{state}0"


OPTIONS = tuple(field.name for field in fields(LayerOptions))


def copied(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as they are now, whatever the caller does with what was given."""
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in options.items()}


def is_number(value: Any) -> bool:
    """Whether it is one that a float can hold, of Python or NumPy."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def check_probability(name: str, value: Any) -> float:
    """Raises ValueError for what is no number from 0 to 1."""
    if not is_number(value) or not 0 <= value <= 1:
        raise ValueError(f"{name} should be a probability, a number in range [0, 1]; got {value!r}")
    return float(value)


def check_activations(value: Any) -> None:
    """Raises: TypeError and ValueError for what names no activation functions."""
    if not isinstance(value, Mapping):
        raise TypeError(f"activations should map names of functions to others, got {value!r}")
    for op, function in value.items():
        if op not in rewrites.ACTIVATIONS:
            raise ValueError(f"activations should be for {', '.join(rewrites.ACTIVATIONS)}, got {op!r}")
        if not callable(function) and function not in FUNCTIONS:
            raise ValueError(f"activations: expected a function or the name of one of {', '.join(FUNCTIONS)}, got {function!r}")


FUNCTIONS = tuple(op.name for op in TABLE.values() if op.kind == "elementwise" and op.arity == 1 and not op.boolean)


def _function(value: str | Callable[..., Any]) -> Callable[[Symbol], Symbol]:
    return value if callable(value) else lambda x: x.builder.apply(value, x)


def _bounds(value: Any) -> tuple[float, float]:
    low, high = (-value, value) if is_number(value) else value if isinstance(value, tuple) and len(value) == 2 else (0, 0)
    if not (is_number(low) and is_number(high) and low < high):
        raise ValueError(f"clip_state should be a positive number, or a pair (low, high), got {value!r}")
    return float(low), float(high)


def of_states(graph: Graph, name: str, value: Any, checked: Callable[[Any], Any]) -> dict[str, Any]:
    """An option by state: as given, or the same for all states that are vectors."""
    vectors = [state.name for state in graph.states if state.shape]
    if value and not vectors:
        raise ValueError(f"{name}: cell {graph.name!r} has no state that is a vector")
    if not isinstance(value, Mapping):
        return dict.fromkeys(vectors, checked(value))
    for state in value:
        if state not in vectors:
            known = ", ".join(vectors) or "none"
            raise ValueError(f"{name}: cell {graph.name!r} has no state {state!r} that is a vector; it has: {known}")
    return {state: checked(v) for state, v in value.items()}


def _named(name: str, rewrite: Callable[..., Graph], graph: Graph, *arguments: Any) -> Graph:
    """A rewrite, whose errors say which option was asked for."""
    try:
        return rewrite(graph, *arguments)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
