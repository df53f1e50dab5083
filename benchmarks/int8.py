"""`python -m benchmarks.int8`: matrices of int8 by anyrnn, torch's dynamic quantisation and onnxruntime's, and float32 by anyrnn,
in one process, block by block: time, and how far results are from those of float64.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anyrnn.train.layers import TORCH_LAYERS
from benchmarks import onnx_model, peers
from benchmarks.job import Job
from benchmarks.machine import describe, versions
from benchmarks.measure import Blocks, geometric_mean, measure
from benchmarks.report import aligned
from benchmarks.suite import DIGITS, ONE_SAMPLE, STREAMS, Row
from benchmarks.systems import ModuleSystem, StreamSystem, System

CELLS = ("lstm", "gru")
SHAPES = (
    DIGITS,
    ONE_SAMPLE,
    (100, 32, 256, 256),
    (50, 64, 512, 512),
    *((25, n, 1024, 1024) for n in (1, 4, 16)),
    (25, 16, 2048, 2048),
)
WIDTHS = (64, 128, 256, 512, 1024)
"""Features of streams."""
ROWS = [
    *(Row(cell, *shape) for shape in SHAPES for cell in CELLS),
    *(Row(cell, 1, 1, n, n, "streaming") for n in WIDTHS for cell in CELLS),
]
FARTHEST = 0.05
"""That results may be from float64's, as part of their norm."""


def systems(job: Job) -> dict[str, System]:
    """Those that have the row. The first is ours."""
    row, streams = job.row, job.row.mode in STREAMS
    found: dict[str, System] = {}
    if streams:
        found |= {"int8": StreamSystem(job, int8=True), "float32": StreamSystem(job)}
    else:
        frozen = job.make_module("llvm")
        frozen.load_state_dict(job.parameters())
        found |= {
            "int8": ModuleSystem(job, job.module.eval().freeze(int8=True)),
            "float32": ModuleSystem(job, frozen.eval().freeze()),
        }
    layer = TORCH_LAYERS[row.cell](row.features, row.hidden)
    layer.load_state_dict(job.parameters())
    quantised: Any = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(layer), {type(layer)}, dtype=torch.qint8)
    found["torch"] = ModuleSystem(job, quantised[0])
    if row.cell == "lstm":
        found["onnxruntime"] = onnx_model.Session(job, onnx_model.OPERATORS["lstm"], int8=True)
    return found


def error(found: dict[str, Tensor], exact: dict[str, Tensor]) -> float:
    """How far an output is from the exact one, as part of its norm."""
    return float((found["output"].double() - exact["output"]).norm() / exact["output"].norm())


def measured(row: Row, threads: int, blocks: Blocks) -> dict[str, Any]:
    """Milliseconds and errors of each system. Raises: ValueError where ours is too far from what is exact."""
    job = Job(row, torch.float32, threads)
    exact = peers.interpreted(job.in_double_precision()).results()
    of_row = systems(job)
    errors = {name: error(system.results(), exact) for name, system in of_row.items()}
    if not errors["int8"] <= FARTHEST:
        raise ValueError(f"{row.name}: results are {errors['int8']:.1%} from those of float64")
    found = measure({name: system.call for name, system in of_row.items()}, blocks)
    return {"row": asdict(row), "ms": {name: timing.median * 1e3 for name, timing in found.items()}, "errors": errors}


def told(results: Sequence[dict[str, Any]]) -> str:
    """A table, and means of how many times as long others take."""
    names = ("int8", "float32", "torch", "onnxruntime")
    lines, ratios = [["row", *(f"{name} ms" for name in names), *(f"{name} error" for name in names)]], {n: [] for n in names[1:]}
    for result in results:
        ms, errors = result["ms"], result["errors"]
        for name, of_name in ratios.items():
            of_name += [ms[name] / ms["int8"]] if name in ms else []
        times = [f"{ms[name]:.3g} ({ms[name] / ms['int8']:.2f})" if name in ms else "" for name in names]
        lines.append(
            [Row.from_data(result["row"]).name, *times, *(f"{errors[name]:.2%}" if name in errors else "" for name in names)]
        )
    means = [
        f"{name}: {geometric_mean(of_name):.2f} times as long, at least {min(of_name):.2f}"
        for name, of_name in ratios.items()
        if of_name
    ]
    return "\n".join([aligned(lines), *means])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.int8", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="blocks of each (default: 7)")
    parser.add_argument("--threads", type=int, default=2, help="(default: 2)")
    parser.add_argument("--rows", default="", help="those whose names have this in them (default: all)")
    parser.add_argument("--json", type=Path, help="where to write the results")
    chosen = parser.parse_args(arguments)
    peers.set_threads(chosen.threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's has moved to another package, and says so
        results = [measured(row, chosen.threads, Blocks(rounds=chosen.rounds)) for row in ROWS if chosen.rows in row.name]
    print(told(results))
    if chosen.json:
        about = {"machine": describe(), "versions": versions(), "threads": chosen.threads}
        chosen.json.write_text(json.dumps({**about, "results": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    logging.getLogger().setLevel(logging.ERROR)  # where onnxruntime's quantisation tells of models it would rather have
    sys.exit(main())
