"""The cells of a comparison, each with its size, and the network around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from anyrnn import cells
from anyrnn.compare.examples import Task
from anyrnn.compare.options import Options, name_of
from anyrnn.errors import CellError, UnsupportedError
from anyrnn.sequence.network import traced
from anyrnn.torch import Recurrent
from anyrnn.trace import Cell
from anyrnn.train import identity
from anyrnn.train.errors import UsageError
from anyrnn.train.model import Reader

MEASURE = "lstm"
"""The cell whose number of parameters others get."""
NEAR = 64
"""Sizes that cells have not (a number of heads that does not divide them) are at most so many in a row."""


class Widened(nn.Module):
    """A linear layer from D to H features before recurrent layers, for cells whose input is as wide as their state."""

    def __init__(self, features: int, recurrent: Recurrent) -> None:
        super().__init__()
        self.linear = nn.Linear(features, recurrent.input_size)
        self.recurrent = recurrent

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        """[T, N, D] -> [T, N, H] and states."""
        found: tuple[Tensor, Any] = self.recurrent(self.linear(x), lengths=lengths)
        return found


@dataclass(frozen=True)
class Contender:
    """A cell in a comparison, with H features of its state and its other sizes by name."""

    name: str
    cell: Cell
    task: Task
    hidden: int
    sizes: Mapping[str, int]

    def network(self) -> Reader:
        """With initial values that follow from torch's random numbers. Raises: UsageError for a cell that cannot be had so."""
        task = self.task
        try:
            sizes: dict[str, Any] = dict(self.sizes)
            recurrent = Recurrent(self.cell, self.inputs, self.hidden, **sizes)
            layers = Widened(task.features, recurrent) if self.widens else recurrent
            return Reader(layers, task.steps, task.features, task.outputs, task.head, directions=1)
        except (CellError, UnsupportedError, ValueError) as error:
            raise UsageError(f"--cells: {self.name}: {error}") from error

    @property
    def inputs(self) -> int:
        """Features that the cell takes."""
        return self.hidden if self.widens else self.task.features

    @property
    def widens(self) -> bool:
        """Whether the cell's input has the size of its state."""
        return self.cell.trace().input_size_name == "hidden"

    @cached_property
    def can_be(self) -> bool:
        """Whether layers of this size can be made: heads may have to divide it."""
        try:
            traced(self.cell, self.inputs, self.hidden, 1, True, False, dict(self.sizes))
        except (CellError, ValueError):
            return False
        return True

    @cached_property
    def parameters(self) -> int:
        """The trained ones of the network, of a size that can be."""
        graph, task = self.cell.trace(), self.task
        sizes = {**self.sizes, graph.input_size_name: self.inputs, "hidden": self.hidden}
        own = sum(prod(d.evaluate(sizes) for d in p.shape) for p in graph.parameters if p.trained)
        width = graph.nodes[graph.output("y")].shape[0].evaluate(sizes)
        before = (task.features + 1) * self.hidden if self.widens else 0
        return before + own + (width + 1) * task.outputs

    @cached_property
    def description(self) -> dict[str, Any]:
        """What makes it what it is: its equations, its sizes, its initial values."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            network = self.network()
        trained = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
        begins = identity.of_arrays([tensor.numpy() for tensor in network.state_dict().values()])
        return {
            "equations": identity.of_cell(self.cell),
            "begins": identity.of_text(f"{begins} {trained}"),
            "hidden": self.hidden,
            "sizes": dict(self.sizes),
            "widened": self.widens,
            "parameters": sum(p.numel() for p in network.parameters() if p.requires_grad),
        }


def find(options: Options, task: Task) -> list[Contender]:
    """The cells that are to be compared, with their sizes.

    Raises: UsageError for a cell that does not exist, that is there twice, that needs more inputs than a task has, or whose size
        cannot be had.
    """
    found = [_contender(name_of(cell), _loaded(cell), options, task) for cell in options.cells]
    for name in options.sizes:
        if not any(name in one.sizes for one in found):
            known = sorted({size for one in found for size in one.sizes})
            raise UsageError(f"--size {name}: no cell has it; there are {', '.join(known) or 'none'}")
    if options.equal == "parameters":
        like = _contender(MEASURE, cells.load(MEASURE), options, task).parameters
        found = [_of_parameters(one, like, options) for one in found]
    for one, other in combinations(found, 2):
        if _function(one) == _function(other) and one.description == other.description:
            raise UsageError(f"--cells: {one.name} and {other.name} are the same cell; leave one of them out")
    return found


def _function(one: Contender) -> str:
    """The name of the cell, whatever its hyper-parameters are."""
    like, _ = one.cell.changed or (one.cell, None)
    return like.name


def _loaded(cell: Cell | str) -> Cell:
    try:
        found = cells.load(cell)
    except (ValueError, TypeError, FileNotFoundError) as error:
        raise UsageError(f"--cells: {error}") from error
    try:
        graph = found.trace()
    except CellError as error:
        raise UsageError(f"--cells: {error}") from error
    further = [name for name, _ in graph.inputs[1:]]
    if further:
        raise UsageError(f"--cells: {found.name} needs the per-step input {further[0]}, which no task has")
    return found


def _contender(name: str, cell: Cell, options: Options, task: Task) -> Contender:
    return _sized(Contender(name, cell, task, options.hidden, {}), options.hidden, options)


def _sized(one: Contender, hidden: int, options: Options) -> Contender:
    """With so many features; other named sizes are half of them where they are not given."""
    return replace(one, hidden=hidden, sizes=one.cell.trace().other_sizes(hidden, options.sizes))


def _of_parameters(one: Contender, like: int, options: Options) -> Contender:
    """With the H, of those that the cell can have, for which the number of trained parameters is nearest; the smaller of two."""

    def next_above(hidden: int) -> Contender:
        for candidate in (_sized(one, features, options) for features in range(hidden, hidden + NEAR)):
            if candidate.can_be:
                return candidate
        raise UsageError(f"--cells: {one.name} cannot have {hidden} features, nor any of the {NEAR - 1} numbers above")

    low, high = next_above(1), next_above(2)
    while high.parameters < like:
        low, high = high, next_above(2 * high.hidden)
        if high.parameters <= low.parameters:
            raise UsageError(f"--equal parameters: {one.name} has {low.parameters}, however many features it has")
    while True:
        middle = next_above((low.hidden + high.hidden) // 2)
        if not low.hidden < middle.hidden < high.hidden:
            break
        low, high = (middle, high) if middle.parameters < like else (low, middle)
    between = (_sized(one, hidden, options) for hidden in range(low.hidden, high.hidden + 1))
    return min((c for c in between if c.can_be), key=lambda candidate: abs(candidate.parameters - like))
