"""What notebooks show of cells."""

from __future__ import annotations

from html import escape

from anyrnn.errors import CellError
from anyrnn.ir.dims import shape_text
from anyrnn.ir.show import latex
from anyrnn.trace import Cell
from anyrnn.workbench.drawing import picture


def html(cell: Cell) -> str:
    """A cell's name, paper, equations (in LaTeX, which notebooks typeset), parameters and data flow."""
    try:
        graph = cell.trace()
    except CellError as error:
        return f"<b>{escape(cell.name)}</b><br>{escape(cell.paper)}<pre>{escape(str(error))}</pre>"
    parameters = ", ".join(f"{p.name} {shape_text(p.shape) if p.shape else '(a number)'}" for p in graph.parameters)
    return (
        f"<b>{escape(cell.name)}</b><br>{escape(cell.paper)}"
        f"$${escape(latex(graph), quote=False)}$$"
        f"<small>{escape(parameters)}</small><br>{picture(cell)}"
    )
