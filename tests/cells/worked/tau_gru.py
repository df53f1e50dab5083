"""The gated unit with a candidate of the state some steps ago."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cells.worked import Array, sigmoid, stacks, worked


def as_theirs(cell: Any, x: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
    """Their cell is given the state of some steps ago; their layer keeps those between."""
    return cell(x, states[0], states[-1]), *states[:-1]


@worked("tau_gru", delay=1, torchrecurrent="tauGRUCell", theirs=stacks("u z g a"), run=as_theirs)
@worked("tau_gru", delay=3, torchrecurrent="tauGRUCell", theirs=stacks("u z g a"), run=as_theirs)
@worked("tau_gru")
def tau_gru(w: Any, x: Array, h: Array, *before: Array, delay: int) -> Any:
    def sums(gate: str, state: Array) -> Array:
        return w.weight_ih[gate] @ x + w.bias_ih[gate] + w.weight_hh[gate] @ state + w.bias_hh[gate]

    u, z = np.tanh(sums("u", h)), np.tanh(sums("z", before[delay - 1]))
    g, a = sigmoid(sums("g", h)), sigmoid(sums("a", h))
    new = (1 - g) * h + g * (u + a * z)
    return new, (new, h, *before[: delay - 1])
