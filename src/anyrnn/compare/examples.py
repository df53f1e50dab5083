"""What a task is: sequences, what should be said of them, and how well that is done."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss, one_hot


@dataclass(frozen=True)
class Measure:
    """What is reported of a task, `scale` times what is measured."""

    name: str
    unit: str
    higher_is_better: bool
    scale: float = 1.0

    def better(self, one: Any, other: Any) -> bool:
        """Whether one figure is better than another, or a tuple that begins with one."""
        return bool(one > other if self.higher_is_better else one < other)


ACCURACY = Measure("test accuracy", "%", True, 100.0)
SQUARED_ERROR = Measure("test mean squared error", "", False)
CROSS_ENTROPY = Measure("test cross-entropy", "nats", False)
BITS = Measure("test bits per character", "", False, 1 / math.log(2))


@dataclass(frozen=True)
class Examples:
    """Sequences, and what a network should say of them.

    `inputs` are float32 [N, T, D], or symbols int64 [N, T]. `targets` are classes int64 [N], numbers float32 [N], or symbols
    int64 [N, T]. `lengths` int64 [N] are the steps of each, where they differ. Of symbols the last `counted` steps count, or all.
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    lengths: NDArray[np.int64] | None = None
    counted: int | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def at(self, places: NDArray[np.int64] | slice) -> Examples:
        """Some of them."""
        lengths = None if self.lengths is None else self.lengths[places]
        return replace(self, inputs=self.inputs[places], targets=self.targets[places], lengths=lengths)


@dataclass(frozen=True)
class Task:
    """Of `features` D at each of at most `steps` T a network makes `outputs` numbers, at the last step or at each.

    `batches(size, seed)` gives batches to train on without end, by the seed alone; `largest_batch` is how many sequences there
    are. `digest` tells the data from others. `guess` is the figure of who has learned nothing of the input, and `guessing` how.
    """

    name: str
    features: int
    outputs: int
    steps: int
    head: Literal["last", "each"]
    measure: Measure
    batches: Callable[[int, int], Iterator[Examples]]
    validation: Examples
    test: Examples
    digest: str
    about: str
    largest_batch: int | None = None
    guess: float | None = None
    guessing: str = ""

    def guessed(self, figure: float, how: str) -> Task:
        """The same, with what guessing gives."""
        return replace(self, guess=figure, guessing=how)

    def tensors(self, examples: Examples) -> tuple[Tensor, Tensor | None]:
        """What a network takes: inputs float32 [N, T, D], symbols as vectors with a single one, and lengths."""
        inputs = torch.from_numpy(np.ascontiguousarray(examples.inputs))
        if inputs.ndim == 2:
            inputs = one_hot(inputs, self.features).float()
        return inputs, None if examples.lengths is None else torch.from_numpy(examples.lengths)

    def loss(self, answers: Tensor, examples: Examples) -> Tensor:
        """The mean loss of what a network says, [N, outputs] or [N, T, outputs]: squared error, or cross-entropy in nats."""
        targets = torch.from_numpy(np.ascontiguousarray(examples.targets))
        if self.head == "each":
            last = slice(-(examples.counted or targets.shape[1]), None)
            return cross_entropy(answers[:, last].flatten(0, 1), targets[:, last].flatten())
        return mse_loss(answers.squeeze(1), targets) if self.measure is SQUARED_ERROR else cross_entropy(answers, targets)
