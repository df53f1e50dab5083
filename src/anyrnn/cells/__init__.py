"""The cells that come with the package, each in a few lines of equations."""

from __future__ import annotations

from typing import Any

from anyrnn.cells.gru import gru as gru
from anyrnn.cells.gru import gru_before as gru_before
from anyrnn.cells.indrnn import indrnn as indrnn
from anyrnn.cells.lstm import lstm as lstm
from anyrnn.cells.lstm import lstm_coupled as lstm_coupled
from anyrnn.cells.lstm import lstm_peephole as lstm_peephole
from anyrnn.cells.lstm import lstm_projected as lstm_projected
from anyrnn.cells.lstm_layernorm import lstm_layernorm as lstm_layernorm
from anyrnn.cells.mgu import mgu as mgu
from anyrnn.cells.rnn import rnn_relu as rnn_relu
from anyrnn.cells.rnn import rnn_tanh as rnn_tanh
from anyrnn.trace import Cell


def names() -> list[str]:
    """The names of the built-in cells."""
    return sorted(name for name, value in globals().items() if isinstance(value, Cell))


def load(spec: Any) -> Cell:
    """A built-in cell by its name, one in wrappers (`residual(lstm)`, see `anyrnn.cells.wrappers`), or `my_file.py:my_cell`.

    A Cell is given back as it is.

    Raises: ValueError for an unknown name, FileNotFoundError for a missing file.
    """
    from anyrnn.cells import loading

    return loading.load(spec, {name: globals()[name] for name in names()})
