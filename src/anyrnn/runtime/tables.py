"""Embeddings in front of recurrent layers: a class's products with the weights are the same at every step, so they stand in a
table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn.backends.reference import run as reference
from anyrnn.ir.interpret import Interpreter
from anyrnn.numpy.parameters import of_unit
from anyrnn.numpy.stream import Stream
from anyrnn.passes.given_products import GivenProducts, with_given_products
from anyrnn.runtime.layer import Call, Layer
from anyrnn.runtime.recurrent import Recurrent
from anyrnn.runtime.steps import Embedding, check_classes
from anyrnn.sequence.network import Network

Array = npt.NDArray[Any]
MOST = 1 << 22
"""Numbers in a table: those of larger ones come from memory, where the weights would come from a cache."""


def with_tables(layers: Sequence[Layer], wanted: Sequence[str]) -> list[Layer]:
    """The same layers, with tables where they serve. `wanted` are the layers whose results the network gives.

    A table's numbers are rounded once, so its results are nearer to those of exact arithmetic, but not the same bits.
    """
    embeddings = {layer.name: layer for layer in layers if isinstance(layer, Embedding)}
    result: list[Layer] = []
    for layer in layers:
        embedding = embeddings.get(layer.inputs[0]) if isinstance(layer, Recurrent) else None
        looked_up = _looked_up(layer, embedding) if isinstance(layer, Recurrent) and embedding is not None else None
        result.append(looked_up or layer)
    read = {name for layer in result for name in layer.inputs} | set(wanted)
    return [layer for layer in result if layer.name in read or not isinstance(layer, Embedding)]


class LookedUp(Recurrent):
    """A recurrent layer of a cell that is given the products of its input, which it takes from tables by the input's class."""

    def __init__(self, layer: Recurrent, embedding: Embedding, network: Network, tables: Sequence[Array]) -> None:
        names = {parameter.name + network.suffix(*network.units[0]) for parameter in network.graph.parameters}
        parameters = {name: array for name, array in layer.arrays.items() if name in names}
        inputs = [*embedding.inputs, *layer.inputs[1:]]
        super().__init__(layer.name, inputs, network, parameters, last=layer.last, backend=layer.runner.backend)
        self.runner.dtype = layer.runner.dtype
        if layer.runner.int8:
            self.runner = self.runner.in_int8()
        self._who, self._tables = embedding.name, tables

    def run(self, call: Call, *given: Array) -> Array:
        there = call.there(len(given[0]))
        if there is None:
            return super().run(call, *self._products(given))
        which = there[..., 0].T  # [N, T]: the steps of all samples, one sample after the other, and no others
        rows, ends = self._products(tuple(x.swapaxes(0, 1)[which] for x in given)), np.cumsum(which.sum(1))
        output = self._called(call, rows, cu_seqlens=np.append(0, ends))
        if output is None or self.last:
            return np.asarray(output)
        padded = np.zeros((*which.shape, output.shape[-1]), output.dtype)
        padded[which] = output
        return padded.swapaxes(0, 1)

    def streamed(self, batch_size: int) -> Callable[..., Array]:
        return _Steps(self.runner.stream(batch_size), self._who, self._tables)

    def _products(self, given: tuple[Array, ...]) -> list[Array]:
        check_classes(self._who, given[0], len(self._tables[0]))
        return [*[table[given[0]] for table in self._tables], *given[1:]]


class _Steps:
    """A stream of such a layer, whose rows of the tables go straight to where its steps read them."""

    def __init__(self, stream: Stream, who: str, tables: Sequence[Array]) -> None:
        self.stream, self._who, self._classes = stream, who, len(tables[0])
        places = list(stream.inputs.values())
        self._looked_up, self._further = list(zip(tables, places, strict=False)), places[len(tables) :]

    def __call__(self, x: Array, *further: Array) -> Array:
        check_classes(self._who, x, self._classes)
        classes = x.astype(np.intp, copy=False)
        for table, place in self._looked_up:
            table.take(classes, 0, out=place, mode="clip")  # which is quicker than "raise"; all have been looked at
        for place, value in zip(self._further, further, strict=True):
            place[...] = value
        return self.stream.next()


def _looked_up(layer: Recurrent, embedding: Embedding) -> LookedUp | None:
    """None for layers that are not one of one direction, or use their input otherwise."""
    network = layer.network
    given = with_given_products(network.graph) if len(network.units) == 1 else None
    if given is None:
        return None
    rows = sum(network.graph.nodes[matrix].shape[0].evaluate(dict(network.sizes)) for matrix in given.matrices)
    if rows * len(embedding.weight) > MOST:
        return None
    return LookedUp(layer, embedding, replace(network, graph=given.graph), _tables(layer, embedding, given))


def _tables(layer: Recurrent, embedding: Embedding, given: GivenProducts) -> list[Array]:
    """The products of every class with each matrix, [classes, rows], computed in float64."""
    network, dtype = layer.network, layer.runner.dtype
    own = of_unit(network, layer.arrays, *network.units[0], dtype)
    exact = {name: array.astype(np.float64) for name, array in own.items()}
    hypers = {name: np.float64(value) for name, value in network.hypers}
    values = reference.leaf_values(network.graph.nodes, {"parameter": exact, "hyper": hypers})
    interpreter = Interpreter(np, np.float64, network.layer_sizes(0))
    interpreter.run(network.graph.nodes, values, given.matrices)
    weight = embedding.weight.astype(np.float64)
    return [np.asarray(weight @ values[matrix].T, dtype) for matrix in given.matrices]
