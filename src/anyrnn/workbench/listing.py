"""The list of the built-in cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from html import escape
from math import isfinite, prod
from typing import Any

import numpy as np

from anyrnn import cells
from anyrnn.errors import meant
from anyrnn.ir.dims import shape_text
from anyrnn.trace import Cell


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


@dataclass(frozen=True)
class Row:
    """A cell in the list. `states` have their shapes as text, `parameters` is the number of trained ones for the sizes given."""

    name: str
    paper: str
    inputs: tuple[str, ...]
    """Per-step inputs beside the first."""
    states: Mapping[str, str]
    sizes: tuple[str, ...]
    """Named sizes beside `input` and `hidden`."""
    hypers: Mapping[str, Any]
    parameters: int


def _plain(value: Any) -> Any:
    """As JSON has it: functions by their names, what it has not as Python writes it."""
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, (str, int)) or (isinstance(value, float) and isfinite(value)):
        return value
    return getattr(value, "__name__", repr(value))


class Listing(tuple[Row, ...]):
    """Rows of cells, which print as a table."""

    sizes: Mapping[str, int]

    def __str__(self) -> str:
        names, states = max(len(r.name) for r in self), max(len(_states(r)) for r in self)
        numbers = max(len(f"{r.parameters:,}") for r in self)
        lines = [f"{r.name:<{names}}  {r.parameters:>{numbers},}  {_states(r):<{states}}  {r.paper}" for r in self]
        return "\n".join([*lines, "", f"{_cells(len(self))}; parameters for {self.about}"])

    @property
    def about(self) -> str:
        given = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        return f"{given}, other sizes {_other(self.sizes)}"

    def _repr_html_(self) -> str:
        cell = "<td style='text-align:left'>{}</td>".format
        rows = [
            f"<tr>{cell(escape(r.name))}<td>{r.parameters:,}</td>{cell(escape(_states(r)))}{cell(escape(r.paper))}</tr>"
            for r in self
        ]
        head = "<tr><th>cell</th><th>parameters</th><th>states</th><th>paper</th></tr>"
        return f"<table>{head}{''.join(rows)}</table><p>{_cells(len(self))}; parameters for {escape(self.about)}</p>"

    def records(self) -> list[dict[str, Any]]:
        """For JSON."""
        return [asdict(row) | {"hypers": {name: _plain(value) for name, value in row.hypers.items()}} for row in self]


def catalogue(chosen: Cell | str | Iterable[Cell | str] = (), /, **sizes: int) -> Listing:
    """The built-in cells: name, paper, states and number of parameters.

    Args:
        chosen: a cell or several, or their names; all by default.
        sizes: features by named size, `input=28, hidden=256` by default. Other named sizes (`proj`) are half of `hidden` where
            they are not given.

    Raises: ValueError for a size below 1, for one that a cell cannot have, and for one that none has.

    Example:
        >>> from anyrnn.workbench import catalogue
        >>> print(catalogue(["gru", "indrnn"], input=3, hidden=5))
        gru     150  h  Cho et al. 2014, arXiv 1406.1078v1; the form of cuDNN and torch, reset after the product
        indrnn   25  h  Li et al. 2018, Independently Recurrent Neural Network, arXiv 1803.04831
        <BLANKLINE>
        2 cells; parameters for input=3, hidden=5, other sizes 2
    """
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"size {name!r} should be at least 1, got {size}")
    sizes = {"input": 28, "hidden": 256} | sizes
    chosen = [chosen] if isinstance(chosen, (str, Cell)) else list(chosen)
    found = Listing(_row(cells.load(cell), sizes) for cell in chosen or cells.names())
    known = sorted({size for row in found for size in row.sizes})
    for name in sizes:
        if name not in ("input", "hidden", *known):
            there_are = ", ".join(known) or "no others"
            raise ValueError(f"no cell here has the size {name!r}{meant(name, known)}; there are {there_are}")
    found.sizes = sizes
    return found


def _other(sizes: Mapping[str, int]) -> int:
    return max(1, sizes["hidden"] // 2)


def _row(cell: Cell, sizes: Mapping[str, int]) -> Row:
    graph = cell.trace()
    others = graph.other_sizes(sizes["hidden"], sizes)
    sizes = {graph.input_size_name: sizes["input"], "hidden": sizes["hidden"], **others}
    return Row(
        name=cell.name,
        paper=cell.paper,
        inputs=tuple(name for name, _ in graph.inputs[1:]),
        states={s.name: shape_text(s.shape) if s.shape else "" for s in graph.states},
        sizes=tuple(others),
        hypers=dict(cell.signature.hypers),
        parameters=sum(prod(d.evaluate(sizes) for d in p.shape) for p in graph.parameters if p.trained),
    )


def _states(row: Row) -> str:
    """With their sizes where these are not `hidden`."""
    return ", ".join(name if shape == "[hidden]" else f"{name} {shape or '(a number)'}" for name, shape in row.states.items())
