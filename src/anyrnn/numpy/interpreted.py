"""Forward and backward calls of a layer on the interpreter, which defines what the native ones give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn.backends.reference import run as reference
from anyrnn.ir.philox import Randomness
from anyrnn.sequence.network import Network

Array = npt.NDArray[Any]


def forward(
    network: Network,
    inputs: Sequence[Array],
    sources: Sequence[Array],
    first: list[Array] | None,
    output: Array,
    last: list[Array],
    randomness: Randomness | None,
    counts: Sequence[int] | None,
    ends: bool,
) -> None:
    """Fills `output` and `last`, the last states and then what else steps give. With `counts`, sequences are packed rows: see
    `backends.reference.run`. `ends`: the output has only the last step that each direction takes.
    """
    per_unit, dtype = len(network.sources), output.dtype
    values = [
        reference.source_values(network, layer, list(sources[u * per_unit : (u + 1) * per_unit]))
        for u, (layer, _) in enumerate(network.units)
    ]
    begin = _by_unit(network, first, last[0].shape[1], dtype)
    with np.errstate(all="ignore"):
        made, states, more = reference.forward(network, np, dtype.type, inputs, values, begin, randomness, counts)
    output[...] = network_ends(network, made) if ends else made
    for array, of_units in zip(last, (*zip(*states, strict=True), *zip(*more, strict=True)), strict=True):
        array[...] = np.stack(of_units)


def network_ends(network: Network, sequence: Array) -> Array:
    """Of a sequence [T, N, width], the last step that each direction takes, [N, width]."""
    return np.concatenate([features[step] for step, features in network.by_way(sequence)], -1)


def add_at_ends(network: Network, d_ends: Array, d_sequence: Array) -> None:
    """The adjoint: add to the steps of a sequence."""
    for (step, features), (_, d) in zip(network.by_way(d_sequence), network.by_way(d_ends), strict=True):
        features[step] += d


def backward(
    network: Network,
    inputs: list[Array],
    parameters: Sequence[Mapping[str, Array]],
    first: list[Array] | None,
    d_output: Array | None,
    span: tuple[int, int],
    d_last: list[Array] | None,
    d_more: list[Array],
    randomness: Randomness | None,
    rows: int,
    counts: Sequence[int] | None,
    ends: bool,
) -> tuple[list[Array], list[Array], dict[str, Array]]:
    """Gradients of the inputs, of the first states, and of the parameters by name. `parameters` are those of each unit; the
    output has a cotangent in the steps of `span`. `rows`: N. With `counts`, sequences are packed rows, all with a cotangent.
    """
    dtype = inputs[0].dtype
    full = np.zeros((*inputs[0].shape[:-1], network.width), dtype)
    if d_output is not None and ends:
        add_at_ends(network, d_output, full)
    elif d_output is not None and counts is not None:
        full = d_output
    elif d_output is not None:
        full[span[0] : span[1]] = d_output[span[0] : span[1]]
    with np.errstate(all="ignore"):
        d_inputs, d_parameters, d_first = reference.backward(
            network,
            inputs,
            parameters,
            _by_unit(network, first, rows, dtype),
            full,
            _by_unit(network, d_last, rows, dtype, zero=True),
            randomness,
            counts,
            [[d[u] for d in d_more] for u in range(len(network.units))],
        )
    named = {
        name + network.suffix(*unit): np.asarray(d)
        for unit, some in zip(network.units, d_parameters, strict=True)
        for name, d in some.items()
    }
    stacked = [np.stack([d_first[u][k] for u in range(len(network.units))]) for k in range(len(network.state_sizes))]
    return list(d_inputs), stacked, named


def _by_unit(
    network: Network, stacked: list[Array] | None, rows: int, dtype: np.dtype[Any], zero: bool = False
) -> list[list[Array]]:
    """States for each unit; the cell's own (or zeros) where none are given."""
    result = []
    for unit in range(len(network.units)):
        own = [
            np.full((rows, size), 0.0 if zero else spec.init, dtype)
            for spec, size in zip(network.graph.states, network.state_sizes, strict=True)
        ]
        result.append([a[unit] for a in stacked] if stacked else own)
    return result
