"""The rows of the table, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from anyrnn.train.layers import TORCH_LAYERS

Mode = Literal["inference", "training", "streaming", "paced"]
STREAMS = ("streaming", "paced")


@dataclass(frozen=True)
class Row:
    """One thing to time: a cell, its sizes, and what is done with it.

    Modes: `inference` is a call without gradients; `training` a call and its backward, gradients of input and parameters;
    `streaming` a call of one step that takes the states of the call before, again and again (anyrnn's `Stream`, without torch);
    `paced` the same with 5 ms between.
    """

    cell: str
    steps: int
    samples: int
    features: int
    hidden: int
    mode: Mode = "inference"
    loss: Literal["all", "last"] = "all"
    """Which steps' outputs the gradient of a training row comes from."""
    layers: int = 1
    bidirectional: bool = False
    lengths: tuple[int, int] | None = None
    """The shortest and the longest sequence of a packed batch, lengths in equal distances between; None: all are `steps` long."""

    @staticmethod
    def from_data(data: dict[str, Any]) -> Row:
        """A row from its fields as JSON has them."""
        return Row(**{**data, "lengths": tuple(data["lengths"]) if data["lengths"] else None})

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """T, N, D, H."""
        return self.steps, self.samples, self.features, self.hidden

    @property
    def name(self) -> str:
        """What the row is called in tables, and what `--rows` looks at."""
        parts = [self.cell, "x".join(map(str, self.shape))]
        parts += [f"{self.layers} layers"] if self.layers > 1 else []
        parts += ["bidirectional"] if self.bidirectional else []
        parts += ["lengths {}..{}".format(*self.lengths)] if self.lengths else []
        return " ".join([*parts, self.mode, *(["last"] if self.loss == "last" else [])])


STANDARD = ("rnn_tanh", "gru", "lstm")
TORCH_CELLS = tuple(TORCH_LAYERS)
"""Those that torch.nn has."""
CUSTOM = ("lstm_layernorm", "gru_before", "mgu", "indrnn", "mingru")
DIGITS = (28, 200, 28, 256)
"""T, N, D, H of reading digits row by row."""
ONE_SAMPLE = (100, 1, 256, 256)


def both(cell: str, steps: int, samples: int, features: int, hidden: int, layers: int = 1, bidirectional: bool = False,
         lengths: tuple[int, int] | None = None) -> tuple[Row, Row]:  # fmt: skip
    """A cell at one size, in inference and in training."""

    def row(mode: Mode) -> Row:
        return Row(cell, steps, samples, features, hidden, mode, layers=layers, bidirectional=bidirectional, lengths=lengths)

    return row("inference"), row("training")


QUICK = [
    row for shape in (DIGITS, ONE_SAMPLE) for cell in (*STANDARD, "lstm_layernorm", "gru_before") for row in both(cell, *shape)
]

SEEDS = [
    row
    for samples in (200, 16, 1)
    for cell in TORCH_CELLS
    for row in (*both(cell, 28, samples, 28, 256), Row(cell, 28, samples, 28, 256, "training", "last"))
]

# Braun 2018, LSTM benchmarks for deep learning frameworks, arXiv 1806.01818
BRAUN = [
    *both("lstm", 100, 64, 123, 320),
    *both("lstm", 1000, 32, 123, 320),
    *both("lstm", 1000, 32, 123, 320, layers=4, bidirectional=True),
    *both("lstm", 1000, 32, 123, 320, layers=4, bidirectional=True, lengths=(500, 1000)),
]

# Baidu DeepBench, code/kernels/rnn_problems.h: (cell, N, T, H), and D = H
DEEPBENCH_TRAINING = [
    ("lstm", 16, 25, 512), ("lstm", 128, 25, 512), ("lstm", 16, 25, 1024), ("lstm", 128, 25, 1024), ("lstm", 32, 25, 2048),
    ("lstm", 8, 50, 1536), ("lstm", 16, 150, 256), ("lstm", 64, 150, 256),
    ("rnn_relu", 16, 50, 1760), ("rnn_relu", 64, 50, 1760),
    ("gru", 32, 187, 1536), ("gru", 32, 1, 512), ("gru", 32, 187, 1024),
]  # fmt: skip
DEEPBENCH_INFERENCE = [
    ("lstm", 25, 512), ("lstm", 25, 1024), ("lstm", 150, 256), ("lstm", 50, 1536), ("gru", 187, 1536), ("gru", 1, 512),
]  # fmt: skip
DEEPBENCH = [row for cell, n, t, h in DEEPBENCH_TRAINING for row in both(cell, t, n, h, h)] + [
    Row(cell, t, n, h, h) for cell, t, h in DEEPBENCH_INFERENCE for n in (1, 2, 4)
]

# The sizes that other libraries publish figures for.
COMPARABLES = [
    *(row for cell in STANDARD for row in both(cell, 300, 20, 800, 800)),
    *both("lstm", 50, 64, 500, 500),
    *(row for n in (8, 16, 32) for h in (512, 1024) for row in both("gru", 30, n, h, h)),
    # the encoder of GNMT (Wu et al. 2016, arXiv 1609.08144) as oneDNN's tests have it
    *(row for n in (1, 64, 128) for row in both("lstm", 50, n, 512, 256, bidirectional=True)),
    *(row for n in (1, 64, 128) for row in both("lstm", 50, n, 512, 512)),
]

STREAMING = [
    Row(cell, 1, 1, h, h, mode)
    for cell in STANDARD
    for h in (64, 128, 256, 512, 1024)
    for mode in ("streaming", "paced", "inference")
]  # fmt: skip


def custom_rows(cells: Sequence[str]) -> list[Row]:
    """Of cells that torch.nn does not have."""
    shapes = (DIGITS, (100, 32, 256, 256), ONE_SAMPLE)
    return [row for cell in dict.fromkeys(cells) for shape in shapes for row in both(cell, *shape)]


SUITES: dict[str, list[Row]] = {
    "quick": QUICK,
    "seeds": SEEDS,
    "deepbench": DEEPBENCH,
    "braun": BRAUN,
    "comparables": COMPARABLES,
    "streaming": STREAMING,
    "custom": custom_rows(CUSTOM),
}


def rows_of(suite: str, cells: Sequence[str] = ()) -> list[Row]:
    """The rows of a suite, or of all of them, each once; `cells` are those of the custom suite, in place of its own."""
    chosen = SUITES | ({"custom": custom_rows(cells)} if cells else {})
    suites = chosen.values() if suite == "all" else [chosen[suite]]
    return list(dict.fromkeys(row for rows in suites for row in rows))
