"""Pictures of cells: everything that the step computes is there, nothing stands on anything else."""

from __future__ import annotations

import random
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from anyrnn import Scalar, State, Step, Vec, cell, cells, where
from anyrnn.trace import Cell
from anyrnn.trace.language import affine, mean, norm, tanh, vector
from anyrnn.workbench import picture
from anyrnn.workbench.layout import layered

SVG = "{http://www.w3.org/2000/svg}"


@cell(paper="<nobody> & 2000")
def unusual(x, h, s: Vec("other"), t: Scalar(), dt: Step(1)):
    a = where(t > 3, norm(affine("a", x, h)), vector("gain") * h - mean(h) * dt)
    s = tanh(affine("s", a, s, size="other"))
    return affine("y", s), State(h=a * a, s=s, t=t + 1)


def boxes(text: str) -> list[tuple[str, str, float, float, float]]:
    """Label, tooltip, and left end, width and middle height of each box."""
    found = []
    for group in ElementTree.fromstring(text).iter(f"{SVG}g"):
        rect, title = group.find(f"{SVG}rect"), group.find(f"{SVG}title")
        (label, *_) = group.findall(f"{SVG}text")
        assert rect is not None
        assert title is not None
        x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        found.append((label.text or "", title.text or "", x, width, y + height / 2))
    return found


def test_an_lstm() -> None:
    found = boxes(picture(cells.lstm))
    labels = sorted(label for label, *_ in found)
    products = ["W f", "W g", "W i", "W o"]
    assert labels == sorted(["x", "h", "c", *products, *["\N{GREEK SMALL LETTER SIGMA}"] * 3, "tanh", "tanh",
                             *["\N{MULTIPLICATION SIGN}"] * 3, "+", "y", "h'", "c'"])  # fmt: skip
    tips = [tip for _, tip, *_ in found]
    assert "c' = f * c + i * g" in tips
    assert any(tip.endswith("weight_ih[f]·x + weight_hh[f]·h + bias_ih[f] + bias_hh[f]") for tip in tips)


@pytest.mark.parametrize("made", [*map(cells.load, cells.names()), unusual], ids=str)
def test_boxes_do_not_touch(made: Cell) -> None:
    text = picture(made)
    by_height: dict[float, list[tuple[float, float]]] = {}
    view = [float(n) for n in ElementTree.fromstring(text).attrib["viewBox"].split()]
    for label, _, x, width, y in boxes(text):
        assert x >= 0
        assert x + width <= view[2], label
        assert 0 < y < view[3]
        by_height.setdefault(round(y), []).append((x, x + width))
    for row in by_height.values():
        assert all(end < start for (_, end), (start, _) in pairwise(sorted(row)))
    assert "nan" not in text


def test_of_a_step_of_many_ops_in_a_row() -> None:
    assert len(boxes(picture(cells.load("rhn(depth=210)")))) > 1000


def test_names_of_the_user_are_text() -> None:
    text = picture(unusual)
    labels = [label for label, *_ in boxes(text)]
    for label in ("x", "h", "s", "t", "dt", "norm", "mean", "where", "h'", "s'", "t'", "y"):
        assert label in labels


def test_lines_go_from_left_to_right() -> None:
    for path in re.findall(r'<path d="M([^"]*)"', picture(cells.nas)):
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", path)]
        xs = numbers[::2]
        assert xs == sorted(xs)


def test_layout_of_random_graphs() -> None:
    draw = random.Random(0)
    for _ in range(30):
        count = draw.randrange(1, 25)
        lines = [(draw.randrange(k), k) for k in range(1, count) for _ in range(draw.randrange(3))]
        layout = layered(range(count), lines)
        places = list(layout.places.values())
        columns: dict[float, list[float]] = {}
        for x, y in places:
            columns.setdefault(x, []).append(y)
        for column in columns.values():
            assert all(b - a > 0.999 for a, b in pairwise(sorted(column)))
        for a, b in lines:
            assert layout.places[a][0] < layout.places[b][0]
            assert layout.ways[a, b][0] == layout.places[a]
            assert layout.ways[a, b][-1] == layout.places[b]


def test_few_lines_cross() -> None:
    """Two chains side by side are drawn without a crossing, however they are given."""
    layout = layered(["a", "b", "p", "q", "y", "z"], [("a", "q"), ("b", "p"), ("q", "y"), ("p", "z")])
    rows = {box: place[1] for box, place in layout.places.items()}
    assert (rows["a"] < rows["b"]) == (rows["q"] < rows["p"]) == (rows["y"] < rows["z"])


def test_notebooks_show_cells() -> None:
    html = cells.lstm._repr_html_()
    assert "<svg" in html
    assert "$$\\begin{aligned}" in html
    assert "Hochreiter &amp; Schmidhuber 1997" in html
    assert cells.lstm._repr_latex_().startswith("$$\\begin{aligned}")
    assert "&lt;nobody&gt; &amp; 2000" in unusual._repr_html_()

    @cell
    def fails(x, h):  # type: ignore[no-untyped-def]
        return y, State(h=h)  # type: ignore[name-defined]  # noqa: F821

    assert "NameError: name &#x27;y&#x27; is not defined" in fails._repr_html_()
    assert fails._repr_latex_() == ""
