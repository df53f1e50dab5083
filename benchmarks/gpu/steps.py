"""What a step of generated kernels takes, in the blocks that the model chooses and in others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch

import anyrnn.torch
from anyrnn.backends.triton import choosing, launch, split, tape
from anyrnn.backends.triton.device import device_of
from anyrnn.backends.triton.split import Blocks
from anyrnn.sequence.network import Network
from benchmarks.gpu.items import Items, failed, is_the_devices
from benchmarks.gpu.speeds import DEVICE, milliseconds

SAMPLES = 16
STEPS = 200, 1200
"""Of two calls, of which the difference counts: so many that launching takes less time than they."""


def step_of(blocks: Blocks, hidden: int, dtype: torch.dtype, samples: int = SAMPLES, precision: str = "") -> str:
    """A step of an LSTM's kernel. `precision`: of products of another kind than torch's setting says."""
    module = anyrnn.torch.LSTM(16, hidden, device=DEVICE, dtype=dtype, backend="triton").eval()
    of_products = patch.object(choosing, "precision_of", return_value=precision) if precision else nullcontext()
    with torch.no_grad(), patch.object(choosing, "blocks_of", return_value=blocks), of_products:
        return _told(_of_each_step(module, dtype, samples), blocks)


def gradient_step_of(blocks: Blocks, hidden: int, dtype: torch.dtype, samples: int = SAMPLES) -> str:
    """What a step adds to a training call, gradients of weights included. `blocks`: of the gradient's kernel."""
    module, usual = anyrnn.torch.LSTM(16, hidden, device=DEVICE, dtype=dtype, backend="triton"), choosing.blocks_of

    def blocks_of(network: Network, which: str, *of: Any) -> Blocks:
        return blocks if which == "backward" else usual(network, which, *of)

    with patch.object(choosing, "blocks_of", blocks_of):
        return _told(_of_each_step(lambda x: module(x)[0].sum().backward(), dtype, samples), blocks)


def _of_each_step(call: Callable[[torch.Tensor], object], dtype: torch.dtype, samples: int) -> float:
    """Microseconds."""
    found = []
    tape.forget()  # calls made before something was patched
    try:
        for steps in STEPS:
            x = torch.randn(steps, samples, 16, device=DEVICE, dtype=dtype)
            found.append(milliseconds(partial(call, x)))
    finally:
        tape.forget()
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
        except Exception as error:  # (as of more programs at once than there is room for)
            if is_the_devices(error):
                raise
            return f"refused: {failed(error)}"

    wide = {"features": 32, "columns": 16, "stages": 3, "holds": 0, "slices": 1}
    sliced, flat = {"slices": 4, "warps": 4}, {"slices": 1, "warps": 8}
    for hidden, dtype, samples, ways in (
        (256, torch.float32, 200, [{"warps": 8}]),
        (256, torch.bfloat16, 200, [sliced, {"slices": 1, "warps": 4}, {"features": 16, "columns": 16, **sliced}]),
        (512, torch.float32, 128, [{**wide, "depth": depth} for depth in (32, 128)]),
        (512, torch.bfloat16, 64, [sliced]),
        (512, torch.bfloat16, 128, [sliced, {"features": 16, "columns": 32, **sliced}]),
        (512, torch.bfloat16, 16, [{"features": 16, "columns": 32, **flat}]),
        (1536, torch.float32, 1, [{"features": f, "columns": 1536 // f, "depth": 32} for f in (16, 32)]),
        (1536, torch.bfloat16, 1, [{"features": f, "columns": 1536 // f, "depth": d} for f, d in ((16, 32), (32, 128))]),
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
