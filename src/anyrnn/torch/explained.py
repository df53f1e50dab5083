"""A call of a module that stops before its first step, for `explain`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters
from torch.autograd import forward_ad

from anyrnn.explanation import Seen, Stopped, told_of_packing
from anyrnn.sequence.network import check_counters
from anyrnn.sequence.packing import Packing
from anyrnn.torch import gpu
from anyrnn.torch.calls import CALLS, DTYPES, WIDE
from anyrnn.torch.repeated import Earlier

if TYPE_CHECKING:
    from anyrnn.torch.base import Mode, RecurrentBase


def seen(module: RecurrentBase, given: Sequence[Any], call: dict[str, Any]) -> Seen:
    """What a call is to its module. Nothing is drawn, nothing that the steps read is computed, and the module stays as it is.

    Raises: what the call raises before its first step.
    """
    twin = object.__new__(type(module))
    instead = {"_run": partial(_stop, module), "_sources": partial(_sources, module), "_earlier": Earlier()}
    twin.__dict__ = module.__dict__ | instead
    try:
        with torch.random.fork_rng(devices=[]):
            twin.forward(*given, **call)
    except Stopped as stopped:
        return stopped.seen
    weight = next(module.parameters(), torch.empty(0))
    return _seen(module, {}, weight, module.why_not_native)


def _sources(module: RecurrentBase, mode: Mode, seed: Tensor | None, input: Tensor) -> tuple[list[Tensor], bool]:
    """What the steps read where that is parameters, else tensors that are like it."""
    if mode.phase is None and all(name in module._parameters for name in mode.source_names):
        return module._sources(mode, seed, input)
    trains = any(p.requires_grad for p in module.parameters())
    like = module._weight(input)
    return [like.new_empty(shape).requires_grad_(trains) for shape in mode.source_shapes], False


def _stop(
    module: RecurrentBase,
    mode: Mode,
    inputs: Sequence[Tensor],
    first: Sequence[Tensor],
    sources: Sequence[Tensor],
    seed: Tensor | None,
    packing: Packing | None,
    plain_sources: bool,
    all_states: bool,
    ends: Any = None,
    *_: Any,
) -> None:
    """In the place of `_run`."""
    x, network = inputs[0], mode.with_all_states if all_states else mode.network
    if module.int8:
        module._check_int8(x, *inputs, *first, *sources)
    reason = module._why_interpreted(x)
    if reason is None:
        reason = _transform()
    else:
        module._check_fallback(reason, *inputs, *first, *sources)
    trains = torch.is_grad_enabled() and any(t.requires_grad for t in (*inputs, *first, *sources))
    programs = dict.fromkeys(("training", "backward") if trains else ("inference",), network)
    on_device = reason is None and module._on_triton(x)
    if not on_device:
        check_counters(network, str(x.dtype))
    calls = [CALLS[number] for number in module._numbers(mode, x, all_states, ends is not None and packing is None)]
    if packing is not None:
        told = told_of_packing(packing.total, packing.rows)
        seen = _seen(module, programs, x, reason, len(packing.counts), packing.rows, packing.counts, told)
        seen = replace(seen, roomy=tuple(programs) if all(call.has_room for call in calls) else ())
        raise Stopped(gpu.launched(seen, network, calls, x, packing) if on_device else seen)
    steps, rows = x.shape[:2]
    told = ""
    if mode is not module._mode:  # that of held states, whose last input marks the steps that are there
        told = f"states are held at {int((inputs[-1] == 0).sum())} of {steps * rows} steps, which are not there"
    seen = _seen(module, programs, x, reason, steps, rows, None, told)
    raise Stopped(gpu.launched(seen, network, calls, x, packing) if on_device else seen)


def _transform() -> str | None:
    """Why kernels cannot run now, if it is one of torch's transforms."""
    if any(i.key() in (TransformType.Vmap, TransformType.Jvp) for i in retrieve_all_functorch_interpreters()):
        return "vmap and forward mode have no kernels"
    return None if forward_ad._current_level < 0 else "forward mode has no kernels"


def _seen(
    module: RecurrentBase,
    programs: dict[str, Any],
    like: Tensor,
    reason: str | None,
    steps: int = 0,
    rows: int = 0,
    counts: tuple[int, ...] | None = None,
    batch: str = "",
) -> Seen:
    widened = reason is None and module._is_widened(like)
    dtype = WIDE if widened else like.dtype
    runs_here = reason is None and not module._on_triton(like)
    return Seen(
        layer=f"{module._label}({module.extra_repr()})",
        programs=programs,
        dtype=DTYPES.get(dtype, str(dtype)),
        products=CALLS[module._numbers(module._mode, like, False, False)[0]].made_of(dtype) if runs_here else "",
        widened=str(like.dtype) if widened else "",
        steps=steps,
        rows=rows,
        counts=counts,
        memory_budget=module.memory_budget if "training" in programs else None,
        why_not_native=reason,
        interpreter="the interpreter on torch",
        beside="second derivatives, forward mode and vmap",
        batch=batch,
    )
