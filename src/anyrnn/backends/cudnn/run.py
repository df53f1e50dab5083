"""Calls of cuDNN through torch's own operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from anyrnn.backends import tf32
from anyrnn.backends.cudnn.matching import PARAMETERS, Match, gradients, match, weights
from anyrnn.sequence.network import Network

MODES = {"RNN_RELU": 0, "RNN_TANH": 1, "LSTM": 2, "GRU": 3}
"""cuDNN's numbers."""
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
WRONG_UNEVEN = range(8100, 8901)
"""Versions that give wrong numbers where sequences end at different steps."""


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


def forward(
    network: Network, x: Tensor, first: Sequence[Tensor], sources: Sequence[Tensor], counts: Sequence[int] | None, trains: bool
) -> tuple[Tensor, list[Tensor], Tensor]:
    """The output [T, N, S * H], or [rows, S * H] of packed rows; the last states; what a backward call needs.

    Args:
        x: [T, N, D], or packed rows [rows, D] with the `counts` of each step.
        first: [units, N, H] for each state, all of them.
    """
    found = match(network)
    assert isinstance(found, Match)
    h, c = _states(found, network, [s.contiguous() for s in first])
    given = weights(found, network, sources)
    with tf32.as_in_products():
        output, h, c, kept, _ = torch._cudnn_rnn(
            x.contiguous(), given, len(PARAMETERS), None, h, c, *_arguments(found, network, counts, trains)
        )
    last = dict(zip(found.states, (h, c), strict=False))
    reserve = torch.cat([kept.view(torch.uint8), output.contiguous().view(-1).view(torch.uint8)]) if trains else kept
    return output, [last[name] for name in network.graph.state_names], reserve


def backward(
    network: Network,
    x: Tensor,
    first: Sequence[Tensor],
    sources: Sequence[Tensor],
    counts: Sequence[int] | None,
    reserve: Tensor,
    d_output: Tensor | None,
    d_last: Sequence[Tensor | None],
    wanted: Sequence[bool],
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Gradients of the input, the first states and the sources; `wanted` says for each of the three whether they are."""
    found = match(network)
    assert isinstance(found, Match)
    h, c = _states(found, network, [s.contiguous() for s in first])
    d_h, d_c = _states(found, network, d_last)
    given, buffer = _in_one_buffer(found, network, weights(found, network, sources))
    shape = (*x.shape[:-1], network.width)
    bytes = network.width * x.element_size() * (x.numel() // x.shape[-1])
    output = reserve[len(reserve) - bytes :].clone().view(x.dtype).view(shape)
    kept = reserve[: len(reserve) - bytes].clone()  # which cuDNN writes to
    d_output = x.new_zeros(shape) if d_output is None else d_output.contiguous()
    asked = [wanted[0], wanted[1], wanted[1] and c is not None, wanted[2]]
    with tf32.as_in_products():
        d_x, d_h, d_c, d_weights = torch.ops.aten._cudnn_rnn_backward(
            x.contiguous(), given, len(PARAMETERS), buffer, h, c, output, d_output,
            None if d_h is None else d_h.contiguous(), None if d_c is None else d_c.contiguous(),
            *_arguments(found, network, counts, True), kept, asked,
        )  # fmt: skip
    d_states = dict(zip(found.states, (d_h, d_c), strict=False))
    return (
        [d_x] if wanted[0] else [],
        [d_states[name] for name in network.graph.state_names] if wanted[1] else [],
        gradients(found, network, sources, d_weights) if wanted[2] else [],
    )


def _in_one_buffer(found: Match, network: Network, given: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """Copies of all weights in the memory that cuDNN wants them in, and that memory."""
    copies = [w.detach().clone() for w in given]
    features, hidden = given[0].shape[1], network.output_size
    of_network = (MODES[found.mode], hidden, 0, network.layers, False, network.bidirectional)
    with torch.no_grad():  # which makes the copies views
        return copies, torch._cudnn_rnn_flatten_weight(copies, len(PARAMETERS), features, *of_network)
