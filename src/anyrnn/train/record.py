"""What happens in a run."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Evaluation:
    """How the held-out sequences were read after `step` training steps: mean cross-entropy, each one's class (int64 [N])."""

    step: int
    loss: float
    predictions: NDArray[np.int64]
    accuracy: float


@dataclass
class Record:
    """What happened: the loss of each training step, the evaluations, and the time.

    `seconds` is that of the training steps (compiling kernels and taking batches included), `evaluation_seconds` that of the
    evaluations.
    """

    losses: list[float] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    seconds: float = 0.0
    evaluation_seconds: float = 0.0
    interrupted: bool = False
