"""Calls on a device that are like one that was made before: with the interface of those in `kernels`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anyrnn.backends import tf32
from anyrnn.backends.cudnn.run import is_kept_for_another
from anyrnn.backends.triton.tape import known
from anyrnn.backends.triton.tape_writing import Tape
from anyrnn.torch import gpu, triton_or_cudnn
from anyrnn.torch.calls import CALLS, Call, Tensors
from anyrnn.torch.memory import readable


def settings(x: Tensor) -> tuple[object, ...]:
    """Of torch's, what a call on the device of `x` depends on. (Asked by the names behind the public ones, as in each call.)"""
    return is_usual(x), torch._C._get_cudnn_enabled(), torch._C._get_deterministic_algorithms(), *tf32.settings(x.dtype)


def settings_of_backward(x: Tensor, reserve: Tensor) -> tuple[object, ...]:
    """The same of a backward call: cuDNN writes to its reserve where there is no other pass."""
    of_cudnn = reserve.dtype is gpu.OF_CUDNN
    return of_cudnn, of_cudnn and is_kept_for_another(), *settings(x)


def is_usual(x: Tensor) -> bool:
    """Whether tapes can run as they are: nothing converts what they do or captures it, and the current device is theirs."""
    if not x.is_cuda:
        return not torch.is_autocast_enabled("cpu")
    if torch.is_autocast_enabled("cuda") or torch._C._cuda_isCurrentStreamCapturing():
        return False
    here: bool = torch._C._cuda_getDevice() == x.get_device()
    return here


def odd(tensors: Sequence[Tensor]) -> list[int]:
    """How far their addresses are from those that kernels may take several numbers at once from."""
    return [t.data_ptr() & 15 for t in tensors]


@dataclass(frozen=True)
class Repeat:
    """Forward calls like one that was made, of one input and contiguous sources."""

    number: int
    call: Call
    tape: Tape
    on_cudnn: bool
    trains: bool
    reserve_bytes: int
    settings: tuple[object, ...]
    odd: list[int]

    def infer(self, x: Tensor, first: Tensors, sources: Tensors, frozen: int) -> tuple[Tensor, list[Tensor]]:
        """The output and the last states, without a gradient."""
        output, last, _ = self._run(x, first, sources)
        return output, last

    def train(self, x: Tensor, first: Tensors, sources: Tensors) -> tuple[Tensor, list[Tensor], Tensor]:
        """The same, and the reserve."""
        output, last, reserve = self._run(x, first, sources)
        assert reserve is not None
        return output, last, reserve

    def _run(self, x: Tensor, first: Tensors, sources: Tensors) -> tuple[Tensor, list[Tensor], Tensor | None]:
        given = [x, *first, *sources, *(gpu.one_buffer(self.call, sources) if self.on_cudnn else ())]
        if self.settings != settings(x) or self.odd != odd(given):
            return gpu.run_forward([x], first, sources, None, None, self.number, self.trains)
        found: tuple[Tensor, list[Tensor], Tensor | None]
        if self.on_cudnn:
            with tf32.AsInProducts(x.dtype):
                found = self.tape.call(*given)
        else:
            kept = [gpu.new_reserve(self.reserve_bytes, x.device)] if self.trains else []
            found = self.tape.call(*given, *kept)
        return found


def repeat(number: int, trains: bool, x: Tensor, first: Tensors, sources: Tensors) -> Repeat | None:
    """What repeats a call on an input that is like `x`, first states and sources; None where there is no tape of such a call."""
    call = CALLS[number]
    on_cudnn = triton_or_cudnn.decided(call, x, trains)
    if on_cudnn is None or not is_usual(x) or call.more_sizes or any(readable(t) is not t for t in (x, *first)):
        return None
    extent = gpu.extent_of(x, None)
    bytes = gpu.kept_bytes(call, x.dtype, extent.steps, extent.total, extent.rows) if trains and not on_cudnn else 0
    if on_cudnn:
        more = gpu.one_buffer(call, sources)
        key = gpu.on_cudnn(call, first, more, trains)
    else:
        more = [gpu.new_reserve(bytes, x.device)] if trains else []
        key = gpu.on_triton(call, first, more)
    tape = known(key, [x, *first, *sources, *more])
    given = [x, *first, *sources, *(more if on_cudnn else ())]
    return None if tape is None else Repeat(number, call, tape, on_cudnn, trains, bytes, settings(x), odd(given))


@dataclass(frozen=True)
class RepeatBackward:
    """Backward calls like one that was made, of one input and contiguous sources."""

    number: int
    call: Call
    tape: Tape
    on_cudnn: bool
    there: list[bool]
    """which of the cotangents of the output and the last states there are"""
    wanted: Sequence[bool]
    settings: tuple[object, ...]
    odd: list[int]

    def run(
        self, x: Tensor, first: Tensors, sources: Tensors, reserve: Tensor, cotangents: Tensors
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Gradients of the input, the first states and the sources; `cotangents` are those that are there."""
        given = _given(self.call, self.on_cudnn, x, first, sources, reserve, cotangents)
        if self.settings != settings_of_backward(x, reserve) or self.odd != odd(given):
            of_results = iter(cotangents)
            d_output, *d_last = [next(of_results) if one else None for one in self.there]
            rest = reserve, d_output, d_last, self.number, self.wanted
            return gpu.run_backward([x], first, sources, None, None, *rest)
        found: tuple[list[Tensor], list[Tensor], list[Tensor]]
        if self.on_cudnn:
            with tf32.AsInProducts(x.dtype):
                found = self.tape.call(*given)
        else:
            with gpu.untracked():
                found = self.tape.call(*given)
        return found


def _given(
    call: Call, on_cudnn: bool, x: Tensor, first: Tensors, sources: Tensors, reserve: Tensor, cotangents: Tensors
) -> list[Tensor]:
    """To the tape of a backward call."""
    if on_cudnn:
        return [x, reserve, *first, *sources, *gpu.one_buffer(call, sources), *cotangents]
    return [x, *sources, reserve, *map(readable, cotangents)]


def repeat_backward(
    number: int,
    x: Tensor,
    first: Tensors,
    sources: Tensors,
    reserve: Tensor,
    cotangents: Sequence[Tensor | None],
    wanted: Sequence[bool],
) -> RepeatBackward | None:
    """What repeats a backward call; None where there is no tape of such a call. `cotangents` are the output's and the last
    states'.
    """
    call, present = CALLS[number], [d for d in cotangents if d is not None]
    there, on_cudnn = [d is not None for d in cotangents], reserve.dtype is gpu.OF_CUDNN
    if call.budget is not None or not is_usual(x) or readable(x) is not x:
        return None
    if on_cudnn:
        key = gpu.backward_on_cudnn(call, first, gpu.one_buffer(call, sources), there, wanted)
    else:
        key = gpu.backward_on_triton(call, there, wanted)
    given = _given(call, on_cudnn, x, first, sources, reserve, present)
    tape = known(key, given)
    if tape is None:
        return None
    return RepeatBackward(number, call, tape, on_cudnn, there, wanted, settings_of_backward(x, reserve), odd(given))
