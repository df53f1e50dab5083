"""The cells that come with the package, each in a few lines of equations."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
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
from anyrnn.errors import meant
from anyrnn.trace import Cell


def names() -> list[str]:
    """The names of the built-in cells."""
    return sorted(name for name, value in globals().items() if isinstance(value, Cell))


def load(spec: Any) -> Cell:
    """A built-in cell by its name, or `my_file.py:my_cell`. A Cell is given back as it is.

    Raises: ValueError for an unknown name, FileNotFoundError for a missing file.
    """
    if isinstance(spec, Cell):
        return spec
    if not isinstance(spec, str):
        who = f"function {spec.__name__!r}: put @cell above it" if inspect.isfunction(spec) else f"a {type(spec).__name__}"
        raise TypeError(f"cell should be a Cell, the name of a built-in one, or 'my_file.py:my_cell'; got {who}")
    path, colon, name = spec.rpartition(":")
    if not colon:
        found = globals().get(spec)
        if not isinstance(found, Cell):
            known = f"the built-in cells are {', '.join(names())}; one of your own is my_file.py:my_cell"
            raise ValueError(f"unknown cell {spec!r}{meant(spec, names())}; {known}")
        return found
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"cell {spec!r}: there is no file {path!r}")
    module_spec = importlib.util.spec_from_file_location(file.stem, file)
    if module_spec is None or module_spec.loader is None:
        raise ValueError(f"cell {spec!r}: {path!r} is not a Python file (my_file.py:my_cell)")
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except SyntaxError as error:
        where = f"{path}, line {error.lineno}" if error.filename == str(file) else path
        raise ValueError(f"cell {spec!r}: {where}: {error.msg}") from error
    found = getattr(module, name, None)
    if not isinstance(found, Cell):
        cells = [k for k, v in vars(module).items() if isinstance(v, Cell)]
        raise ValueError(f"cell {spec!r}: {path!r} has no cell {name!r}; it has {', '.join(cells) or 'none'}")
    return found
