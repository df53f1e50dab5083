"""What is fast: times by the device's own clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch.nn.utils.rnn import pack_padded_sequence

import anyrnn.torch
from anyrnn.backends.triton import launch, split, unit
from anyrnn.backends.triton.device import device_of, measure
from anyrnn.backends.triton.split import Blocks
from benchmarks.gpu.checks import MODULES
from benchmarks.gpu.items import Items, NotHereError, failed
from benchmarks.suite import DIGITS, STREAMS, Row, rows_of

ROUNDS, SECONDS = 5, 0.02
"""Of the timing of a call: blocks, and how long each is at least."""
ONCE = False
"""Whether calls are made once, so that all is compiled, in the place of being timed."""


def milliseconds(call: Callable[[], object]) -> float:
    """The median of blocks."""
    call()
    torch.cuda.synchronize()
    if ONCE:
        return 0.0
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    count = max(1, min(200, round(SECONDS / max(1e-6, time.perf_counter() - start))))
    found = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / count)
    return statistics.median(found)


def ceilings() -> Items:
    def product(dtype: torch.dtype, tf32: bool) -> float:
        a, b = (torch.randn(4096, 4096, device="cuda", dtype=dtype) for _ in range(2))
        with _tf32(tf32):
            return 2 * 4096**3 / milliseconds(lambda: a @ b) / 1e9

    def copied() -> float:
        a = torch.empty(1 << 28, dtype=torch.float32, device="cuda")
        b = torch.empty_like(a)
        return 2 * a.nbytes / milliseconds(lambda: b.copy_(a)) / 1e6

    yield "float32 product, TFLOP/s", lambda: product(torch.float32, False)
    yield "TF32 product, TFLOP/s", lambda: product(torch.float32, True)
    yield "bfloat16 product, TFLOP/s", lambda: product(torch.bfloat16, False)
    yield "copy, GB/s read and written", copied


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def step_of(blocks: Blocks, hidden: int, samples: int = 16, dtype: torch.dtype = torch.float32) -> float:
    """Microseconds of a step of an LSTM's kernel, from two lengths."""
    module = anyrnn.torch.LSTM(16, hidden, device="cuda", dtype=dtype, backend="triton").eval()
    found = []
    with torch.no_grad(), patch.object(unit, "blocks_of", return_value=blocks):
        for steps in (100, 300):
            x = torch.randn(steps, samples, 16, device="cuda", dtype=dtype)
            found.append(milliseconds(lambda: module(x)))  # noqa: B023 (called at once)
    return (found[1] - found[0]) * 1e3 / 200


def reading(hidden: int, columns: int) -> Blocks:
    """Programs that read their weights in every step."""
    return Blocks(features=32 if hidden // 32 >= columns else 16, columns=columns)


def holding(hidden: int, dtype: torch.dtype = torch.float32, samples: int = 16) -> list[Blocks]:
    """Programs that hold their weights, in all ways that there are."""
    plan, sizes = anyrnn.torch.LSTM(16, hidden).network.plan, {"input": 16, "hidden": hidden}
    weights = split.step_weights(launch.lowered(plan, "inference"), plan.phase.weights, sizes, dtype)
    return list(split.holding(weights, hidden, samples, device_of(torch.device("cuda"))))


def step_in(precision: str, blocks: Blocks, hidden: int) -> float:
    """A step with products of another kind than torch's setting says."""
    with patch.object(unit, "precision_of", return_value=precision):
        return step_of(blocks, hidden)


def barriers() -> Items:
    """What one costs: of a step of few features it is nearly all."""
    yield (
        "barrier and bytes a second of all, as the model measures them",
        lambda: measure(device_of(torch.device("cuda")).multiprocessors),
    )
    yield "what the model knows", lambda: str(device_of(torch.device("cuda")))
    yield "barrier of 2, us", lambda: step_of(reading(32, 2), 32) - step_of(reading(32, 1), 32)
    yield "barrier of 64, us", lambda: step_of(reading(1024, 64), 1024) - step_of(reading(16, 1), 16)


def kernels() -> Items:
    """A step of each shape of kernel."""
    for precision in ("ieee", "tf32x3", "tf32"):
        yield (
            f"LSTM step, N 16, H 512, 16 programs, products in {precision}, us",
            partial(step_in, precision, reading(512, 16), 512),
        )
    for hidden in (64, 128, 256, 512, 1024):
        for columns in (1, 4, 16, 64):
            if columns <= max(1, hidden // 16):
                yield f"LSTM step, N 16, H {hidden}, {columns} programs, us", partial(step_of, reading(hidden, columns), hidden)
        for dtype in (torch.float32, torch.bfloat16):
            for blocks in holding(hidden, dtype):
                how = f"{blocks.columns} programs of {blocks.rows} rows that hold {dtype} weights"
                yield f"LSTM step, N 16, H {hidden}, {how}, us", partial(step_of, blocks, hidden, dtype=dtype)


def row_times(row: Row, dtype: torch.dtype, tf32: bool) -> dict[str, Any]:
    """Milliseconds of each system, or how it failed."""
    torch.manual_seed(0)
    x = torch.randn(row.steps, row.samples, row.features, device="cuda", dtype=dtype)
    if row.mode in STREAMS:
        raise NotHereError("no row of single steps is timed on devices")
    training = row.mode == "training"
    x.requires_grad_(training)
    given: Any = x
    if row.lengths:
        lengths = torch.linspace(*row.lengths, row.samples).round().long()
        given = pack_padded_sequence(x, lengths, enforce_sorted=False)
    how = {"num_layers": row.layers, "bidirectional": row.bidirectional, "device": "cuda", "dtype": dtype}
    systems: dict[str, Any] = {"triton": anyrnn.torch.Recurrent(row.cell, row.features, row.hidden, backend="triton", **how)}
    if row.cell in MODULES:
        systems["cudnn"] = MODULES[row.cell](row.features, row.hidden, **how)
    else:
        systems["eager"] = anyrnn.torch.Recurrent(row.cell, row.features, row.hidden, backend="reference", **how)
    found: dict[str, Any] = {}
    with _tf32(tf32):
        for name, module in systems.items():
            module.train(training)

            def call(module: Any = module) -> None:
                if not training:
                    with torch.no_grad():
                        module(given)
                    return
                module.zero_grad(set_to_none=True)
                x.grad = None
                output = module(given)[0]
                output = output.data if row.lengths else output
                (output[-1] if row.loss == "last" else output).sum().backward()

            try:
                found[name] = milliseconds(call)
            except Exception as error:  # noqa: BLE001
                found[name] = failed(error)
    return found


def targets() -> Items:
    """The rows that targets are about."""
    for dtype, tf32, name in (
        (torch.float32, False, "float32"),
        (torch.bfloat16, False, "bfloat16"),
        (torch.float32, True, "TF32"),
        (torch.float16, False, "float16"),
    ):
        for row in TARGETS:
            yield f"{row.name} {name}, ms", partial(row_times, row, dtype, tf32)


def rows() -> Items:
    """All others of the suite."""
    for row in rows_of("all"):
        if row not in TARGETS:
            yield f"{row.name} float32, ms", partial(row_times, row, torch.float32, False)


def _both(*shape: Any) -> list[Row]:
    row = Row(*shape)
    return [row, replace(row, mode="training")]


TARGETS = [row for cell in ("lstm", "gru", "rnn_tanh") for row in _both(cell, *DIGITS)]
TARGETS += [row for cell in ("lstm", "gru") for n in (16, 64) for row in _both(cell, 100, n, 512, 512)]
TARGETS += _both("lstm", 1024, 16, 768, 768)
TARGETS += [row for cell in ("lstm_layernorm", "gru_before", "mingru") for row in _both(cell, *DIGITS)]
