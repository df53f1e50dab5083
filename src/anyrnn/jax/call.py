"""What a call of the primitives is, beside its arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

from anyrnn.sequence.network import Network

Shape = tuple[int, ...]


class Operands(NamedTuple):
    """Of a call. Sequences and masks are in the layout of the caller, states [units, N, size]."""

    inputs: Sequence[Any]
    first: Sequence[Any]
    """the states before the first step; none where they are the cell's own"""
    parameters: Sequence[Any]
    seed: Any
    """two words of 32 bits, uint32 [2], the lower first; None where nothing is drawn"""
    there: Any
    """bool [T, N] in the caller's layout, the steps that each sample has; None where all have all"""
    reset: Any
    """the same, those before which states begin anew; None where there are none"""

    def in_order(self) -> list[Any]:
        """As primitives have them."""
        optional = [a for a in (self.seed, self.there, self.reset) if a is not None]
        return [*self.inputs, *self.first, *self.parameters, *optional]


@dataclass(frozen=True, repr=False)
class Call:
    """A call of a network that is one call (see `Network.parts`), by any array sizes.

    Args:
        network: that is run, as it trains or as it does not.
        batch_first: sequences are [N, T, features], not [T, N, features].
        ends: the output has only the last step that each direction takes, [N, width].
        all_states: it gives the states after all steps, not the last ones.
        given: there are first states.
        draws: there is a seed; without one a network with random choices has their means.
        masked: samples have different steps.
        resets: states begin anew at some steps.
        backend: that was asked for.
        budget: bytes that native kernels may keep.
    """

    network: Network
    batch_first: bool = False
    ends: bool = False
    all_states: bool = False
    given: bool = False
    draws: bool = False
    masked: bool = False
    resets: bool = False
    backend: str = "auto"
    budget: int | None = None

    def __repr__(self) -> str:
        """Of which printed programs are full."""
        network = self.network
        return f"({network.graph.name} {network.input_size}->{network.width})"

    @cached_property
    def key(self) -> str:
        """Alike for equal calls, in all processes: compiled programs name the calls that they make by it."""
        network = [f"{f.name}={getattr(self.network, f.name)}" for f in fields(self.network) if f.name != "graph"]
        own = [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if f.name != "network"]
        return hashlib.sha256(" ".join([self.network.graph.identity, *network, *own]).encode()).hexdigest()

    @property
    def of_kernels(self) -> Network:
        """The network that kernels run."""
        return self.network.with_all_states if self.all_states else self.network

    @property
    def is_uneven(self) -> bool:
        return self.masked or self.resets

    @cached_property
    def counts(self) -> tuple[int, int, int]:
        """Of inputs, first states and parameters."""
        network = self.network
        return (
            len(network.graph.inputs),
            len(network.state_sizes) if self.given else 0,
            len(network.parameter_names),
        )

    @property
    def floats(self) -> int:
        """Of operands, those that have gradients: they come first."""
        return sum(self.counts)

    @property
    def operands(self) -> int:
        return self.floats + self.draws + self.masked + self.resets

    def split(self, operands: Sequence[Any]) -> Operands:
        inputs, first, _ = self.counts
        rest = iter(operands[self.floats :])
        optional = [next(rest) if there else None for there in (self.draws, self.masked, self.resets)]
        return Operands(
            operands[:inputs], operands[inputs : inputs + first], operands[inputs + first : self.floats], *optional
        )  # fmt: skip

    def named(self, parameters: Sequence[Any]) -> Mapping[str, Any]:
        return dict(zip(self.network.parameter_names, parameters, strict=True))

    def sides(self, x: Shape) -> tuple[int, int]:
        """Steps and samples, of an input of this shape."""
        return (x[1], x[0]) if self.batch_first else (x[0], x[1])

    def operand_shapes(self, x: Shape) -> list[Shape]:
        """Of those that have gradients."""
        network, rows = self.network, self.sides(x)[1]
        inputs = [(*x[:2], size) for size in (network.input_size, *(size for _, size in network.further_inputs))]
        first = [(len(network.units), rows, size) for size in network.state_sizes] if self.given else []
        return [*inputs, *first, *(shape for layer, _ in network.units for _, shape in network.parameters(layer))]

    def results(self, x: Shape) -> list[Shape]:
        """The shapes of the output and of the states."""
        network, rows = self.network, self.sides(x)[1]
        y = (rows, network.width) if self.ends else (*x[:2], network.width)
        sides = x[:2] if self.all_states else (rows,)
        return [y, *((len(network.units), *sides, size) for size in network.state_sizes)]
