"""What is fast: times by the device's own clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch._inductor.config
from torch.nn.utils.rnn import pack_padded_sequence

import anyrnn.torch
from anyrnn.backends.triton.device import device_of, measure
from benchmarks.gpu.checks import MODULES, RELATIVE, TF32, distance
from benchmarks.gpu.items import FAILED, Items, NotHereError, failed, is_the_devices
from benchmarks.loops import LOOPS
from benchmarks.suite import DIGITS, STREAMS, Row, rows_of

ROUNDS, SECONDS = 5, 0.02
"""Of the timing of a call: blocks, and how long each is at least."""
FIRST = 4
"""Calls before, after which nothing is compiled or watched any more."""
CYCLES = 2e6
"""Of a device's clock in a millisecond, at the most."""
OURS = ("triton", "auto")
MORE = 3
"""How many times as far results of a row may be apart as those of the checks, which have few steps."""
ONCE = False
"""Whether calls are made once, so that all is compiled, in the place of being timed."""


def milliseconds(call: Callable[[], object]) -> float:
    """The median of blocks."""
    block = blocks_of_calls(call)
    return 0.0 if ONCE else statistics.median(block() for _ in range(ROUNDS))


def blocks_of_calls(call: Callable[[], object]) -> Callable[[], float]:
    """A function that times some calls, one after the other: milliseconds of one. The first calls are made here."""
    for _ in range(1 if ONCE else FIRST):
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
    count = max(1, min(200, round(SECONDS / max(1e-6, time.perf_counter() - start))))

    return partial(_each, call, count)


def _each(call: Callable[[], object], count: int) -> float:
    """Milliseconds of one of so many calls, by the device's clock."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count


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

    def in_one_thread() -> float:
        with torch.autograd.set_multithreading_enabled(False):
            return milliseconds(nothing())

    yield "a training call that computes nothing, ms", lambda: milliseconds(nothing())
    yield "a training call that computes nothing, without autograd's own thread, ms", in_one_thread


class Nothing(torch.autograd.Function):
    """As a layer, which saves what it is given and has gradients for all of it: torch's own share of a training call."""

    @staticmethod
    def forward(ctx: Any, *given: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*given)
        return torch.empty_like(given[0])

    @staticmethod
    def backward(ctx: Any, d_output: torch.Tensor) -> Any:
        return tuple([torch.empty_like(t) for t in ctx.saved_tensors])


def nothing() -> Callable[[], None]:
    """With the tensors of a small LSTM."""
    row = Row("lstm", 28, 16, 28, 256, mode="training")
    module, (_, x) = torch.nn.LSTM(row.features, row.hidden, device=DEVICE), given_of(row, torch.float32)
    parameters = list(module.parameters())

    def call() -> None:
        module.zero_grad(set_to_none=True)
        x.grad = None
        Nothing.apply(x, *parameters).sum().backward()

    return call


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


DEVICE = torch.device("cuda")


def barriers() -> Items:
    """What one costs, measured by the process that is asked first what there is to do, beside no other, and kept on disk."""
    if torch.cuda.is_available():
        device_of(DEVICE)
    yield (
        "seconds of a barrier, and bytes a second that each program reads, as the model measures them",
        lambda: measure(device_of(DEVICE).multiprocessors),
    )
    yield "what the model knows", lambda: str(device_of(DEVICE))


def row_times(row: Row, dtype: torch.dtype, tf32: bool) -> dict[str, Any]:
    """Milliseconds of each system, blocks of one after those of another, or how it failed."""
    if row.mode in STREAMS:
        raise NotHereError("no row of single steps is timed on devices")
    training = row.mode == "training"
    given, x = given_of(row, dtype)
    how = {"num_layers": row.layers, "bidirectional": row.bidirectional, "device": DEVICE, "dtype": dtype}
    systems: dict[str, Any] = {"triton": anyrnn.torch.Recurrent(row.cell, row.features, row.hidden, backend="triton", **how)}
    if not ONCE:  # which measures what is quicker, and keeps it
        systems["auto"] = anyrnn.torch.Recurrent(row.cell, row.features, row.hidden, **how)
    if row.cell in MODULES:
        systems["cudnn"] = MODULES[row.cell](row.features, row.hidden, **how)
    else:
        systems["equations"] = anyrnn.torch.Recurrent(row.cell, row.features, row.hidden, backend="reference", **how)
    numbers = systems["triton"].state_dict()
    for module in systems.values():
        module.load_state_dict(numbers)
    if row.cell in LOOPS:
        systems["eager"] = LOOPS[row.cell]({name.removesuffix("_l0"): number for name, number in numbers.items()})
    found: dict[str, Any] = {}
    blocks: dict[str, Callable[[], float]] = {}
    with _tf32(tf32):
        for name, module in systems.items():
            try:
                blocks[name] = blocks_of_calls(call_of(row, module.train(training), given, x))
            except Exception as error:  # noqa: PERF203
                if is_the_devices(error):
                    raise
                found[name] = failed(error)
        if ONCE:
            return found | dict.fromkeys(blocks, 0.0)
        try:
            found |= apart({name: results_of(row, systems[name], given, x) for name in blocks}, TF32 if tf32 else RELATIVE[dtype])
        except Exception as error:
            if is_the_devices(error):
                raise
            found["apart"] = failed(error)
        rounds = [{name: block() for name, block in blocks.items()} for _ in range(ROUNDS)]
        found |= {name: statistics.median(one[name] for one in rounds) for name in blocks}
        if "triton" in blocks:
            call = call_of(row, systems["triton"], given, x)
            found["triton, by the device alone"] = by_the_device_alone(call, found["triton"])
    return found


def results_of(row: Row, module: Any, given: Any, x: torch.Tensor) -> list[torch.Tensor]:
    """The output, in training the gradient of the input."""
    if row.mode == "training":
        call_of(row, module, given, x)()
        assert x.grad is not None
        return [x.grad.clone()]
    with torch.no_grad():
        output = module(given)[0]
    return [(output.data if row.lengths else output).clone()]


def apart(results: Mapping[str, Sequence[torch.Tensor]], allowed: float) -> dict[str, Any]:
    """How far our results are from another system's; told as a failure where it is more than such sums of many steps explain."""
    found: dict[str, Any] = {}
    others = [name for name in results if name not in OURS]
    for name, other in ((name, others[-1]) for name in OURS if name in results and others):
        far = max(distance(a, b) for a, b in zip(results[name], results[other], strict=True))
        told = f"{far:.1e} of the largest of {other}'s"
        found[f"{name}, apart"] = told if far <= MORE * allowed else f"{FAILED} differs by {told}"
    return found


def by_the_device_alone(call: Callable[[], object], usual: float) -> float:
    """Milliseconds of a call of `usual` ones where its Python takes none: the device waits until it has been given some."""
    count = max(1, min(10, round(20 / usual)))
    torch.cuda.synchronize()
    torch.cuda._sleep(round((2 * count * usual + 5) * CYCLES))
    return _each(call, count)


def given_of(row: Row, dtype: torch.dtype) -> tuple[Any, torch.Tensor]:
    """What a layer is given, maybe packed, and the numbers of it, whose gradient is wanted in training."""
    torch.manual_seed(0)
    x = torch.randn(row.steps, row.samples, row.features, device=DEVICE, dtype=dtype)
    given: Any = x
    if row.lengths:
        lengths = torch.linspace(*row.lengths, row.samples).round().long()
        given = pack_padded_sequence(x, lengths, enforce_sorted=False)
        x = given.data
    x.requires_grad_(row.mode == "training")
    return given, x


def call_of(row: Row, module: Any, given: Any, x: torch.Tensor) -> Callable[[], None]:
    """A call of a row's mode, of what `given_of` makes."""

    def call() -> None:
        if row.mode != "training":
            with torch.no_grad():
                module(given)
            return
        module.zero_grad(set_to_none=True)
        x.grad = None
        output = module(given)[0]
        output = output.data if row.lengths else output
        (output[-1] if row.loss == "last" else output).sum().backward()

    return call


def compiled_time(row: Row) -> float:
    """Milliseconds of torch.compile over a loop that somebody at home in torch writes for a cell."""
    inductor: Any = torch._inductor
    inductor.config.compile_threads = 1  # beside others that compile
    ours = anyrnn.torch.Recurrent(row.cell, row.features, row.hidden, device="cuda")
    parameters = {name.removesuffix("_l0"): p.detach() for name, p in ours.named_parameters()}
    module = torch.compile(LOOPS[row.cell](parameters), dynamic=False)
    x = torch.randn(row.steps, row.samples, row.features, device="cuda", requires_grad=row.mode == "training")
    return milliseconds(call_of(row, module, x, x))


def compiled() -> Items:
    """The cells of one's own by torch.compile."""
    for row in COMPILED:
        yield f"{row.name} float32, torch.compile, ms", partial(compiled_time, row)


def targets() -> Items:
    """The rows that targets are about."""
    for dtype, name in ((torch.float32, "float32"), (torch.bfloat16, "bfloat16")):
        for row in TARGETS:
            yield f"{row.name} {name}, ms", partial(row_times, row, dtype, False)


def rows() -> Items:
    """The same in other precisions, and all others of the suite."""
    for dtype, tf32, name in ((torch.float32, True, "TF32"), (torch.float16, False, "float16")):
        for row in TARGETS:
            if row not in COMPILED:
                yield f"{row.name} {name}, ms", partial(row_times, row, dtype, tf32)
    for row in rows_of("all"):
        if row not in TARGETS:
            yield f"{row.name} float32, ms", partial(row_times, row, torch.float32, False)


def _both(*shape: Any) -> list[Row]:
    row = Row(*shape)
    return [row, replace(row, mode="training")]


TARGETS = [row for cell in ("lstm", "gru", "rnn_tanh") for row in _both(cell, *DIGITS)]
TARGETS += [row for cell in ("lstm", "gru") for n in (16, 64) for row in _both(cell, 100, n, 512, 512)]
TARGETS += _both("lstm", 1024, 16, 768, 768)
COMPILED = [row for cell in ("lstm_layernorm", "gru_before", "mingru") for row in _both(cell, *DIGITS)]
TARGETS += COMPILED
