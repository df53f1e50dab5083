"""Keras's recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anyrnn import cells, weights
from anyrnn.convert.keras.functions import function
from anyrnn.convert.keras.graph import Described, described
from anyrnn.convert.keras.maker import Array, Handler, Maker, only, refuse
from anyrnn.ir.symbol import Symbol
from anyrnn.runtime.layers import Recurrent
from anyrnn.sequence.network import traced

SIDES = ("forward_layer/", "backward_layer/")
MERGES = {"concat": "concat", "sum": "sum", "mul": "mul", "ave": "mean"}
OF_BOTH = ("units", "activation", "recurrent_activation", "use_bias", "reset_after", "return_sequences")
"""Settings in which directions have to agree."""


@dataclass(frozen=True)
class Cell:
    """
    Args:
        ours: the name of our cell.
        units: features of its state.
        system: how its arrays are laid out, one of `anyrnn.weights.systems()`.
        bias: which biases it has, as of `anyrnn.Recurrent`.
        activations: the functions in the place of our cell's.
    """

    ours: str
    units: int
    system: str = "keras"
    bias: str = "input"
    activations: Mapping[str, Callable[[Symbol], Symbol]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of its arrays."""
        return ("kernel", "recurrent_kernel", "bias")[: 2 if self.bias == "none" else 3]

    def laid_out_as(self, arrays: Sequence[Array]) -> Cell:
        """The same with the layout that its arrays have. CuDNN's layers have two biases one behind the other, and Keras 2 reads
        their files into its other layers.
        """
        gates = {"lstm": 4, "gru": 3}.get(self.ours, 0)
        twice = gates and self.bias != "none" and arrays[2].shape == (2 * gates * self.units,)
        return replace(self, system="keras_cudnn", bias="both") if twice else self


def _cell(maker: Maker, layer: Described) -> Cell:
    config, kind = layer.config, layer.kind.removesuffix("Cell").removeprefix("CuDNN")
    units = config.of("units", int)
    if layer.kind.startswith("CuDNN"):
        return Cell(kind.lower(), units, "keras_cudnn", "both")
    settings = {"tanh": "activation"} if kind == "SimpleRNN" else {"tanh": "activation", "sigmoid": "recurrent_activation"}
    activations = {}
    for op, setting in settings.items():
        if setting not in config.data:
            raise ValueError(f"{layer}: the config does not tell its {setting}")
        made = function(config.data[setting], maker.keras2, str(layer))
        if made.formula is None:
            raise ValueError(f"{layer}: {setting} {made.name} is not of each feature by itself, which cannot be converted")
        if made.name != op:
            activations[op] = made.formula
    bias = "input" if config.of("use_bias", bool, True) else "none"
    if kind == "GRU" and config.of("reset_after", bool, not maker.keras2):
        return Cell("gru", units, "keras", "both" if bias == "input" else bias, activations or None)
    ours = {"LSTM": "lstm", "GRU": "gru_before", "SimpleRNN": "rnn_tanh"}[kind]
    return Cell(ours, units, "keras", bias, activations or None)


def _put(
    maker: Maker, layer: Described, name: str, given: str, cell: Cell, ways: Sequence[Sequence[Array]], last: bool, **options: Any
) -> str:
    """One layer of one cell, with the arrays of each direction."""
    cell, both = cell.laid_out_as(ways[0]), len(ways) == 2
    sides = SIDES if both else ("",)
    arrays = {side + n: a for side, way in zip(sides, ways, strict=True) for n, a in zip(cell.names, way, strict=True)}
    try:
        found = weights.read(cell.system, arrays, cell.ours, 1, both)
    except ValueError as error:
        raise ValueError(f"{layer}: {error}") from None
    features, hidden = found["weight_ih_l0"].shape[1], found["weight_hh_l0"].shape[1]
    if hidden != cell.units:
        raise ValueError(f"{layer}: its config has {cell.units} units, its arrays have {hidden}")
    options["activations"] = cell.activations
    network = traced(cells.load(cell.ours), features, hidden, 1, cell.bias, both, options).with_dropout(0.0).evaluation
    parameters = {name: found[name] for name in network.parameter_names}
    return maker.put(Recurrent(name, [given], network, parameters, last=last, backend=maker.backend))


def _one_way(
    maker: Maker, layer: Described, name: str, given: list[str], stack: Sequence[Cell], places: Sequence[str] = ()
) -> list[str]:
    """Cells one above the other. `places`: of their arrays in files, see `Maker.arrays`."""
    refuse(layer, "time_major")
    sequences, backwards = (layer.config.of(key, bool, False) for key in ("return_sequences", "go_backwards"))
    if backwards and sequences:
        raise ValueError(f"{layer}: go_backwards=True turns the steps of return_sequences=True around, which cannot be converted")
    arrays = maker.arrays(layer, *[array for cell in stack for array in cell.names], places=places)
    result = only(layer, given)
    for number, cell in enumerate(stack, 1):
        own, arrays = arrays[: len(cell.names)], arrays[len(cell.names) :]
        at_top = number == len(stack)
        full, last = (name, not sequences) if at_top else (f"{name}/cell_{number}", False)
        result = _put(maker, layer, full, result, cell, [own], last, reverse=backwards)
    return [result]


def _layer(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    return _one_way(maker, layer, name, given, [_cell(maker, layer)])


def _rnn(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    cell = layer.inner("cell")
    stack = [cell]
    if cell.kind == "StackedRNNCells":
        stack = [described(data, f"{layer}: cells", layer.name) for data in cell.config.of("cells", list)]
    unknown = [cell.kind for cell in stack if cell.kind not in CELLS]
    if unknown or not stack:
        raise ValueError(f"{layer}: expected cells of the classes {', '.join(CELLS)}, got {', '.join(unknown) or 'none'}")
    kinds = [cell.kind for cell in stack]
    places = [_place(kind, kinds[:k].count(kind)) for k, kind in enumerate(kinds)]
    return _one_way(maker, layer, name, given, [_cell(maker, cell) for cell in stack], places)


def _place(kind: str, before: int) -> str:
    """Where a file has the arrays of a cell, above so many of its class."""
    return f"cell/cells/{CELLS[kind]}_{before}/" if before else f"cell/cells/{CELLS[kind]}/"


def _bidirectional(maker: Maker, layer: Described, name: str, given: list[str]) -> list[str]:
    forward, merge = layer.inner("layer"), layer.config.of("merge_mode", (str, type(None)), "concat")
    if forward.kind not in LAYERS or forward.kind in ("RNN", "Bidirectional"):
        raise ValueError(f"{layer}: directions of class {forward.kind} cannot be converted")
    if layer.config.data.get("backward_layer") is not None:
        _check_alike(layer, forward, layer.inner("backward_layer"))
    refuse(forward, "go_backwards", "time_major")
    if merge is not None and merge not in MERGES:
        raise ValueError(f"{layer}: merge_mode should be None or one of {', '.join(MERGES)}, got {merge!r}")
    cell, source = _cell(maker, forward), only(layer, given)
    names = [f"{way} {array}" for way in ("forward", "backward") for array in cell.names]
    arrays = maker.arrays(layer, *names, places=SIDES)
    ways = [arrays[: len(cell.names)], arrays[len(cell.names) :]]
    last = not forward.config.of("return_sequences", bool, False)
    if merge is not None:
        return [_put(maker, layer, name, source, cell, ways, last, merge=MERGES[merge])]
    both = (f"{name}/forward", f"{name}/backward")
    return [_put(maker, layer, both[i], source, cell, [ways[i]], last, reverse=bool(i)) for i in range(2)]


def _check_alike(layer: Described, forward: Described, backward: Described) -> None:
    differing = [key for key in OF_BOTH if forward.config.data.get(key) != backward.config.data.get(key)]
    if forward.kind != backward.kind or differing:
        told = ", ".join(differing) or f"{forward.kind} and {backward.kind}"
        raise ValueError(f"{layer}: directions that are different layers ({told}) cannot be converted")


CELLS = {"LSTMCell": "lstm_cell", "GRUCell": "gru_cell", "SimpleRNNCell": "simple_rnn_cell"}
"""By the class's name, what files call them."""
LAYERS: dict[str, Handler] = {
    **dict.fromkeys(("LSTM", "GRU", "SimpleRNN", "CuDNNLSTM", "CuDNNGRU"), _layer),
    "RNN": _rnn,
    "Bidirectional": _bidirectional,
}
