"""The systems to compare with: what each needs installed, and how it is made for a row."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec

import torch

from anyrnn.train.layers import TORCH_LAYERS
from benchmarks import jax_scan, onnx_model
from benchmarks.job import Job
from benchmarks.loops import LOOPS
from benchmarks.result import OURS
from benchmarks.suite import STREAMS
from benchmarks.systems import ModuleSystem, StreamSystem, System
from tests.cells.worked import all_worked, by_gate


@dataclass(frozen=True)
class Peer:
    """`why_missing` gives the reason why it cannot be used here, or None; `build` gives None for a row that it does not have."""

    why_missing: Callable[[], str | None]
    build: Callable[[Job], System | None]


def ours(job: Job) -> System:
    """Sequences through torch, streams without it; weights are frozen for inference, as peers' are that are parts of a model."""
    if job.row.mode in STREAMS:
        return StreamSystem(job)
    return ModuleSystem(job, job.module.eval().freeze() if job.row.mode == "inference" else job.module)


def interpreted(job: Job) -> System:
    """The interpreter of anyrnn on torch: what rows without a peer are checked against."""
    module = job.make_module("reference")
    module.load_state_dict(job.parameters())
    return ModuleSystem(job, module)


def _torch(job: Job) -> System | None:
    make, row = TORCH_LAYERS.get(job.row.cell), job.row
    if make is None:
        return None
    module = make(row.features, row.hidden, row.layers, bidirectional=row.bidirectional, dtype=job.dtype)
    module.load_state_dict(job.parameters())
    return ModuleSystem(job, module)


def _eager(job: Job, compile: bool = False) -> System | None:
    loop, parameters = LOOPS.get(job.row.cell), job.layer_parameters()
    if loop is None or parameters is None or job.packed is not None:
        return None
    module = loop(parameters)
    if not compile:
        return ModuleSystem(job, module, module.gradients)
    torch.compiler.reset()
    return ModuleSystem(job, module, module.gradients, torch.compile(module, dynamic=False))


def _equations(job: Job) -> System | None:
    """A cell that torch.nn does not have, as its equations stand: each one operator after the other, in each step."""
    return None if job.row.cell in TORCH_LAYERS else interpreted(job)


def _torchrecurrent(job: Job) -> System | None:
    """Its layer of the same cell, a loop in Python over torch's operators. Gradients of its parameters have other names."""
    found = [w for w in all_worked() if w.name == job.row.cell and w.torchrecurrent and not w.hypers]
    parameters = job.layer_parameters()
    if not found or parameters is None or job.packed is not None:
        return None
    (worked,), network = found[:1], job.network
    of_ours = by_gate(network.graph, dict(network.sizes), {name: tensor.numpy() for name, tensor in parameters.items()})
    given = (worked.theirs or vars)(of_ours)
    library = import_module("torchrecurrent")
    layer = getattr(library, worked.torchrecurrent.removesuffix("Cell"))(job.row.features, job.row.hidden, **worked.options)
    layer = layer.to(job.dtype)
    with torch.no_grad():
        for name, parameter in layer.cells[0].named_parameters():
            parameter.copy_(torch.from_numpy(given[name]))
    return ModuleSystem(job, layer, dict)


def _needs(*packages: str) -> str | None:
    missing = [package for package in packages if find_spec(package) is None]
    return f"not installed: pip install {' '.join(missing)}" if missing else None


def _why_no_compiler() -> str | None:
    compilers = [os.environ.get("CXX", ""), "g++", "clang++", "c++", "cl"]
    return None if any(name and shutil.which(name) for name in compilers) else "no C++ compiler, which torch.compile needs"


PEERS: dict[str, Peer] = {
    "torch": Peer(lambda: None, _torch),
    "equations": Peer(lambda: None, _equations),
    "torchrecurrent": Peer(lambda: _needs("torchrecurrent"), _torchrecurrent),
    "eager": Peer(lambda: None, _eager),
    "torch.compile": Peer(_why_no_compiler, partial(_eager, compile=True)),
    "onnxruntime": Peer(lambda: _needs("onnxruntime", "onnx"), onnx_model.build),
    "jax": Peer(lambda: _needs("jax"), jax_scan.build),
}


def build(name: str, job: Job) -> System | None:
    """anyrnn's system or a peer's; None when the peer does not have the row."""
    return ours(job) if name == OURS else PEERS[name].build(job)


def set_threads(threads: int) -> None:
    """For this process; before jax is imported."""
    torch.set_num_threads(threads)
    os.environ["PJRT_NPROC"] = str(threads)
