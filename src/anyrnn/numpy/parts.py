"""Calls of networks between whose layers something happens that no kernel does: layer after layer, as `Network.parts` says. Other
networks are one call.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np

from anyrnn import backends
from anyrnn._memory import empty
from anyrnn.numpy import calls, interpreted
from anyrnn.numpy.arguments import Arguments, Array
from anyrnn.numpy.calls import Reserve, Workspace
from anyrnn.sequence.network import merged


def forward(reserve: Reserve, output: Array, last: list[Array], native: bool, keep: bool, memory: Array | None) -> None:
    """Fill `output` and `last`, and of a native call to `keep` the reserve's memory: the caller's or new."""
    network = reserve.network
    batch, of_ends = reserve.batch, reserve.outputs != "all"
    if network.is_one_call:
        y = empty((reserve.total, network.width), output.dtype) if batch and of_ends else output
        calls.forward(reserve, y, last, native, keep, memory)
        if batch and of_ends:
            output[...] = batch.ends(y)
        return
    if native and keep:
        reserve.memory = calls.checked(memory, reserve.bytes_kept).reshape(-1).view(np.uint8)
    x, units, used = reserve.inputs[0], network.directions, 0
    budgets = backends.native().shares(network.parts, reserve.budget) if native else [None] * network.layers
    per_layer = units * len(network.sources)
    for layer, part in enumerate(network.parts):
        of_units, of_sources = slice(layer * units, (layer + 1) * units), slice(layer * per_layer, (layer + 1) * per_layer)
        first = None if reserve.first is None else [a[of_units] for a in reserve.first]
        chances = reserve.randomness
        randomness = None if chances is None else part.randomness(chances.seed, chances.places, chances.draw)
        top = of_ends and layer == network.layers - 1
        below = replace(
            reserve,
            network=part,
            inputs=[x, *reserve.inputs[1:]],
            first=first,
            sources=reserve.sources[of_sources],
            randomness=randomness,
            memory=np.empty(0, np.uint8),
            learned=False,
            parts=[],
            outputs=reserve.outputs if top else "all",
            budget=budgets[layer],
        )
        sides = x.shape[1:-1] if below.ends else x.shape[:-1]
        y = empty((*sides, part.width), output.dtype)
        own = None
        if native and keep:
            own = reserve.memory[used : used + below.bytes_kept]
            used += len(own)
        calls.forward(below, y, [a[of_units] for a in last], native, keep, own)
        adds = network.residual and layer
        if top:
            y, adds = batch.ends(y) if batch else y, adds and network.adds_ends
            x = _ends(reserve, x) if adds else x
        below.output = y if network.merge == "mul" else None
        together = merged(y, network.merge)
        x = x + together if adds else together
        if keep:
            reserve.parts.append(below)
    output[...] = x


def backward(
    work: Workspace,
    d_y: Array | None,
    span: tuple[int, int],
    d_last: list[Array] | None,
    d_more: list[Array],
    weights: bool,
    native: bool,
    arguments: Arguments,
) -> tuple[list[Array], list[Array]]:
    """Gradients of the inputs and of the first states; those of the parameters, if wanted or made anyway, go to the workspace.
    See `calls.backward`.
    """
    reserve, network = work.reserve, work.reserve.network
    of_ends = reserve.outputs != "all"
    if network.is_one_call or not reserve.steps:
        if d_y is not None and reserve.batch is not None and of_ends:
            d_y = _at_ends(reserve, d_y)
        return calls.backward(work, d_y, span, d_last, d_more, weights, native, arguments)
    d = np.zeros((*reserve.inputs[0].shape[:-1], network.width), arguments.dtype)
    if of_ends:
        d = np.zeros((reserve.samples, network.width), arguments.dtype) if d_y is None else d_y
    elif d_y is not None and reserve.batch is not None:
        d = d_y
    elif d_y is not None:
        d[slice(*span)] = d_y[slice(*span)]
    d_further = [np.zeros_like(a) for a in reserve.inputs[1:]]
    d_first: list[list[Array]] = []
    units = network.directions
    for layer, below in reversed(list(enumerate(reserve.parts))):
        part = Workspace(below)
        of_units = slice(layer * units, (layer + 1) * units)
        ends = None if d_last is None else [a[of_units] for a in d_last]
        rest = (
            [a[of_units] for a in d_more],
            weights,
            native,
            Arguments(below.network, arguments.dtype, arguments.batch_first),
        )
        top = of_ends and layer == network.layers - 1
        d_below = _unmerged(d, below.output, network.merge)
        adds = network.residual and layer
        if top:
            d_below, adds = _at_ends(reserve, d_below) if reserve.batch else d_below, adds and network.adds_ends
            d = _at_ends(reserve, d) if adds else d
        d_inputs, d_begin = calls.backward(part, d_below, (0, reserve.steps), ends, *rest)
        d = d_inputs[0] + d if adds else d_inputs[0]
        for total, more in zip(d_further, islice(d_inputs, 1, None), strict=True):
            total += more
        d_first.insert(0, d_begin)
        work.parts.append(part)
        work.gradients |= part.gradients
    return [d, *d_further], [np.concatenate(of_state) for of_state in zip(*d_first, strict=True)]


def _ends(reserve: Reserve, sequence: Array) -> Array:
    """Of outputs, the last step that each direction takes, [N, width]."""
    if reserve.batch is not None:
        return reserve.batch.ends(sequence)
    return interpreted.network_ends(reserve.network, sequence)


def _at_ends(reserve: Reserve, d_ends: Array) -> Array:
    """The adjoint: cotangents of all steps."""
    if reserve.batch is not None:
        return reserve.batch.at_ends(d_ends)
    d = np.zeros((reserve.steps, *d_ends.shape), d_ends.dtype)
    interpreted.add_at_ends(reserve.network, d_ends, d)
    return d


def backward_weights(work: Workspace) -> dict[str, Array]:
    """Gradients of the parameters, new arrays, after a backward call without."""
    if not work.parts:
        return calls.backward_weights(work)
    return {name: d for part in work.parts for name, d in calls.backward_weights(part).items()}


def _unmerged(d: Array, y: Array | None, merge: str) -> Array:
    """The adjoint of `merged`, at the outputs y of both directions."""
    if merge == "mul":
        assert y is not None
        size = d.shape[-1]
        return np.concatenate([d * y[..., size:], d * y[..., :size]], -1)
    if merge in ("sum", "mean"):
        half = d if merge == "sum" else d * d.dtype.type(0.5)
        return np.concatenate([half, half], -1)
    return d
