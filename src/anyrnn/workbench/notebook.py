"""What notebooks show of cells."""

from __future__ import annotations

from html import escape

from anyrnn.errors import CellError
from anyrnn.ir.dims import shape_text
from anyrnn.ir.show import latex
from anyrnn.trace import Cell
from anyrnn.trace.tracer import place_of_error
from anyrnn.workbench.drawing import picture


def html(cell: Cell) -> str:
    """A cell's name, paper, equations (in LaTeX, which notebooks typeset), parameters and data flow."""
    try:
        graph = cell.trace()
    except Exception as error:  # noqa: BLE001 (whatever the cell's function raises)
        place = None if isinstance(error, CellError) else place_of_error(error)
        why = str(error) if place is None else f"{place}: {type(error).__name__}: {error}"
        return f"<b>{escape(cell.name)}</b><br>{escape(cell.paper)}<pre>{escape(why)}</pre>"
    parameters = ", ".join(f"{p.name} {shape_text(p.shape) if p.shape else '(a number)'}" for p in graph.parameters)
    return (
        f"<b>{escape(cell.name)}</b><br>{escape(cell.paper)}"
        f"$${escape(latex(graph), quote=False)}$$"
        f"<small>{escape(parameters)}</small><br>{picture(cell)}"
    )
