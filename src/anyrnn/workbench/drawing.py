"""A cell's data flow as a picture: SVG, from the trace."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from anyrnn import cells
from anyrnn.ir.graph import Graph, Node, affine_parts
from anyrnn.ir.names import Names, gate_rows, mean_of, written_inputs
from anyrnn.ir.notation import INFIX, Text
from anyrnn.ir.show import Writer
from anyrnn.trace import Cell
from anyrnn.workbench.layout import Layout, Point, layered

BETWEEN, DOWN, MARGIN, HEIGHT, LETTER = 42.0, 46.0, 30.0, 26.0, 7.2
FILLS = {
    "given": "#eceff1",
    "wanted": "#eceff1",
    "linear": "#bbdefb",
    "function": "#ffe0b2",
    "reduction": "#e1bee7",
    "arithmetic": "#ffffff",
}
FONT = 'font-family="sans-serif" font-size="13"'
LEGEND = {
    "linear": "products: need all features",
    "reduction": "over all features",
    "function": "functions of each feature",
    "arithmetic": "arithmetic",
}
SIGNS = {
    "add": "+",
    "sub": "\N{MINUS SIGN}",
    "mul": "\N{MULTIPLICATION SIGN}",
    "div": "\N{DIVISION SIGN}",
    "neg": "\N{MINUS SIGN}",
}
SHORT = {"sigmoid": "\N{GREEK SMALL LETTER SIGMA}", "sum": "\N{N-ARY SUMMATION}"}


@dataclass(frozen=True)
class Box:
    """What stands in a box, below it, in its tooltip, and of which kind it is."""

    label: str
    name: str
    formula: str
    kind: str

    @property
    def width(self) -> float:
        return max(HEIGHT, 14 + LETTER * len(self.label))


def picture(cell: Cell | str) -> str:
    """The data flow of one step, as the text of an SVG file: what comes in on the left (states are those of the step before),
    what goes out on the right; a box shows its equation when the pointer rests on it.

    Raises: CellError when the cell cannot be traced; ValueError, FileNotFoundError for a text that names none.
    """
    cell = cells.load(cell)
    graph = cell.trace()
    boxes, lines = _boxes(graph)
    ends = [box for box in boxes if isinstance(box, str)]
    layout = layered(list(boxes), lines, ends)
    columns = _columns(layout, boxes)
    places = {key: (columns[int(x)], MARGIN + DOWN * y) for key, (x, y) in layout.places.items()}
    ways = {line: [(columns[int(x)], MARGIN + DOWN * y) for x, y in way] for line, way in layout.ways.items()}
    width = max(x + boxes[key].width / 2 for key, (x, _) in places.items()) + MARGIN  # type: ignore[index]
    height = MARGIN * 2 + DOWN * layout.rows + 34
    size = f'width="{width:.0f}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" {size} {FONT}>',
        f"<title>{escape(cell.name)}: one step</title>",
        f'<rect {size} fill="#ffffff"/>',
        *_lines(ways, boxes),
        *(_box(box, places[key]) for key, box in boxes.items()),
        *_legend({box.kind for box in boxes.values()}, height),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _boxes(graph: Graph) -> tuple[dict[int | str, Box], list[tuple[int | str, int | str]]]:
    """By node, or by the name of an output, in an order in which what is needed comes first; and the lines between them."""
    nodes = graph.nodes
    names = Names(nodes, graph.outputs, graph.state_names)
    writer = Writer(nodes, names.names, Text(), gate_rows(graph.parameters))
    boxes: dict[int | str, Box] = {}
    lines: list[tuple[int | str, int | str]] = []
    shown, left = set[int](), [_shown(nodes, i) for _, i in graph.outputs]
    while left:
        i = left.pop()
        if i not in shown:
            shown.add(i)
            left += _sources(nodes, i)
    for i in sorted(shown):
        lines += [(source, i) for source in _sources(nodes, i)]
        name = writer.notation.name(names.names[i]) if i in names.names else ""
        formula = writer.formula(i).text if nodes[i].row.kind != "leaf" else name
        boxes[i] = Box(_label(graph, i, writer), "" if nodes[i].row.kind == "leaf" else name, formula, _kind(nodes[i]))
    for output, i in graph.outputs:
        text = f"{output}'" if output in graph.state_names else output
        boxes[output] = Box(text, "", f"{text} = {writer.piece(i).text}", "wanted")
        lines.append((_shown(nodes, i), output))
    return boxes, lines


def _shown(nodes: Sequence[Node], i: int) -> int:
    """A scalar stretched to a vector is no box of its own."""
    while nodes[i].op == "fill" and nodes[nodes[i].inputs[0]].per_sample:
        i = nodes[i].inputs[0]
    return i


def _sources(nodes: Sequence[Node], i: int) -> list[int]:
    """What a box gets of each sample."""
    if nodes[i].op == "affine":
        inputs: Sequence[int] = [operand for _, operand, _, _ in affine_parts(nodes[i])[0]]
    else:
        inputs = written_inputs(nodes, i)
    return [_shown(nodes, s) for s in dict.fromkeys(inputs) if nodes[s].per_sample]


def _kind(node: Node) -> str:
    if node.row.kind == "leaf":
        return "given"
    if node.row.kind in ("linear", "reduction"):
        return node.row.kind
    if node.op == "norm":
        return "reduction"
    return "function" if node.row.costly and node.op != "div" else "arithmetic"


def _label(graph: Graph, i: int, writer: Writer) -> str:
    nodes, node = graph.nodes, graph.nodes[i]
    if node.row.kind == "leaf":
        return str(node.attributes[0])
    if node.op == "affine":
        gate = node.name.removesuffix("_pre") if node.name.endswith("_pre") else ""
        return f"W {gate}".strip()
    if mean_of(nodes, i) is not None:
        return "mean"
    sign = SIGNS.get(node.op) or SHORT.get(node.op, node.op)
    if node.op == "mul" and node.inputs[0] == node.inputs[1]:
        return "\N{SUPERSCRIPT TWO}"
    if node.op not in INFIX:
        return sign
    left, right = (("" if nodes[s].per_sample else writer.piece(s).text) for s in node.inputs)
    return f"{left} {sign} {right}".strip()


def _columns(layout: Layout, boxes: dict[int | str, Box]) -> list[float]:
    """The middle of each layer, as wide as its widest box."""
    widths = [HEIGHT] * layout.layers
    for key, (x, _) in layout.places.items():
        widths[int(x)] = max(widths[int(x)], boxes[key].width)  # type: ignore[index]
    return [MARGIN + sum(widths[:k]) + BETWEEN * k + width / 2 for k, width in enumerate(widths)]


def _lines(ways: dict[tuple[Hashable, Hashable], list[Point]], boxes: dict[int | str, Box]) -> Iterator[str]:
    for (source, target), points in ways.items():
        points[0] = points[0][0] + boxes[source].width / 2, points[0][1]  # type: ignore[index]
        points[-1] = points[-1][0] - boxes[target].width / 2, points[-1][1]  # type: ignore[index]
        path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
        for (x0, y0), (x1, y1) in pairwise(points):
            middle = (x0 + x1) / 2
            path += f" C{middle:.1f} {y0:.1f} {middle:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
        yield f'<path d="{path}" fill="none" stroke="#90a4ae" stroke-width="1.3"/>'


def _box(box: Box, place: Point) -> str:
    x, y = place
    radius = HEIGHT / 2 if box.kind in ("given", "wanted", "function") else 4
    formula = f"{box.name} = {box.formula}" if box.name and box.name != box.formula else box.formula
    middle = f'text-anchor="middle" x="{x:.1f}"'
    below = f'<text {middle} y="{y + HEIGHT / 2 + 11:.1f}" font-size="10" fill="#546e7a">{escape(box.name)}</text>'
    return (
        f"<g><title>{escape(formula)}</title>"
        f'<rect x="{x - box.width / 2:.1f}" y="{y - HEIGHT / 2:.1f}" width="{box.width:.1f}" height="{HEIGHT}" rx="{radius}" '
        f'fill="{FILLS[box.kind]}" stroke="#546e7a"/>'
        f'<text {middle} y="{y + 4.5:.1f}">{escape(box.label)}</text>{below if box.name else ""}</g>'
    )


def _legend(kinds: set[str], height: float) -> Iterator[str]:
    x, y = 14.0, height - 18
    for kind, text in LEGEND.items():
        if kind in kinds:
            yield f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="12" height="12" rx="2" fill="{FILLS[kind]}" stroke="#546e7a"/>'
            yield f'<text x="{x + 17:.1f}" y="{y + 1.5:.1f}" font-size="11" fill="#37474f">{text}</text>'
            x += 34 + 6 * len(text)
