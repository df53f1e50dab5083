"""The torch module for single steps of any cell."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from anyrnn.sequence.layer import DEFAULTS, FIXED
from anyrnn.sequence.network import Network
from anyrnn.sequence.options import OPTIONS
from anyrnn.torch.arguments import is_like
from anyrnn.torch.base import RecurrentBase
from anyrnn.trace import Cell

OF_STEPS = ("activations", "clip_state", "clip_preactivation", "clip_gradient", "cut_gradient", "skip_input", "zoneout")
"""The options of layers that say something of a single step."""
OF_LAYERS = ("num_layers", "batch_first", "dropout", "bidirectional", "memory_budget")
"""The other arguments of layers, none of which does."""


class RecurrentCell(RecurrentBase):
    """One step of any cell, for loops of one's own. A loop that is known beforehand is faster as one call of `Recurrent`: each
    call of a cell looks whether its weights have changed, which for few samples takes longer than the step. In training the
    calls of a loop share them until the backward pass, which sums the weights' gradients for many steps at once.

    Args:
        cell: a cell, the name of a built-in one, or `my_file.py:my_cell`.
        input_size: features of the input, D.
        hidden_size: features of the hidden state, H.
        bias: as for `Recurrent`.
        backend: as for `Recurrent`.
        device, dtype: of the parameters.
        options: the cell's hyper-parameters and named sizes other than input and hidden, and those of `anyrnn.LayerOptions` that
            say something of a single step: activations, clip_state, clip_preactivation, clip_gradient, cut_gradient, skip_input,
            zoneout.

    Parameters are named and shaped as torch.nn's cells have them: `weight_ih` [gates * H, D], `weight_hh`, `bias_ih`, `bias_hh`;
    initial values as in `Recurrent`.

    Example:
        >>> import torch, anyrnn.torch
        >>> cell = anyrnn.torch.RecurrentCell("mgu", 3, 5)
        >>> output, h = cell(torch.zeros(2, 3))
        >>> output, h = cell(torch.zeros(2, 3), h)
        >>> output.shape, h.shape
        (torch.Size([2, 5]), torch.Size([2, 5]))
    """

    def __init__(
        self,
        cell: Cell | str,
        input_size: int,
        hidden_size: int,
        bias: bool | str = True,
        *,
        backend: str = "auto",
        device: Any = None,
        dtype: Any = None,
        **options: Any,
    ) -> None:
        unfit = [name for name in options if name in (*OPTIONS, *OF_LAYERS) and name not in OF_STEPS]
        if unfit:
            raise TypeError(
                f"{self._label}: {unfit[0]} is for sequences, and a cell takes single steps; anyrnn.torch.Recurrent has it"
            )
        super().__init__(cell, input_size, hidden_size, bias=bias, backend=backend, device=device, dtype=dtype, **options)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in OF_LAYERS and name not in FIXED and value != DEFAULTS[name]:
            raise AttributeError(f"{name} is for sequences, and a cell takes single steps; anyrnn.torch.Recurrent has it")
        super().__setattr__(name, value)

    def _named(self, network: Network, parameter: str, unit: tuple[int, int]) -> str:
        return parameter

    def forward(self, input: Tensor, hx: Tensor | tuple[Tensor, ...] | None = None, **steps: Tensor) -> Any:
        """One step.

        Args:
            input: [N, D], or [D] without a batch.
            hx: the state [N, H], or a tuple of them for a cell with several states, in the cell's order;
                by default the cell's own initial values, mostly zero. Without a batch, [H].
            steps: the cell's further inputs, by name, [N, size] or [size].

        Returns: the output [N, H], and the new state, a tensor or a tuple of several.

        Raises: ValueError, RuntimeError or TypeError, as torch.nn's modules do, when shapes or dtypes do not fit;
        UnsupportedError when an explicit backend cannot be had.
        """
        output, states = self._step(input, hx, steps)
        return output, states[0] if len(states) == 1 else tuple(states)

    def _step(
        self, input: Tensor, hx: Tensor | tuple[Tensor, ...] | None, steps: dict[str, Tensor]
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """The output and the new states."""
        if not (steps or is_compiling()):
            repeated = self._repeated(input, hx)
            if repeated is not None:
                return repeated
            if type(input) is Tensor and input.dim() == 1 and not input.is_nested:
                return self._of_batch(input, hx)
        given, weight = self._checked(input)
        batched = input.dim() == 2
        x = self._arguments.time_major(given, batched, weight)
        first = self._first(hx, x, batched)
        inputs = [x]
        if steps or self._further_inputs:
            further = self._arguments.further(steps, input, weight)
            inputs += [self._arguments.time_major(t.unsqueeze(0), batched, weight) for t in further]
        sources, seed, plain_sources = self._checked_sources(self._mode, input, weight)
        output, last = self._run(self._mode, inputs, first, sources, seed, None, plain_sources, False, None)
        if batched and not (steps or is_compiling()) and (hx is None or isinstance(hx, (tuple, Tensor))):
            as_given = () if hx is None else hx if isinstance(hx, tuple) else (hx,)
            self._earlier.note(self, self._mode, input, as_given, sources, of_step=True)
        dtype = input.dtype

        def shown(tensor: Tensor) -> Tensor:
            of_step = tensor if tensor.dim() == 2 else tensor.squeeze(0)
            of_step = of_step if batched else of_step.squeeze(0)
            return of_step if of_step.dtype is dtype else of_step.to(dtype)  # under autocast

        return shown(output), [shown(s) for s in last]

    def _of_batch(self, input: Tensor, hx: Tensor | tuple[Tensor, ...] | None) -> tuple[Tensor, Sequence[Tensor]]:
        """A step without a batch, as that of one sample, as which it is remembered."""
        given, states = input.unsqueeze(0), hx if isinstance(hx, tuple) else () if hx is None else (hx,)
        found = None
        if all(type(state) is Tensor and state.dim() == 1 for state in states):
            found = self._repeated(given, tuple([state.unsqueeze(0) for state in states]) or None)
        if found is None:
            given, weight = self._checked(input)
            first = tuple([state[0] for state in self._first(hx, self._arguments.time_major(given, False, weight), False)])
            found = self._step(given, first or None, {})
        output, last = found
        return output.squeeze(0), [state.squeeze(0) for state in last]

    def _is_step(self, *tensors: Tensor) -> bool:
        """With a gradient, as in calls that are remembered: else a checkpoint whose call goes the one way and then the other
        would find other shapes.
        """
        trains = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        return trains and not is_compiling() and self._kernels_run(tensors[0])

    def _checked(self, input: Tensor) -> tuple[Tensor, Tensor]:
        """The input as a sequence of one step, and a parameter."""
        if not isinstance(input, Tensor):
            raise TypeError(f"{self._label}: input should be a Tensor, got {type(input).__name__}")
        if input.is_nested:
            raise self._arguments.bad_layout(input, "input")
        if input.dim() not in (1, 2):
            raise ValueError(f"{self._label}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        given, weight = input.unsqueeze(0), self._weight(input)
        self._arguments.check_input(given, weight)
        return given, weight

    def _first(self, hx: Tensor | tuple[Tensor, ...] | None, x: Tensor, batched: bool) -> Sequence[Tensor]:
        """The states that a call begins with, checked, as those of sequences; nothing when they are the cell's own."""
        if hx is None:
            return ()
        listed = isinstance(hx, (tuple, list))
        if not listed and not isinstance(hx, Tensor):
            kind = f"{type(hx).__module__}.{type(hx).__qualname__}"
            raise TypeError(f"{self._label}: hx should be a Tensor or a tuple of them, got {kind}")
        given: Any = hx if listed else (hx,)
        rows, sizes = x.size(1), self.network.state_sizes
        if batched and len(given) == len(sizes) and all(map(partial(is_like, x), given, [(rows, size) for size in sizes])):
            return [tensor.unsqueeze(0) for tensor in given]  # as nearly always
        found = []
        for state, size, tensor in zip(self.network.graph.states, sizes, given, strict=False):
            if isinstance(tensor, Tensor) and tensor.layout is torch.strided and not tensor.is_nested:  # others are refused below
                self._check_state(state.name, tensor, (rows, size) if batched else (size,))
                tensor = tensor.unsqueeze(0) if batched else tensor.view(1, 1, size)
            found.append(tensor)
        found += given[len(found) :]
        return self._arguments.states(tuple(found) if listed else found[0], rows, x, True)

    def _check_state(self, name: str, tensor: Tensor, expected: tuple[int, ...]) -> None:
        if tensor.dim() not in (1, 2):
            raise ValueError(f"{self._label}: Expected state {name} of hx to be 1D or 2D, got {tensor.dim()}D instead")
        if tensor.shape != expected:
            sides = f"expected {list(expected)} as the input is, got {list(tensor.shape)}"
            raise RuntimeError(f"{self._label}: state {name} of hx: {sides}")
