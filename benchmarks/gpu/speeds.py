"""What is fast: times by the device's own clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import torch._inductor.config
from torch.nn.utils.rnn import pack_padded_sequence

import anyrnn.torch
from anyrnn.backends.triton import launch, split, tape, unit
from anyrnn.backends.triton.device import device_of, measure
from anyrnn.backends.triton.split import Blocks
from anyrnn.sequence.network import Network
from benchmarks.gpu.checks import MODULES
from benchmarks.gpu.items import Items, NotHereError, failed
from benchmarks.loops import LOOPS
from benchmarks.suite import DIGITS, STREAMS, Row, rows_of

ROUNDS, SECONDS = 5, 0.02
"""Of the timing of a call: blocks, and how long each is at least."""
FIRST = 4
"""Calls before, after which nothing is compiled or watched any more."""
CYCLES = 2e6
"""Of a device's clock in a millisecond, at the most."""
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

    def block() -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / count

    return block


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


DEVICE, SAMPLES = torch.device("cuda"), 16
STEPS = 200, 1200
"""Of two calls, of which the difference counts: so many that launching takes less time than they."""


def step_of(blocks: Blocks, hidden: int, dtype: torch.dtype, samples: int = SAMPLES, precision: str = "") -> str:
    """A step of an LSTM's kernel. `precision`: of products of another kind than torch's setting says."""
    module = anyrnn.torch.LSTM(16, hidden, device=DEVICE, dtype=dtype, backend="triton").eval()
    of_products = patch.object(unit, "precision_of", return_value=precision) if precision else nullcontext()
    with torch.no_grad(), patch.object(unit, "blocks_of", return_value=blocks), of_products:
        return _told(_of_each_step(module, dtype, samples), blocks)


def gradient_step_of(blocks: Blocks, hidden: int, dtype: torch.dtype, samples: int = SAMPLES) -> str:
    """What a step adds to a training call, gradients of weights included. `blocks`: of the gradient's kernel."""
    module, usual = anyrnn.torch.LSTM(16, hidden, device=DEVICE, dtype=dtype, backend="triton"), unit.blocks_of

    def blocks_of(network: Network, which: str, *of: Any) -> Blocks:
        return blocks if which == "backward" else usual(network, which, *of)

    with patch.object(unit, "blocks_of", blocks_of):
        return _told(_of_each_step(lambda x: module(x)[0].sum().backward(), dtype, samples), blocks)


def _of_each_step(call: Callable[[torch.Tensor], object], dtype: torch.dtype, samples: int) -> float:
    """Microseconds."""
    found = []
    tape.TAPES.clear()  # which do not know of what is patched
    for steps in STEPS:
        x = torch.randn(steps, samples, 16, device=DEVICE, dtype=dtype)
        found.append(milliseconds(partial(call, x)))
    tape.TAPES.clear()
    return (found[1] - found[0]) * 1e3 / (STEPS[1] - STEPS[0])


def _told(microseconds: float, blocks: Blocks) -> str:
    where = f"held in {blocks.holds} blocks" if blocks.holds else f"read, {blocks.depth} features at a time"
    how = ", sums scattered" if blocks.scatters else ""
    shape = f"{blocks.columns} programs of {blocks.features} features and {blocks.rows} samples, {blocks.warps} warps"
    return f"{microseconds:.2f} ({shape}, weights {where}{how})"


def chosen(
    hidden: int,
    dtype: torch.dtype,
    samples: int = SAMPLES,
    which: str = "inference",
    may_hold: bool = True,
    scatters: bool = True,
) -> Blocks:
    """As the model chooses. `may_hold`: programs may hold weights; `scatters`: sums may be scattered."""
    plan, sizes, device = anyrnn.torch.LSTM(16, hidden).network.plan, {"input": 16, "hidden": hidden}, device_of(DEVICE)
    precision = split.precision_of(dtype, device)
    weights = split.step_weights(launch.lowered(plan, which), plan.phase.weights, sizes, dtype, precision)
    weights = weights if scatters else replace(weights, scattered=None)
    return split.choose(getattr(plan, which), weights, hidden, samples, device, may_hold)


def barriers() -> Items:
    """What one costs."""
    yield (
        "seconds of a barrier, and bytes a second that each program reads, as the model measures them",
        lambda: measure(device_of(DEVICE).multiprocessors),
    )
    yield "what the model knows", lambda: str(device_of(DEVICE))


def kernels() -> Items:
    """A step of each shape of kernel."""

    def step(hidden: int, dtype: torch.dtype, precision: str = "", **how: Any) -> Callable[[], str]:
        return lambda: step_of(chosen(hidden, dtype, **how), hidden, dtype, precision=precision)

    def gradient(hidden: int, dtype: torch.dtype, scatters: bool) -> Callable[[], str]:
        return lambda: gradient_step_of(chosen(hidden, dtype, which="backward", scatters=scatters), hidden, dtype)

    for precision in ("ieee", "bf16x6", "tf32"):
        how = f"LSTM step, H 512, programs that read, products in {precision}, us"
        yield how, step(512, torch.float32, precision, may_hold=False)
    for dtype in (torch.float32, torch.bfloat16):
        for hidden in (64, 256, 512, 768, 1024):
            name = f"LSTM step, H {hidden}, {_name(dtype)}"
            yield f"{name}, as chosen, us", step(hidden, dtype)
            if hidden in (256, 1024):
                yield f"{name}, weights read, us", step(hidden, dtype, may_hold=False)
        yield f"LSTM step, H 64, {_name(dtype)}, one program without barriers, us", partial(step_of, Blocks(), 64, dtype)
    for hidden, dtype in ((512, torch.float32), (768, torch.float32), (768, torch.bfloat16), (1024, torch.float32)):
        for scatters in (True, False):
            how = "as chosen" if scatters else "sums not scattered"
            yield f"LSTM training step, H {hidden}, {_name(dtype)}, {how}, us", gradient(hidden, dtype, scatters)
    yield from others()


def others() -> Items:
    """Blocks beside those that the model chooses, for more samples or larger weights: what it does not know of."""

    def tried(time: Callable[..., str], which: str, hidden: int, dtype: torch.dtype, samples: int, how: dict[str, Any]) -> str:
        blocks = replace(chosen(hidden, dtype, samples, which), **how)
        try:
            return time(blocks, hidden, dtype, samples)
        except Exception as error:  # noqa: BLE001  (as of more programs at once than there is room for)
            return f"refused: {failed(error)}"

    wide, all_at_once = (
        {"features": 32, "columns": 16, "stages": 3, "holds": 0, "slices": 1},
        {"holds": 1, "slices": 4, "stages": 1},
    )
    for hidden, dtype, samples, ways in (
        (256, torch.float32, 200, [{"warps": 8}]),
        (256, torch.bfloat16, 200, [{"warps": 8}, {"features": 16, "columns": 16, "depth": 256} | all_at_once]),
        (512, torch.float32, 128, [{**wide, "depth": depth} for depth in (32, 64, 128)]),
        (512, torch.bfloat16, 128, [{"warps": 8}, {"features": 16, "columns": 32, "depth": 512} | all_at_once]),
        (1536, torch.float32, 1, [{"features": f, "columns": 1536 // f, "depth": d} for f in (16, 32) for d in (32, 64)]),
        (1536, torch.bfloat16, 1, [{"features": f, "columns": 1536 // f, "depth": d} for f in (16, 32) for d in (32, 128)]),
    ):
        for k, how in enumerate([{}, *ways]):
            name = f"LSTM step, H {hidden}, {samples} samples, {_name(dtype)}, {f'way {k}' if how else 'as chosen'}, us"
            yield name, partial(tried, step_of, "inference", hidden, dtype, samples, how)
    held = {"rows": 32, "features": 16, "depth": 128, "columns": 32, "holds": 4, "slices": 4, "stages": 1, "scatters": False}
    for k, how in enumerate(({}, {**wide, "depth": 32}, held)):
        name = f"LSTM training step, H 512, 128 samples, float32, {f'way {k}' if how else 'as chosen'}, us"
        yield name, partial(tried, gradient_step_of, "backward", 512, torch.float32, 128, how)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


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
        systems["eager"] = anyrnn.torch.Recurrent(row.cell, row.features, row.hidden, backend="reference", **how)
    found: dict[str, Any] = {}
    blocks: dict[str, Callable[[], float]] = {}
    with _tf32(tf32):
        for name, module in systems.items():
            try:
                blocks[name] = blocks_of_calls(call_of(row, module.train(training), given, x))
            except Exception as error:  # noqa: BLE001, PERF203
                found[name] = failed(error)
        if ONCE:
            return found | dict.fromkeys(blocks, 0.0)
        rounds = [{name: block() for name, block in blocks.items()} for _ in range(ROUNDS)]
        found |= {name: statistics.median(one[name] for one in rounds) for name in blocks}
        if "triton" in blocks:
            call = call_of(row, systems["triton"], given, x)
            found["triton, by the device alone"] = by_the_device_alone(call, found["triton"])
    return found


def by_the_device_alone(call: Callable[[], object], usual: float) -> float:
    """Milliseconds of a call of `usual` ones where its Python takes none: the device waits until it has been given some."""
    count = max(1, min(10, round(20 / usual)))
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(round((2 * count * usual + 5) * CYCLES))
    begin.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count


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
