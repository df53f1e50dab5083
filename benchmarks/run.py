"""A row from its description to its result: made for every system, compared, timed, compared again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import torch
from torch import Tensor

from anyrnn.errors import UnsupportedError
from benchmarks import peers
from benchmarks.check import difference, otherwise_made, rounding_explains
from benchmarks.job import Job
from benchmarks.measure import Blocks, Reference, measure
from benchmarks.result import OURS, Result
from benchmarks.suite import TORCH_CELLS, Row
from benchmarks.systems import System

References = Callable[[Result, Job], Mapping[str, Reference]]
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Settings:
    """What holds for a whole run."""

    threads: int = 2
    dtype: str = "float32"
    peers: tuple[str, ...] = ("torch", "equations", "eager")
    blocks: Blocks = field(default_factory=Blocks)

    def blocks_for(self, row: Row) -> Blocks:
        """Single calls of a stream need more samples, for their 99th percentile."""
        if row.mode == "streaming":
            return replace(self.blocks, calls=self.blocks.calls * 35)
        if row.mode == "paced":
            return replace(self.blocks, calls=self.blocks.calls * 15, seconds=0.0, between=0.005)
        return self.blocks


def run_row(row: Row, settings: Settings, references: References = lambda result, job: {}) -> Result:
    """Never raises for what one row or one peer cannot do: the result says so. `references` gives what else to time in turn with
    the systems: `product` and `read`.
    """
    try:
        return _run_row(row, settings, references)
    except UnsupportedError as error:
        return Result(row, "declined", str(error))
    except Exception as error:  # noqa: BLE001  a row that breaks must not take the others with it
        return Result(row, "failed", _one_line(error))


def _run_row(row: Row, settings: Settings, references: References) -> Result:
    job = Job(row, DTYPES[settings.dtype], settings.threads)
    ours = peers.ours(job)
    start = time.perf_counter()
    results = ours.results()
    first = {OURS: time.perf_counter() - start}
    systems: dict[str, System] = {OURS: ours}
    notes: list[str] = []
    for name in settings.peers:
        try:
            system = peers.build(name, job)
            if system is None:
                continue
            start = time.perf_counter()
            theirs = system.results()
            first[name] = time.perf_counter() - start
        except Exception as error:  # noqa: BLE001  other libraries raise what they like; the row goes on without this one
            notes.append(f"{name} could not run it: {_one_line(error)}")
            continue
        reason = _different(job, results, theirs, name)
        if reason:
            return Result(row, "wrong", reason, first_seconds=first, notes=tuple(notes))
        systems[name] = system
    if len(systems) == 1:
        reason = _different(job, results, peers.interpreted(job).results(), "the interpreter")
        if reason:
            return Result(row, "wrong", reason, first_seconds=first, notes=tuple(notes))

    found = Result(row, "ok", "", {}, job.flops, job.weight_bytes, job.step_bytes, job.array_bytes, job.input_flops, job.elements)
    beside = dict(references(found, job))
    if row.cell not in TORCH_CELLS:
        beside["lstm"] = _lstm(replace(row, cell="lstm"), settings.dtype, settings.threads)
        beside |= {"input": _input_products(job)} if job.input_flops else {}
    calls = {name: system.call for name, system in systems.items()} | {name: r.call for name, r in beside.items()}
    timings = measure(calls, settings.blocks_for(row))
    rates = {
        f"{name}_rates": tuple(reference.amount / seconds for seconds in timings.pop(name).block_medians)
        for name, reference in beside.items()
    }
    changed = [name for name, value in ours.results().items() if not torch.equal(value, results[name])]
    if changed:
        reason = f"after the timed calls {', '.join(changed)} has other bits than before"
        return Result(row, "wrong", reason, first_seconds=first, notes=tuple(notes))
    return replace(found, timings=timings, first_seconds=first, notes=tuple(notes), **rates)


@lru_cache(maxsize=8)
def _lstm(row: Row, dtype: str, threads: int) -> Reference:
    """A row's call, and its flops."""
    job = Job(row, DTYPES[dtype], threads)
    system = peers.ours(job)
    system.results()
    return Reference(system.call, job.flops)


def _input_products(job: Job) -> Reference:
    """The products with the input by torch, all steps at once; in training those of the gradients too."""
    row, samples = job.row, job.sample_steps
    products = 3 if row.mode == "training" else 1
    x = job.data.reshape(samples, row.features)
    weight = torch.randn(job.input_flops // (2 * products * samples * row.features), row.features, dtype=job.dtype)
    made, d_x, d_weight = x.new_empty(samples, len(weight)), torch.empty_like(x), torch.empty_like(weight)

    def call() -> None:
        torch.mm(x, weight.T, out=made)
        if products > 1:
            torch.mm(made, weight, out=d_x)
            torch.mm(made.T, x, out=d_weight)

    return Reference(call, job.input_flops)


def _different(job: Job, ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], name: str) -> str | None:
    """What differs by more than rounding explains; the latter is seen where exact results can be had."""
    reason = difference(ours, theirs, name, job.dtype, job.kinks)
    if reason is None or job.dtype == torch.float64 or otherwise_made(ours, theirs, name) is not None:
        return reason
    exact = peers.interpreted(job.in_double_precision()).results()
    return None if rounding_explains(ours, theirs, exact, name, job.dtype) else reason


def _one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def settings_missing(names: Sequence[str]) -> dict[str, str]:
    """Those of the peers that cannot be used here, and why."""
    reasons = {name: peers.PEERS[name].why_missing() for name in names}
    return {name: reason for name, reason in reasons.items() if reason}
