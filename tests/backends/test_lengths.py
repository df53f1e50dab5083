"""Batches whose sequences end at different steps, by the native kernels: each sample has the bits that it has alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from anyrnn import Recurrent
from anyrnn._memory import aligned
from anyrnn.backends.llvm import extent, run
from anyrnn.backends.llvm.extent import Extent
from anyrnn.numpy.parameters import gradients_by_name, new_gradients
from anyrnn.sequence.packing import Packing, segments

CELLS = ("rnn_tanh", "lstm", "gru_before", "indrnn", "lstm_layernorm", "lstm_peephole")
LENGTHS = ([3, 1, 2], [5, 5, 5], [1, 4, 0, 4, 2, 7], np.random.default_rng(0).integers(0, 40, 33).tolist())
FEATURES, HIDDEN = 5, 19


@dataclass
class Found:
    """Of all packed rows, or of the samples in their order."""

    output: Any
    last: list[Any]
    d_x: Any
    d_first: list[Any]
    gradients: dict[str, Any]


def packing_of(lengths: list[int]) -> Packing:
    return segments(np.arange(max(lengths))[:, None] < np.array(lengths)).packing


def order_of(lengths: list[int]) -> list[int]:
    """The samples that have steps, the longest first."""
    return sorted((n for n, length in enumerate(lengths) if length), key=lambda n: -lengths[n])


def of_all(layer: Recurrent, lengths: list[int], x: Any, first: list[Any], d_y: Any, d_last: list[Any]) -> Found:
    """Both passes over a batch, as the front-ends call them."""
    net, packed, order = layer.network, packing_of(lengths), order_of(lengths)
    step, sample, rows = packed.step, packed.sample, packed.rows
    whole = Extent(len(packed.counts), rows, packed.counts)
    x, d_y = (np.ascontiguousarray(a[step, sample]) for a in (x, d_y))
    first, d_last = ([np.ascontiguousarray(a[:, order]) for a in some] for some in (first, d_last))
    output, d_x = (np.full_like(a, np.nan) for a in (d_y, x))
    last, d_first = ([np.full_like(a, np.nan) for a in first] for _ in range(2))
    sources = layer.sources()
    d_sources = new_gradients(net, sources)
    reserve = aligned(run.reserve_bytes(net, "float32", packed.total, rows))
    reserve.fill(0xFF)  # NaN

    def of_sequence(array: Any) -> Any:
        return (array.strides[0],) * 2

    def of_states(arrays: list[Any]) -> Any:
        return tuple(a.strides[:2] for a in arrays)

    def call(shape: run.CallShape, *arrays: Any) -> None:
        run.call(net, shape, [a.ctypes.data for a in arrays])

    both = (of_sequence(x),), of_sequence(output), of_states(first), of_states(last)
    call(run.CallShape("inference", "float32", whole, *both), x, output, *first, *last, *sources)
    inferred = output.copy()
    call(run.CallShape("training", "float32", whole, *both), x, output, *first, *last, *sources, reserve)
    assert np.array_equal(output, inferred), "training gives other outputs than inference"
    shape = run.CallShape("backward", "float32", whole, *both, (0, whole.steps), (of_sequence(d_x),), gradients=True)
    call(shape, x, d_y, *d_last, *d_first, d_x, *sources, *d_sources, reserve)
    named = gradients_by_name(net, layer.parameters, d_sources, layer.dtype)
    return Found(output, last, d_x, d_first, named)


def of_one(layer: Recurrent, x: Any, first: list[Any], d_y: Any, d_last: list[Any]) -> Found:
    """Both passes over one sample alone."""
    output, last, reserve = layer.forward_training(x, first)
    d_x, d_first, gradients = layer.backward(reserve, d_y, d_last)
    return Found(output[:, 0], *(list(s) if isinstance(s, tuple) else [s] for s in (last,)), d_x[:, 0],
                 list(d_first) if isinstance(d_first, tuple) else [d_first], gradients)  # fmt: skip


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda lengths: f"{len(lengths)}samples{max(lengths)}steps")
def test_every_sample_is_as_if_it_were_alone(
    lengths: list[int], cell: str, layers: int, bidirectional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extent, "CHUNK_ROWS", 300)  # several chunks
    layer = Recurrent(cell, FEATURES, HIDDEN, layers, bidirectional=bidirectional, seed=1, backend="llvm")
    net, random = layer.network, np.random.default_rng(2)
    steps, samples = max(lengths) + 1, len(lengths)

    def draw(*shape: int) -> Any:
        return random.standard_normal(shape, np.float32)

    x, d_y = draw(steps, samples, FEATURES), draw(steps, samples, net.directions * net.output_size)
    first, d_last = ([draw(len(net.units), samples, size) for size in net.state_sizes] for _ in range(2))
    found = of_all(layer, lengths, x, first, d_y, d_last)
    sample = packing_of(lengths).sample
    total = {name: np.zeros(value.shape) for name, value in found.gradients.items()}
    for place, n in enumerate(order_of(lengths)):
        own = slice(lengths[n]), slice(n, n + 1)
        alone = of_one(layer, x[own], [a[:, n : n + 1] for a in first], d_y[own], [a[:, n : n + 1] for a in d_last])
        assert np.array_equal(found.output[sample == n], alone.output)
        assert np.array_equal(found.d_x[sample == n], alone.d_x)
        for here, there in ((found.last, alone.last), (found.d_first, alone.d_first)):
            assert all(np.array_equal(a[:, place], b[:, 0]) for a, b in zip(here, there, strict=True))
        for name, value in alone.gradients.items():
            total[name] += value
    for name, value in total.items():
        assert np.abs(found.gradients[name] - value).max() <= 3e-5 * np.abs(value).max(), name
