"""The torch module for single steps of any cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from anyrnn.sequence.network import Network
from anyrnn.sequence.options import OPTIONS
from anyrnn.torch.module import Module
from anyrnn.trace import Cell

OF_STEPS = ("activations", "clip_state", "clip_preactivation", "clip_gradient", "cut_gradient", "skip_input", "zoneout")
"""The options of layers that say something of a single step."""


class RecurrentCell(Module):
    """One step of any cell, for loops of one's own.

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
        unfit = [name for name in options if name in OPTIONS and name not in OF_STEPS]
        if unfit:
            raise TypeError(
                f"{self._label}: {unfit[0]} is for sequences, and a cell takes single steps; anyrnn.torch.Recurrent has it"
            )
        super().__init__(cell, input_size, hidden_size, bias=bias, backend=backend, device=device, dtype=dtype, **options)

    def _named(self, network: Network, parameter: str, unit: tuple[int, int]) -> str:
        return parameter

    def forward(self, input: Tensor, hx: Tensor | tuple[Tensor, ...] | None = None, **steps: Tensor) -> Any:
        """One step.

        Args:
            input: [N, D], or [D] without a batch.
            hx: the state [N, H], or a tuple of them for a cell with several states, in the cell's order;
                by default the cell's own initial values, mostly zero. Without a batch, [H].
            steps: the cell's further inputs, by name, [N, size] or [size].

        Returns: the output [N, H], and the new state, formed as `hx`.

        Raises: ValueError, RuntimeError or TypeError, as torch.nn's modules do, when shapes or dtypes do not fit;
        UnsupportedError when an explicit backend cannot be had.
        """
        weight = self._weight(input)
        given = self._checked(input, weight)
        batched = input.dim() == 2
        x = self._tensors.time_major(given, batched, weight)
        first = self._first(hx, x, batched)
        inputs = [x]
        if steps or self._further_inputs:
            steps = {name: t.unsqueeze(0) if isinstance(t, Tensor) else t for name, t in steps.items()}
            further = self._tensors.further(steps, given, weight)
            inputs += [self._tensors.time_major(t, batched, weight) for t in further]
        sources, seed, plain_sources = self._checked_sources(input, weight)
        output, last = self._run(inputs, first, sources, seed, None, plain_sources, False, None)
        output, last = output.squeeze(0), [s.squeeze(0) for s in last]
        if input.dtype is not weight.dtype:  # under autocast
            output, last = output.to(input.dtype), [s.to(input.dtype) for s in last]
        if not batched:
            output, last = output.squeeze(0), [s.squeeze(0) for s in last]
        return output, last[0] if len(last) == 1 else tuple(last)

    def _checked(self, input: Tensor, weight: Tensor) -> Tensor:
        """The input as a sequence of one step."""
        if not isinstance(input, Tensor):
            raise TypeError(f"{self._label}: input should be a Tensor, got {type(input).__name__}")
        if input.dim() not in (1, 2):
            raise ValueError(f"{self._label}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        given = input.unsqueeze(0)
        self._tensors.check_input(given, weight)
        return given

    def _extent(self, input: Tensor, weight: Tensor) -> tuple[int, int, None]:
        self._checked(input, weight)
        return 1, input.size(0) if input.dim() == 2 else 1, None

    def _first(self, hx: Tensor | tuple[Tensor, ...] | None, x: Tensor, batched: bool) -> Sequence[Tensor]:
        """The states that a call begins with, checked, as those of sequences; nothing when they are the cell's own."""
        if hx is None:
            return ()
        given: Any = hx if isinstance(hx, (tuple, list)) else (hx,)
        for k, (state, size) in enumerate(zip(self.network.graph.states, self.network.state_sizes, strict=True)):
            tensor = given[k] if k < len(given) else None
            if not isinstance(tensor, Tensor):
                continue  # it is refused with the others below
            if tensor.dim() not in (1, 2):
                raise ValueError(f"{self._label}: Expected state {state.name} of hx to be 1D or 2D, got {tensor.dim()}D instead")
            expected = (x.size(1), size) if batched else (size,)
            if tensor.shape != expected:
                sides = f"expected {list(expected)} as the input is, got {list(tensor.shape)}"
                raise RuntimeError(f"{self._label}: state {state.name} of hx: {sides}")
        full = tuple(t.view(1, x.size(1), -1) if isinstance(t, Tensor) else t for t in given)
        return self._tensors.states(full if isinstance(hx, (tuple, list)) else full[0], x.size(1), x, True)
