"""What a module is called with: checked, and seen as sequences [T, N, features] and states [units, N, size]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyrnn.errors import UnsupportedError
from anyrnn.sequence.network import Network
from anyrnn.torch.state import RecurrentState
from anyrnn.trace.signature import no_such_input

States = Tensor | tuple[Tensor, ...] | RecurrentState
STRIDED = torch.strided
OF_AUTOCAST = (torch.float32, torch.bfloat16, torch.float16)
"""The dtypes between which autocast converts."""


def is_autocast(like: Tensor) -> bool:
    """Whether autocast is enabled on a tensor's device; some devices have none."""
    device = like.device.type
    has = device in ("cpu", "cuda") or torch.amp.is_autocast_available(device)  # a question that older compilers do not take in
    return has and torch.is_autocast_enabled(device)


def is_cast(tensor: Tensor) -> bool:
    """Whether autocast converts it."""
    return tensor.dtype in OF_AUTOCAST and is_autocast(tensor)


def is_like(example: Tensor, tensor: Any, shape: tuple[int, ...]) -> bool:
    """Whether something is a usual tensor of a shape, of an example's dtype and on its device."""
    return (
        isinstance(tensor, Tensor)
        and tensor.dtype is example.dtype
        and tensor.layout is STRIDED
        and not tensor.is_nested
        and tensor.shape == shape
        and tensor.device == example.device
    )


@dataclass(frozen=True)
class Arguments:
    """Checks what calls are given, and sees it as the kernels do: of one network and layout. `label` is the module's class, which
    messages begin with.
    """

    network: Network
    input_size: int
    batch_first: bool
    label: str

    def no_tensor(self, input: Any) -> Exception:
        """What to raise for an input of another type."""
        hint = ""
        if isinstance(input, np.ndarray):
            hint = "; torch.from_numpy makes one of it, and `anyrnn.Recurrent` are layers on arrays"
        if isinstance(input, torch.fx.Proxy):
            hint = "; torch.fx should not trace into it: give it a Tracer whose is_leaf_module is true of anyrnn's modules"
        return TypeError(f"{self.label}: input should be a Tensor or a PackedSequence, got {type(input).__name__}{hint}")

    def bad_layout(self, tensor: Tensor, who: str) -> Exception:
        """What to raise for a tensor that does not hold all of its numbers at even distances."""
        if tensor.is_nested:
            pad = "torch.nested.to_padded_tensor(input, 0.0)"
            return UnsupportedError(f"{self.label}: {who} is a nested tensor, which is not supported; pad the batch ({pad})")
        sides = f"has layout {tensor.layout}, which is not supported; convert it with .to_dense()"
        return UnsupportedError(f"{self.label}: {who} {sides}")

    def check_input(self, input: Tensor, weight: Tensor) -> bool:
        """Refuse what does not fit; say whether there is a batch."""
        if input.layout is not STRIDED or input.is_nested:
            raise self.bad_layout(input, "input")
        shape = input.shape
        batched = len(shape) == 3
        if not batched and len(shape) != 2:
            raise ValueError(f"{self.label}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        self._check_features(input, weight)
        if shape[1 if self.batch_first and batched else 0] == 0:
            raise RuntimeError(
                f"{self.label}: Expected sequence length to be larger than 0 in RNN, got input of shape {list(shape)}"
            )
        return batched

    def check_rows(self, input: Tensor, weight: Tensor, kind: str) -> None:
        """Refuse what does not fit of sequences whose rows stand in one [rows, D] tensor."""
        if input.layout is not STRIDED or input.is_nested:
            raise self.bad_layout(input, "input")
        if input.dim() != 2:
            raise ValueError(
                f"{self.label}: Expected input {kind} to be 2D [rows, {self.input_size}], got {input.dim()}D instead"
            )
        self._check_features(input, weight)

    def _check_features(self, input: Tensor, weight: Tensor) -> None:
        if input.dtype != weight.dtype and not is_cast(input):
            other = f", or convert model: model.to({input.dtype})" if input.is_floating_point() else ""
            raise ValueError(
                f"{self.label} input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}){other}"
            )
        if not (input.is_cpu and weight.is_cpu) and input.device != weight.device:
            raise RuntimeError(
                f"{self.label}: input is on {input.device}, but the weights are on {weight.device}; move one of them with .to()"
            )
        if input.shape[-1] != self.input_size:
            sides = f"Expected {self.input_size}, got {input.shape[-1]}"
            raise RuntimeError(f"{self.label}: input.size(-1) must be equal to input_size. {sides}")

    def time_major(self, input: Tensor, batched: bool, weight: Tensor) -> Tensor:
        """[T, N, features], of the weights' dtype."""
        if input.dtype != weight.dtype:  # under autocast
            input = input.to(weight.dtype)
        if not batched:
            return input.unsqueeze(1)
        return input.transpose(0, 1) if self.batch_first else input

    def further(self, steps: dict[str, Tensor], input: Tensor, weight: Tensor) -> list[Tensor]:
        """The cell's further per-step inputs, checked, in the layout of the input."""
        self.check_names(steps)
        sizes = dict(self.network.further_inputs)
        for name, size in sizes.items():
            self._check_further(steps[name], name, (*input.shape[:-1], size), weight)
        return [steps[name] for name in sizes]

    def check_names(self, steps: Mapping[str, Any]) -> None:
        """That per-step inputs are those of the cell. Raises: TypeError."""
        names, who = dict(self.network.further_inputs), f"{self.label}: the cell {self.network.graph.name!r}"
        unknown = steps.keys() - names.keys()
        if unknown:
            raise no_such_input(who, unknown, [*names], "hx")
        missing = [name for name in names if steps.get(name) is None]
        if missing:
            raise TypeError(f"{who} needs the per-step input {missing[0]} as keyword argument")

    def _check_further(self, tensor: Any, name: str, expected: tuple[int, ...], weight: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{self.label}: {name} should be a Tensor, got {type(tensor).__name__}")
        if tensor.layout is not STRIDED or tensor.is_nested:
            raise self.bad_layout(tensor, name)
        if tensor.shape != expected:
            raise RuntimeError(f"{self.label}: expected {name} to have shape {expected}, got {list(tensor.shape)}")
        if tensor.device != weight.device:
            raise RuntimeError(f"{self.label}: {name} is on {tensor.device}, but the weights are on {weight.device}")
        if tensor.dtype != weight.dtype and not is_cast(tensor):
            fix = f"{name}.to({weight.dtype}) makes it so"
            raise ValueError(f"{self.label}: {name} is {tensor.dtype}, but the weights are {weight.dtype}; {fix}")

    def states(self, hx: States | None, rows: int, x: Tensor, batched: bool) -> Sequence[Tensor]:
        """The initial states [units, N, size], checked; nothing when they are the cell's own. `rows`: N."""
        if hx is None:
            return ()
        if isinstance(hx, RecurrentState):
            hx = hx.given_to(self.network.graph.state_names, f"{self.label}: hx")
        states, listed = self.network.graph.states, isinstance(hx, (tuple, list))
        if not listed and not isinstance(hx, Tensor):
            expected = "a Tensor, a tuple of them or an anyrnn.torch.RecurrentState"
            raise TypeError(f"{self.label}: hx should be {expected}, got {type(hx).__module__}.{type(hx).__qualname__}")
        given: Any = hx if listed else (hx,)
        if len(given) != len(states) or (not listed and len(states) > 1):
            names = ", ".join(s.name for s in states)
            form = "1 initial state" if len(states) == 1 else f"a tuple of {len(states)} initial states"
            came = f"{len(given)} state{'s' * (len(given) != 1)}" if listed else "one tensor"
            raise RuntimeError(f"{self.label}: expected hx to be {form} ({names}), got {came}")
        units, dtype, device = len(self.network.units), x.dtype, x.device
        dimensions, result = 3 if batched else 2, []
        for state, size, tensor in zip(states, self.network.state_sizes, given, strict=True):
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{self.label}: hx: state {state.name} should be a Tensor, got {type(tensor).__name__}")
            if tensor.layout is not STRIDED or tensor.is_nested:
                raise self.bad_layout(tensor, f"state {state.name} of hx")
            if tensor.dim() != dimensions:
                kind = "batched" if batched else "unbatched"
                sides = f"For {kind} {dimensions}-D input, hx should also be {dimensions}-D but got {tensor.dim()}-D tensor"
                raise RuntimeError(f"{self.label}: {sides} (state {state.name})")
            full = tensor if batched else tensor.unsqueeze(1)
            if full.shape != (units, rows, size):
                shape = (units, rows, size) if batched else (units, size)
                sides = f"Expected hidden size {shape} for state {state.name} of hx, got {list(tensor.shape)}"
                raise RuntimeError(f"{self.label}: {sides}")
            if tensor.dtype != dtype or tensor.device != device:
                if tensor.device != device or not is_cast(tensor):
                    sides = f"is {tensor.dtype} on {tensor.device}, but the input is {dtype} on {device}"
                    raise RuntimeError(f"{self.label}: state {state.name} of hx {sides}; convert it with .to()")
                full = full.to(dtype)
            result.append(full)
        return result
