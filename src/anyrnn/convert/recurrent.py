"""Recurrent layers in arrays with torch's names, as state dicts have them: found, with what cell they can be, and made."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from anyrnn import cells, weights
from anyrnn.ir.dims import Dim, solve
from anyrnn.ir.graph import Graph
from anyrnn.numpy.recurrent import Recurrent as Runner
from anyrnn.runtime.layers import Recurrent
from anyrnn.trace import Cell

Array = npt.NDArray[Any]
UNNAMED = "recurrent"
"""What a layer is called whose parameters have no prefix."""
_NAME = re.compile(r"(?P<prefix>(?:.*\.)?)(?P<parameter>\w+?)_l(?P<layer>\d{1,4})(?P<reverse>_reverse)?")
BIASES = ("both", "none", "input", "recurrent")
"""Which a layer may have."""
BY_GATES = {4: "lstm", 3: "gru"}
"""What torch's state dicts with so many gates are; one gate is a tanh or a relu network, which the arrays do not tell."""


@dataclass(frozen=True)
class Stack:
    """Layers and directions whose parameters have one prefix, such as `encoder.lstm.`."""

    prefix: str
    layers: int
    bidirectional: bool
    parameters: Mapping[str, Array]
    """By their names without the prefix."""

    @property
    def gates(self) -> int:
        """How many gates, 0 if the matrices do not tell."""
        w, r = self.parameters.get("weight_ih_l0"), self.parameters.get("weight_hh_l0")
        if w is None or r is None or w.ndim != 2 or r.ndim != 2:
            return 0
        projection = self.parameters.get("weight_hr_l0")
        hidden = projection.shape[1] if projection is not None and projection.ndim == 2 else r.shape[1]
        return len(r) // hidden if hidden and len(r) == len(w) and len(r) % hidden == 0 else 0

    @property
    def _names(self) -> set[str]:
        """Of the parameters of a layer in a direction."""
        matches = (_NAME.fullmatch(name) for name in self.parameters)
        return {match["parameter"] for match in matches if match}

    @property
    def cell(self) -> str:
        """The cell that torch has with such parameters; empty if there is none, or two."""
        of_torch = {"weight_ih", "weight_hh", "weight_hr", "bias_ih", "bias_hh"}
        found = BY_GATES.get(self.gates, "") if self._names <= of_torch else ""
        return "lstm_projected" if found == "lstm" and "weight_hr_l0" in self.parameters else found

    def __str__(self) -> str:
        sides = ", both directions" if self.bidirectional else ""
        first = self.parameters.get("weight_ih_l0")
        shape = "" if first is None else f", weight_ih_l0 {list(first.shape)}"
        return f"{self.prefix.rstrip('.') or UNNAMED}: {self.layers} layer{'s' if self.layers > 1 else ''}{sides}{shape}"

    def made(self, name: str, given: str, cell: Cell | str | None = None, *, backend: str = "auto", **options: Any) -> Recurrent:
        """A layer of a network at run time.

        Args:
            name: of the layer.
            given: the layer or input whose result it gets.
            cell: by default that of torch with such parameters.
            options: hyper-parameters and options of layers, as `anyrnn.Recurrent` has them.

        Raises: ValueError when the cell is not told, or cannot have these parameters.
        """
        chosen = cells.load(cell or self.cell or self._undecided())
        layer = self._layer(chosen, options)
        network = layer.network
        wrong = sorted(set(network.parameter_names) ^ self.parameters.keys())
        if wrong:
            sides = f"has the parameters {', '.join(network.parameter_names)}"
            raise ValueError(f"{self}: a network of cell {chosen.name!r} {sides}; unknown or missing: {', '.join(wrong)}")
        try:
            return Recurrent(name, [given], network, self.parameters, backend=backend)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self}: {error}") from None

    def _layer(self, cell: Cell, options: dict[str, Any]) -> Runner:
        """One of these sizes, without its parameters."""
        biases = {bias: {p.name for p in cell.trace(bias).parameters} for bias in BIASES}
        bias = next((bias for bias, of in biases.items() if _biases(of) == _biases(self._names)), "both")
        sizes = solved(cell.trace(bias), self.parameters, str(self))
        hidden = sizes.pop("hidden", 1)  # of a cell that has no such size it may be any
        given = sizes.pop(cell.trace(bias).input_size_name, hidden)
        options = {**sizes, **options}
        return Runner(cell, given, hidden, self.layers, bias=bias, bidirectional=self.bidirectional, **options)

    def _undecided(self) -> str:
        one = "a tanh or a relu network, which the arrays do not tell" if self.gates == 1 else "a cell that is not torch's"
        raise ValueError(f"{self}: {one}; name the cell (--cell)")


def _biases(names: Set[str]) -> set[str]:
    return {name for name in names if name.startswith("bias")}


def cell_of(graph: Graph, system: str) -> str | None:
    """Which of a system's cells computes what a graph does, which may lack biases."""
    for name in weights.cells_of(system):
        cell = cells.load(name)
        if any(cell.trace(bias).identity == graph.identity for bias in BIASES):
            return name
    return None


def solved(graph: Graph, arrays: Mapping[str, Array], who: str) -> dict[str, int]:
    """The named sizes of a cell, from the shapes of its parameters in the first layer. Raises ValueError where they tell none."""
    equations: list[tuple[Dim, int]] = []
    for parameter in graph.parameters:
        array = arrays.get(f"{parameter.name}_l0")
        if array is not None and array.ndim == len(parameter.shape):
            equations += zip(parameter.shape, array.shape, strict=True)
    sizes = solve(equations, {})
    missing = [name for name in graph.size_names if sizes.get(name, 0) < 1]
    if missing:
        raise ValueError(f"{who}: cell {graph.name!r} needs the size {missing[0]}, which these arrays do not tell")
    return sizes


def stacks(arrays: Mapping[str, Array]) -> list[Stack]:
    """The recurrent layers in a state dict, in the order in which they stand there."""
    found: dict[str, list[re.Match[str]]] = {}
    for name in arrays:
        match = _NAME.fullmatch(name)
        if match is not None and match["layer"] == str(int(match["layer"])):
            found.setdefault(match["prefix"], []).append(match)
    result = []
    for prefix, matches in found.items():
        parameters = {match.string[len(prefix) :]: arrays[match.string] for match in matches}
        if max(int(match["layer"]) for match in matches) >= len(matches):
            continue  # more layers than arrays
        if "weight_ih_l0" in parameters or "weight_hh_l0" in parameters:
            layers = 1 + max(int(match["layer"]) for match in matches)
            result.append(Stack(prefix, layers, any(match["reverse"] for match in matches), parameters))
    return result
