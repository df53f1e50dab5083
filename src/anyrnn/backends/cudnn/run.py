"""Calls of cuDNN through torch's own operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from anyrnn.backends.cudnn.matching import PARAMETERS, Match, gradients, match, order_of, weights
from anyrnn.backends.quick import reinterpreted
from anyrnn.sequence.network import Network

MODES = {"RNN_RELU": 0, "RNN_TANH": 1, "LSTM": 2, "GRU": 3}
"""cuDNN's numbers."""
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
WRONG_UNEVEN = range(8100, 8901)
"""Versions that give wrong numbers where sequences end at different steps."""


RESERVE_BEGIN = 512
"""Bytes, of which cuDNN's part of a reserve begins at a multiple, as torch's memory does: it wants some."""
keeps_graph: Callable[[], bool] = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


def is_kept_for_another() -> bool:
    """Whether there may be another backward pass over what autograd passes over now, also by a CUDA graph that captures this
    one; True where it passes over nothing.
    """
    return keeps_graph() or torch.cuda.is_current_stream_capturing()


def why_not(network: Network, dtype: torch.dtype, device: torch.device, uneven: bool) -> str | None:
    """Why cuDNN cannot run a network, or None."""
    found = match(network)
    if isinstance(found, str):
        return found
    if device.type != "cuda":
        return f"device {device} has no cuDNN"
    if not torch.backends.cudnn.is_available() or not torch.backends.cudnn.enabled:
        return "torch.backends.cudnn is not available, or not enabled"
    if torch.are_deterministic_algorithms_enabled():
        return "it does not promise the same bits twice, which torch.use_deterministic_algorithms(True) asks for"
    version = torch.backends.cudnn.version()
    if uneven and version in WRONG_UNEVEN:
        return f"cuDNN {version} gives wrong numbers where sequences end at different steps"
    return None if dtype in DTYPES else f"dtype {dtype} has no cuDNN"


def _arguments(found: Match, network: Network, counts: Sequence[int] | None, trains: bool) -> tuple[Any, ...]:
    """From the mode to the state of dropout."""
    of_network = (MODES[found.mode], network.output_size, 0, network.layers, False, 0.0, trains, network.bidirectional)
    return (*of_network, list(counts or ()), None)


def _states(found: Match, network: Network, states: Sequence[Any]) -> tuple[Any, Any]:
    """In cuDNN's order; the second None where there is one."""
    by_name = dict(zip(network.graph.state_names, states, strict=True))
    first, *second = (by_name[name] for name in found.states)
    return first, second[0] if second else None


@lru_cache(maxsize=64)
def _places(network: Network, dtype: torch.dtype, device: torch.device) -> tuple[tuple[int, ...], int]:
    """Where each weight begins in the memory that cuDNN wants all of them in, and how large that is, in numbers."""
    found = match(network)
    assert isinstance(found, Match)
    shapes = [shape for layer, _ in network.units for shape in network.source_shapes(layer)]
    made = weights(found, network, [torch.empty(shape, dtype=dtype, device=device) for shape in shapes])
    copies = [w.clone() for w in made]
    buffer = _flatten(found, network, copies)
    return tuple((w.data_ptr() - buffer.data_ptr()) // buffer.element_size() for w in copies), buffer.numel()


def _flatten(found: Match, network: Network, given: list[Tensor]) -> Tensor:
    """Make weights views of one memory, as cuDNN wants it."""
    of_network = (MODES[found.mode], network.output_size, 0, network.layers, False, network.bidirectional)
    with torch.no_grad():
        return torch._cudnn_rnn_flatten_weight(given, len(PARAMETERS), given[0].shape[1], *of_network)


def put_in_one_buffer(network: Network, sources: Sequence[Tensor]) -> None:
    """Let sources that are cuDNN's weights stand as it wants them, as `flatten_parameters` of torch's modules does."""
    first, order = sources[0], None
    if why_not(network, first.dtype, first.device, uneven=False) is None:
        order = order_of(network)
    apart = len({s.data_ptr() for s in sources}) == len(sources) and all(map(Tensor.is_contiguous, sources))
    alike = all(s.dtype is first.dtype and s.device == first.device for s in sources)
    if order is not None and apart and alike and one_buffer(network, sources) is None:
        found = match(network)
        assert isinstance(found, Match)
        with torch.cuda.device_of(first):
            _flatten(found, network, [sources[k] for k in order])


@dataclass(frozen=True)
class Standing:
    """How sources stand in the memory that cuDNN has all weights in."""

    order: tuple[int, ...]
    """which source each of its weights is"""
    places: tuple[int, ...]
    """of bytes, behind the first weight"""
    before: int
    """numbers before the first weight"""
    total: int
    """numbers of the memory"""

    def buffer(self, sources: Sequence[Tensor]) -> Tensor | None:
        """That memory; None where they do not stand so."""
        first = sources[self.order[0]]
        address = first.data_ptr()
        for k, place in zip(self.order, self.places, strict=True):
            if sources[k].data_ptr() != address + place:
                return None
        begin, there = first.storage_offset() - self.before, first.untyped_storage().nbytes()
        if begin < 0 or (begin + self.total) * first.element_size() > there:
            return None
        return reinterpreted(first, (self.total,), (1,), -self.before)


@lru_cache(maxsize=64)
def standing(network: Network, dtype: torch.dtype, device: torch.device) -> Standing | None:
    """None where cuDNN's weights are not the sources themselves."""
    order = order_of(network)
    if order is None:
        return None
    places, total = _places(network, dtype, device)
    return Standing(order, tuple((place - places[0]) * dtype.itemsize for place in places), places[0], total)


def one_buffer(network: Network, sources: Sequence[Tensor]) -> Tensor | None:
    """The memory that sources stand in as cuDNN wants them; None where they do not."""
    found = standing(network, sources[0].dtype, sources[0].device)
    return None if found is None else found.buffer(sources)


def _given(found: Match, network: Network, sources: Sequence[Tensor], buffer: Tensor | None) -> tuple[list[Tensor], Tensor]:
    """All weights, and the memory that they stand in: copies where there is none."""
    if buffer is not None:
        order = order_of(network)
        assert order is not None
        return [sources[k] for k in order], buffer
    made = weights(found, network, sources)
    places, total = _places(network, made[0].dtype, made[0].device)
    buffer = made[0].new_zeros(total)
    views = [buffer[place : place + w.numel()].view(w.shape) for place, w in zip(places, made, strict=True)]
    for view, w in zip(views, made, strict=True):
        view.copy_(w)
    return views, buffer


def forward(
    network: Network,
    x: Tensor,
    first: Sequence[Tensor],
    sources: Sequence[Tensor],
    buffer: Tensor | None,
    counts: Sequence[int] | None,
    trains: bool,
) -> tuple[Tensor, list[Tensor], Tensor]:
    """The output [T, N, S * H], or [rows, S * H] of packed rows; the last states; what a backward call needs.

    Args:
        x: [T, N, D], or packed rows [rows, D] with the `counts` of each step.
        first: [units, N, H] for each state, all of them.
        buffer: of `one_buffer`.
    """
    found = match(network)
    assert isinstance(found, Match)
    h, c = _states(found, network, [s.contiguous() for s in first])
    given, buffer = _given(found, network, sources, buffer)
    output, h, c, kept, _ = torch._cudnn_rnn(
        x.contiguous(), given, len(PARAMETERS), buffer, h, c, *_arguments(found, network, counts, trains)
    )
    last = dict(zip(found.states, (h, c), strict=False))
    reserve = _with_output(output.contiguous().view(-1).view(torch.uint8), kept.view(torch.uint8)) if trains else kept
    return output, [last[name] for name in network.graph.state_names], reserve


def _with_output(output: Tensor, kept: Tensor) -> Tensor:
    """What a backward call needs, in one piece: bytes of the output, and from `_begin` on those that cuDNN keeps."""
    between = _begin(output.numel()) - output.numel()
    return torch.cat([output, output.new_empty(between), kept] if between else [output, kept])


def _begin(output_bytes: int) -> int:
    return -(-output_bytes // RESERVE_BEGIN) * RESERVE_BEGIN


def backward(
    network: Network,
    x: Tensor,
    first: Sequence[Tensor],
    sources: Sequence[Tensor],
    buffer: Tensor | None,
    counts: Sequence[int] | None,
    reserve: Tensor,
    d_output: Tensor | None,
    d_last: Sequence[Tensor | None],
    wanted: Sequence[bool],
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Gradients of the input, the first states and the sources; `wanted` says for each of the three whether they are."""
    found, order = match(network), order_of(network)
    assert isinstance(found, Match)
    h, c = _states(found, network, [s.contiguous() for s in first])
    d_h, d_c = _states(found, network, d_last)
    given, buffer = _given(found, network, sources, buffer)
    shape = (*x.shape[:-1], network.width)
    bytes = network.width * x.element_size() * (x.numel() // x.shape[-1])
    output = reserve[:bytes].view(x.dtype).view(shape)
    kept = reserve[_begin(bytes) :]
    if is_kept_for_another():
        kept = kept.clone()  # as cuDNN writes to it
    d_output = x.new_zeros(shape) if d_output is None else d_output.contiguous()
    asked = [wanted[0], wanted[1], wanted[1] and c is not None, wanted[2]]
    d_x, d_h, d_c, d_weights = torch.ops.aten._cudnn_rnn_backward(
        x.contiguous(), given, len(PARAMETERS), buffer, h, c, output, d_output,
        None if d_h is None else d_h.contiguous(), None if d_c is None else d_c.contiguous(),
        *_arguments(found, network, counts, True), kept, asked,
    )  # fmt: skip
    d_states = dict(zip(found.states, (d_h, d_c), strict=False))
    d_sources = list[Tensor]()
    if wanted[2] and order is not None:
        d_sources = [d_weights[order.index(k)] for k in range(len(order))]
    elif wanted[2]:
        d_sources = gradients(found, network, sources, d_weights)
    return (
        [d_x] if wanted[0] else [],
        [d_states[name] for name in network.graph.state_names] if wanted[1] else [],
        d_sources,
    )
