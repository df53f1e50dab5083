"""`python -m benchmarks.numpy_layers`: short calls without a framework: anyrnn's layers on NumPy arrays, the same layers in a
network at run time, and onnxruntime's sessions, in one process, block by block. Results that differ end it before any time is
told.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import anyrnn
from anyrnn import runtime
from benchmarks import onnx_model, peers
from benchmarks.job import Job
from benchmarks.measure import geometric_mean
from benchmarks.report import aligned
from benchmarks.side_by_side import compare, parser_of
from benchmarks.suite import Row

CELLS = ("rnn_tanh", "gru", "lstm")
SHAPES = (
    (1, 1, 1, 5),
    (1, 1, 32, 100),
    (1, 16, 64, 64),
    (5, 2, 7, 64),
    (20, 1, 1, 16),
    (20, 1, 128, 256),
    (20, 16, 32, 64),
    (100, 1, 32, 16),
    (100, 4, 32, 128),
)
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


def output_of(result: Any) -> list[Tensor]:
    return [torch.from_numpy(result[0])]


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parser_of("numpy_layers", __doc__).parse_args(arguments)
    peers.set_threads(chosen.threads)
    lines = [["cell, steps x samples x features x state", "layer us", "network us", "onnxruntime us", "layer", "network"]]
    ratios: list[list[float]] = []
    for row in (Row(cell, *shape) for shape in SHAPES for cell in CELLS):
        label = f"{row.cell} {'x'.join(map(str, row.shape))}"
        columns, of_row = compare(label, calls_of(row, chosen.threads), chosen.rounds, output_of, unit=1e-6)
        lines.append([label, *columns])
        ratios.append(of_row)
    print(aligned(lines))
    for name, found in zip(("layer", "network"), zip(*ratios, strict=True), strict=True):
        print(f"geometric mean of the {name}'s time, of onnxruntime's: {geometric_mean(found):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
