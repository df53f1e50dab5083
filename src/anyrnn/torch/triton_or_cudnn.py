"""Which of a device's backends runs a call: the generated kernels, or cuDNN where it computes the same and was measured to be
quicker. It is measured once for each kind of call, and kept on disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from anyrnn._cache import recalled, remembered
from anyrnn.backends import tf32
from anyrnn.backends.cudnn import run as cudnn
from anyrnn.backends.triton.device import milliseconds
from anyrnn.backends.triton.names import power_of_two
from anyrnn.sequence.packing import Packing
from anyrnn.torch.calls import Call, rows_of

KNOWN: dict[str, Choice] = {}
DECIDED: dict[object, bool] = {}
"""By all that a choice depends on, so that calls need not ask for it by its long name."""
MOST_DECIDED = 1024
SHORT, MANY = 2.0, 8
"""Milliseconds of a call that is measured with others like it, and how many they are."""
NAMES = {"triton": "generated kernels", "cudnn": "cuDNN"}


@dataclass(frozen=True)
class Choice:
    """Milliseconds of a call by each."""

    triton: float
    cudnn: float
    broken: str = ""
    """what could not be measured; it counts as the slower one"""

    @property
    def takes_cudnn(self) -> bool:
        return self.cudnn < self.triton

    def __str__(self) -> str:
        if self.broken:
            return self.broken
        return f"measured: {NAMES['triton']} {self.triton:.3g} ms, {NAMES['cudnn']} {self.cudnn:.3g} ms"


class BrokenError(Exception):
    """A choice between what could not all be measured."""

    def __init__(self, choice: Choice) -> None:
        super().__init__(choice.broken)
        self.choice = choice


def why_not_cudnn(call: Call, x: Tensor, packing: Packing | None) -> str | None:
    """Why cuDNN cannot run a call, or None."""
    if call.backend == "triton":
        return "backend='triton' was asked for"
    if call.budget is not None:
        return "cuDNN keeps everything for its backward pass, and there is a memory_budget"
    if call.ends:
        return "cuDNN gives the outputs of all steps"
    if not x.numel() or (packing is not None and not packing.rows):
        return "it refuses what has no samples, steps or features"
    return cudnn.why_not(call.network, x.dtype, x.device, packing is not None)


def kind_of(call: Call, x: Tensor, packing: Packing | None, trains: bool) -> str:
    """What makes calls alike: steps and samples count by powers of two, since time grows with them for either."""
    import triton

    network, steps = call.network, x.size(0) if packing is None else len(packing.counts)
    rows = rows_of(x, packing)
    sizes = network.sizes, network.layers, network.ways, power_of_two(steps), power_of_two(rows), packing is not None
    numbers = x.dtype, *tf32.settings(x.dtype), trains
    machine = torch.cuda.get_device_name(x.device), torch.__version__, triton.__version__, torch.backends.cudnn.version()
    return f"{network.graph.identity} {sizes} {numbers} {machine}"


def known(call: Call, x: Tensor, packing: Packing | None, trains: bool) -> Choice | None:
    """What was measured for such calls, in this process or an earlier one."""
    kind = kind_of(call, x, packing, trains)
    return KNOWN.get(kind) or recalled("choice", kind)


def takes_cudnn(
    call: Call, x: Tensor, packing: Packing | None, trains: bool, runs: Callable[[str], Callable[[], object]]
) -> bool:
    """Whether cuDNN runs a call. `runs` gives what makes such a call by `triton` or `cudnn` as later ones are made."""
    alike = _alike(call, x, packing, trains)
    decided = DECIDED.get(alike)
    if decided is None:
        decided = why_not_cudnn(call, x, packing) is None and _decided(kind_of(call, x, packing, trains), runs)
        if decided is None:
            return False
        while len(DECIDED) >= MOST_DECIDED:
            DECIDED.pop(list(DECIDED)[0], None)  # noqa: RUF015 (a list is made at once; an iterator minds other threads)
        DECIDED[alike] = decided
    return decided


def _alike(call: Call, x: Tensor, packing: Packing | None, trains: bool) -> object:
    """What tells calls apart that may be chosen for otherwise; of packed rows not which step has how many."""
    dense = None if packing is None else (len(packing.counts), packing.rows)
    settings = torch.backends.cudnn.enabled, torch.are_deterministic_algorithms_enabled(), *tf32.settings(x.dtype)
    return id(call), x.shape, x.dtype, x.device, dense, trains, settings


def decided(call: Call, x: Tensor, trains: bool) -> bool | None:
    """Whether cuDNN runs a call of samples that have all steps; None where no such call was made."""
    return DECIDED.get(_alike(call, x, None, trains))


def _decided(kind: str, runs: Callable[[str], Callable[[], object]]) -> bool | None:
    """Of a kind of call; None where nothing can be measured now."""
    if kind not in KNOWN:
        if torch.cuda.is_current_stream_capturing():
            return None
        try:
            KNOWN[kind] = remembered("choice", kind, partial(_measured, runs))
        except BrokenError as error:  # which may not be so in another process
            KNOWN[kind] = error.choice
    return KNOWN[kind].takes_cudnn


def _measured(runs: Callable[[str], Callable[[], object]]) -> Choice:
    """Raises: BrokenError."""
    found, broken = dict.fromkeys(NAMES, math.inf), ""
    for name, told in NAMES.items():
        try:
            found[name] = _of_many(runs(name))
        except Exception as error:  # noqa: BLE001, PERF203  (of whatever kind, as where there is no room to measure)
            broken = f"{told} could not be measured: {type(error).__name__}: {error}"
    choice = Choice(found["triton"], found["cudnn"], broken)
    if broken:
        raise BrokenError(choice)
    return choice


def _of_many(run: Callable[[], object]) -> float:
    """Milliseconds of a call between others like it: of short ones Python makes the next while a device makes this one."""
    once = milliseconds(run)

    def many() -> None:
        for _ in range(MANY):
            run()  # and lets go of what it gives, as most callers do before the next

    return once if once > SHORT else milliseconds(many) / MANY
