"""How far a converted network is from the original: the parity report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn.runtime.layers import Embedding, Flatten
from anyrnn.runtime.network import Network

Array = npt.NDArray[Any]
RMS = 1.5
"""How many times the original's own error that of the network may be: the root mean square of all numbers."""
MAXIMUM = 3.0
"""The same of the largest error."""
ULPS, ULPS_OF_OTHERS = 2.0, 16.0
"""Units in the last place, of the largest magnitude, that any result of ours may be off, and any of another library that runs
what we wrote: its functions (sigmoid, tanh) have errors of their own.
"""
PLAUSIBLE = 1e-3
"""The largest error, as a part of the largest magnitude, that an original may have itself."""
SIZES = ((5, 13), (1, 29))
"""Samples and steps of the calls that are compared, where the original does not say them."""


@dataclass(frozen=True)
class Parity:
    """The errors of a network, beside those of what it was converted from: distances from what the original computes in float64,
    as parts of the largest magnitude of each result.

    Args:
        source: the original's library.
        cells: of the network's recurrent layers.
        shapes: of the inputs of each call, by name.
        max_error, rms_error: of the network.
        source_max_error, source_rms_error: of the original.
        magnitude: the largest of all results.
        ulp: the spacing of numbers of the network's dtype at the largest magnitude.
        ulps: how many of them any result may be off, whatever the original's errors are.
    """

    source: str
    cells: tuple[str, ...]
    shapes: tuple[Mapping[str, tuple[int, ...]], ...]
    max_error: float
    rms_error: float
    source_max_error: float
    source_rms_error: float
    magnitude: float
    ulp: float
    ulps: float = ULPS

    @property
    def within(self) -> bool:
        """Whether the errors are within the budget: some times those of the original."""
        if self.source_max_error > PLAUSIBLE:  # then it computes something else than what is held to be exact
            return False
        slack = self.ulps * self.ulp
        most, rms = MAXIMUM * self.source_max_error + slack, RMS * self.source_rms_error + slack
        return self.max_error <= most and self.rms_error <= rms

    def __str__(self) -> str:
        calls = "; ".join(", ".join(f"{name} {list(shape)}" for name, shape in call.items()) for call in self.shapes)
        return (
            f"{self.source} against {', '.join(self.cells) or 'no cell'} on {calls}: "
            f"largest error {self.max_error:.2g} (the original's own {self.source_max_error:.2g}), "
            f"RMS {self.rms_error:.2g} ({self.source_rms_error:.2g}), as parts of the largest result, {self.magnitude:.2g}: "
            f"{'within' if self.within else 'OVER'} the error budget"
        )


def compared(
    source: str,
    network: Network,
    calls: Sequence[Mapping[str, Array]],
    ours: Sequence[Array],
    theirs: Sequence[Array],
    exact: Sequence[Array],
    *,
    ulps: float = ULPS,
) -> Parity:
    """A report.

    Args:
        source: the original's library.
        network: what was converted.
        calls: the inputs of each call.
        ours, theirs: the results of all calls, of the network and of the original.
        exact: what the original gives in float64.
        ulps: see `Parity`.

    Raises: ValueError for results of different shapes.
    """
    errors, own, magnitude, ulp = [], [], 0.0, np.inf
    for o, t, e in zip(ours, theirs, exact, strict=True):
        if not o.shape == t.shape == e.shape or e.dtype != np.float64:
            shapes = f"{o.shape}, {t.shape}, {e.shape} of {e.dtype}"
            raise ValueError(f"expected results of one shape, and exact ones of float64, got {shapes}")
        scale = float(np.abs(e).max(initial=0.0)) or 1.0
        errors.append(np.abs(o - e).ravel() / scale)
        own.append(np.abs(t - e).ravel() / scale)
        magnitude, ulp = max(magnitude, scale), min(ulp, float(np.spacing(o.dtype.type(scale))) / scale)
    error, of_source = np.concatenate(errors), np.concatenate(own)
    return Parity(
        source,
        tuple([layer.network.graph.name for layer in network.recurrent.values()]),
        tuple([{name: array.shape for name, array in call.items()} for call in calls]),
        float(error.max()),
        float(np.sqrt(np.mean(error**2))),
        float(of_source.max()),
        float(np.sqrt(np.mean(of_source**2))),
        magnitude,
        ulp,
        ulps,
    )


def drawn(network: Network, rows: int, steps: int, seed: int) -> dict[str, Array]:
    """Random inputs by name: features of the standard normal distribution, and classes that all embeddings have."""
    random, found = np.random.default_rng(seed), {}
    order = (rows, steps) if network.batch_first else (steps, rows)
    for given in network.inputs:
        classes = [len(n.weight) for n in network.layers if isinstance(n, Embedding) and given.name in n.inputs]
        if given.size is None:
            found[given.name] = random.integers(0, min(classes, default=1), order)
        else:
            found[given.name] = random.standard_normal((*order, given.size)).astype(network.dtype)
    return found


def sizes_of(network: Network) -> list[tuple[int, int]]:
    """Samples and steps of the calls that are compared; where a layer reads all steps at once, there are so many."""
    steps = [layer.steps for layer in network.layers if isinstance(layer, Flatten)]
    return [(rows, steps[0] if steps else any_steps) for rows, any_steps in SIZES]


def run(network: Network, given: Mapping[str, Array]) -> list[Array]:
    """The network's outputs in order."""
    output, _ = network.run(given)
    return [output[name] for name in network.outputs] if isinstance(output, dict) else [output]
