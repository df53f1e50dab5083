"""Whether cuDNN computes what a network does, and with which weights: graphs are compared, names of cells are not looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from anyrnn.backends.reference.run import source_values
from anyrnn.backends.triton.products import joined, rows
from anyrnn.sequence.network import Network
from anyrnn.weights.recognising import Function, Standard, standard
from anyrnn.weights.tree import Part

GATES = {"RNN": ("h",), "GRU": ("r", "z", "n"), "LSTM": ("i", "f", "g", "o")}
PARAMETERS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
"""Of each layer and direction, in the order in which torch gives them to cuDNN."""
TANH, RELU, SIGMOID = (Function(name, (), None) for name in ("tanh", "relu", "sigmoid"))


@dataclass(frozen=True)
class Match:
    """What torch calls it, and for each layer what of the network's parameters its weights are."""

    mode: str
    layers: tuple[Standard, ...]
    gates: tuple[str, ...]

    @property
    def states(self) -> tuple[str, ...]:
        """The network's states in cuDNN's order."""
        return self.layers[0].states


@lru_cache(maxsize=256)
def match(network: Network) -> Match | str:
    """How cuDNN computes what a network does, or why it does not."""
    if network.probabilities:
        return "cuDNN's dropout draws other numbers"
    if network.reverse:
        return "cuDNN has no single direction that reads from the last step to the first"
    if network.graph.more_outputs:
        return "cuDNN does not give the states of all steps"
    found = [standard(network, layer) for layer in range(network.layers)]
    layers = [one for one in found if one is not None]
    if len(layers) < len(found):
        return "the cell is none of cuDNN's four"
    modes = {_mode(one) for one in layers}
    mode = modes.pop()
    if mode is None or modes:
        return "the cell is none of cuDNN's four"
    return Match(mode, tuple(layers), GATES[layers[0].op])


def _mode(one: Standard) -> str | None:
    """torch's name of what cuDNN has, for an operator that equals a graph."""
    of = one.op, one.functions, dict(one.flags)
    if of == ("RNN", (TANH,), {}):
        return "RNN_TANH"
    if of == ("RNN", (RELU,), {}):
        return "RNN_RELU"
    if of == ("GRU", (SIGMOID, TANH), {"linear_before_reset": 1}):
        return "GRU"
    return "LSTM" if of == ("LSTM", (SIGMOID, TANH, TANH), {}) and not one.peepholes else None


def _parts(match: Match, layer: int, parameter: str) -> list[tuple[tuple[int, bool], ...]]:
    """For each gate of a parameter, the nodes of the graph that are added up to it."""
    weights = match.layers[layer].weights
    return [weights.get(Part(parameter, gate), ()) for gate in match.gates]


def weights(match: Match, network: Network, sources: Sequence[Tensor]) -> list[Tensor]:
    """Those of all layers and directions as cuDNN has them; views where the network's own stand in that order."""
    per_unit, found, like = len(network.sources), list[Tensor](), sources[0]
    for unit, (layer, _) in enumerate(network.units):
        values = source_values(network, layer, sources[unit * per_unit : (unit + 1) * per_unit])
        sizes = network.layer_sizes(layer)
        hidden = network.output_size
        for parameter in PARAMETERS:
            columns = {"weight_ih": (sizes[network.input_name],), "weight_hh": (hidden,)}.get(parameter, ())
            gates = [_total(nodes, values, like, (hidden, *columns)) for nodes in _parts(match, layer, parameter)]
            pieces = joined(gates, rows)
            found.append(pieces[0] if len(pieces) == 1 else torch.cat(pieces))
    return found


@lru_cache(maxsize=256)
def order_of(network: Network) -> tuple[int, ...] | None:
    """Which source each of cuDNN's weights is, where each is one as it stands."""
    found, shapes = match(network), [shape for layer, _ in network.units for shape in network.source_shapes(layer)]
    assert isinstance(found, Match)
    sources = [torch.empty(shape) for shape in shapes]
    places = {(s.data_ptr(), s.shape): k for k, s in enumerate(sources)}
    order = [places.get((w.data_ptr(), w.shape)) for w in weights(found, network, sources)]
    known = tuple(k for k in order if k is not None)
    return known if len(known) == len(order) and sorted(known) == list(range(len(sources))) else None


def _total(nodes: Sequence[tuple[int, bool]], values: Mapping[int, Tensor], like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A gate's part of a parameter: the sum of some values, or zeros."""
    terms = [values[node].T if transposed else values[node] for node, transposed in nodes]
    if not terms:
        return like.new_zeros(shape)
    return sum(terms[1:], start=terms[0]).reshape(shape)


def gradients(match: Match, network: Network, sources: Sequence[Tensor], d_weights: Sequence[Tensor]) -> list[Tensor]:
    """From the gradients of cuDNN's weights to those of the sources."""
    per_unit, found = len(network.sources), [torch.zeros_like(s) for s in sources]
    for unit, (layer, _) in enumerate(network.units):
        own = source_values(network, layer, found[unit * per_unit : (unit + 1) * per_unit])
        for k, parameter in enumerate(PARAMETERS):
            parts = _parts(match, layer, parameter)
            of_gates = d_weights[len(PARAMETERS) * unit + k].chunk(len(parts))
            for nodes, gradient in zip(parts, of_gates, strict=True):
                for node, transposed in nodes:
                    own[node].add_((gradient.T if transposed else gradient).reshape(own[node].shape))
    return found
