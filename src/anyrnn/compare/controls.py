"""Tasks of the literature that show how far back a cell can reach, made from random numbers as they are needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyrnn.compare.examples import CROSS_ENTROPY, SQUARED_ERROR, Examples, Task
from anyrnn.train import identity

SYMBOLS, BLANK, DELIMITER, COPIED = 8, 8, 9, 10
VALIDATION, TEST = 1000, 5000
TRAINING_KEY, VALIDATION_KEY, TEST_KEY = range(3)
ADDING_KEY, COPY_KEY = 1997, 2016
"""Of NumPy's generators: with the key of a part, and for training with the seed of a run."""


def adding(steps: int) -> Task:
    """Two of `steps` numbers are marked, one in each half of the sequence; at its end their sum is asked for. D = 2: a number,
    uniform in [0, 1], and the mark. Who says 1 every time has a mean squared error of 1/6.

    Source: Hochreiter & Schmidhuber 1997, Long Short-Term Memory; the form of Arjovsky, Shah & Bengio 2016, arXiv 1511.06464.
    """

    def draw(random: np.random.Generator, count: int) -> Examples:
        inputs = np.zeros((count, steps, 2), np.float32)  # [N, T, D]
        inputs[:, :, 0] = random.random((count, steps))
        first, second = random.integers(0, steps // 2, count), random.integers(steps // 2, steps, count)
        each = np.arange(count)
        inputs[each, first, 1] = inputs[each, second, 1] = 1
        return Examples(inputs, inputs[each, first, 0] + inputs[each, second, 0])

    about = f"two numbers among {steps} to add, from [0, 1]; new sequences for every step, of which each seed has its own"
    task = Task("adding", 2, 1, steps, "last", SQUARED_ERROR, **_drawn(draw, ADDING_KEY), about=about)
    return task.guessed(1 / 6, "to say 1 every time")


def copy(delay: int) -> Task:
    """Ten of eight symbols, then blanks, the last of `delay` steps is a sign, and after it the ten are asked for; before, a blank
    at every step. T = delay + 20, D = 10 (symbols, blank and sign). The cross-entropy is the mean of all steps, in nats; who
    guesses the ten has 10 ln 8 / T.

    Source: Hochreiter & Schmidhuber 1997, Long Short-Term Memory; the form of Arjovsky, Shah & Bengio 2016, arXiv 1511.06464.
    """
    steps = delay + 2 * COPIED

    def draw(random: np.random.Generator, count: int) -> Examples:
        data = random.integers(0, SYMBOLS, (count, COPIED))
        inputs, targets = (np.full((count, steps), BLANK, np.int64) for _ in range(2))  # [N, T]
        inputs[:, :COPIED], targets[:, -COPIED:] = data, data
        inputs[:, -COPIED - 1] = DELIMITER
        return Examples(inputs, targets)

    about = f"ten of eight symbols to repeat after {delay} steps; new sequences for every step, of which each seed has its own"
    task = Task("copy", DELIMITER + 1, BLANK + 1, steps, "each", CROSS_ENTROPY, **_drawn(draw, COPY_KEY), about=about)
    return task.guessed(COPIED * math.log(SYMBOLS) / steps, "to guess the ten")


def _drawn(draw: Callable[[np.random.Generator, int], Examples], key: int) -> dict[str, Any]:
    """What a task has of data; those to choose by and to test on are the same for all seeds."""

    def batches(size: int, seed: int) -> Iterator[Examples]:
        random = np.random.default_rng([key, TRAINING_KEY, seed])
        while True:
            yield draw(random, size)

    validation = draw(np.random.default_rng([key, VALIDATION_KEY]), VALIDATION)
    test = draw(np.random.default_rng([key, TEST_KEY]), TEST)
    arrays: list[NDArray[Any]] = [validation.inputs, validation.targets, test.inputs, test.targets]
    return {"batches": batches, "validation": validation, "test": test, "digest": identity.of_arrays(arrays)}
