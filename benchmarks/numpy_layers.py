"""`python -m benchmarks.numpy_layers`: short calls without a framework: anyrnn's layers on NumPy arrays, the same layers in a
network at run time, and onnxruntime's sessions, in one process, block by block. Results that differ end it before any time is
told.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch

import anyrnn
from anyrnn import runtime
from benchmarks import onnx_model, peers
from benchmarks.job import Job
from benchmarks.measure import Blocks, geometric_mean, measure
from benchmarks.report import aligned
from benchmarks.side_by_side import APART, parser_of
from benchmarks.suite import Row

CELLS = ("rnn_tanh", "gru", "lstm")
SHAPES = ((1, 1, 1, 5), (1, 1, 32, 100), (1, 16, 64, 64), (5, 2, 7, 64), (20, 1, 1, 16), (20, 1, 128, 256), (20, 16, 32, 64))
SHAPES += ((100, 1, 32, 16), (100, 4, 32, 128))
"""Steps, samples, features of input and state."""


def calls_of(row: Row, threads: int) -> dict[str, Any]:
    """By what makes them. Each gives the output first."""
    job = Job(row, torch.float32, threads)
    x, parameters = job.data.numpy(), {name: tensor.numpy() for name, tensor in job.parameters().items()}
    layer = anyrnn.Recurrent(row.cell, row.features, row.hidden)
    layer.parameters.update({name: array.copy() for name, array in parameters.items()})
    network = runtime.Network(row.features, [runtime.Recurrent("layer", ["x"], layer.network, parameters)])
    session = onnx_model.Session(job, onnx_model.OPERATORS[row.cell])
    return {"layer": lambda: layer(x), "network": lambda: network.run(x), "onnxruntime": session.call}


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parser_of("numpy_layers", __doc__).parse_args(arguments)
    peers.set_threads(chosen.threads)
    lines = [["cell, steps x samples x features x state", "layer us", "network us", "onnxruntime us", "layer", "network"]]
    ratios: dict[str, list[float]] = {"layer": [], "network": []}
    for row in (Row(cell, *shape) for shape in SHAPES for cell in CELLS):
        calls = calls_of(row, chosen.threads)
        label, expected = f"{row.cell} {'x'.join(map(str, row.shape))}", torch.from_numpy(calls["onnxruntime"]()[0])
        for name in ratios:
            found = torch.from_numpy(calls[name]()[0]).view_as(expected)
            if not (found - expected).norm() <= APART * expected.norm():  # nor for NaN
                raise ValueError(f"{label}: the results of the {name} differ from onnxruntime's")
        timings = measure(calls, Blocks(rounds=chosen.rounds))
        for name, of_name in ratios.items():
            pairs = zip(timings[name].block_medians, timings["onnxruntime"].block_medians, strict=True)
            of_name.append(median(ours / theirs for ours, theirs in pairs))
        times = [f"{timing.median * 1e6:.1f}" for timing in timings.values()]
        lines.append([label, *times, *(f"{of_name[-1]:.2f}" for of_name in ratios.values())])
    print(aligned(lines))
    for name, of_name in ratios.items():
        print(f"geometric mean of the {name}'s time, of onnxruntime's: {geometric_mean(of_name):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
