"""The list of the built-in cells."""

from __future__ import annotations

import json
from functools import partial

import pytest

import anyrnn
from anyrnn import State, affine, cell, cells, minimum, tanh
from anyrnn.workbench import catalogue


def test_all_cells_are_listed() -> None:
    found = catalogue()
    assert [row.name for row in found] == cells.names()
    assert len(found) >= 90
    assert all(row.paper for row in found)
    text = str(found)
    for name in cells.names():
        assert name in text
    assert f"{len(found)} cells; parameters for input=28, hidden=256, other sizes 128" in text


@pytest.mark.parametrize("name", ["lstm", "lstm_projected", "gru", "indrnn", "lstm_heads"])
def test_parameters_are_those_of_a_layer(name: str) -> None:
    (row,) = catalogue([name], input=6, hidden=10)
    sizes = dict.fromkeys(row.sizes, 5)
    layer = anyrnn.Recurrent(name, 6, 10, **sizes)  # type: ignore[arg-type]
    assert row.parameters == sum(array.size for array in layer.parameters.values())


def test_parameters_that_are_not_trained_do_not_count() -> None:
    (row,) = catalogue(["echo_state"], input=6, hidden=10)
    assert row.parameters < 100


def test_other_sizes_may_be_given() -> None:
    (small,), (large,) = (catalogue(["lstm_projected"], input=6, hidden=10, proj=proj) for proj in (2, 9))
    assert small.parameters < large.parameters
    assert small.states == {"h": "[proj]", "c": "[hidden]"}
    with pytest.raises(ValueError, match="size 'proj' should be at least 1, got 0"):
        catalogue(["lstm_projected"], proj=0)
    with pytest.raises(ValueError, match="chosen"):
        catalogue(["lstm_projected"], chosen=3)


def test_records_are_json() -> None:
    (record,) = json.loads(json.dumps(catalogue(["lstm_mogrifier"]).records()))
    assert record["hypers"] == {"rounds": 5}
    assert record["states"] == {"h": "[hidden]", "c": "[hidden]"}
    json.dumps(catalogue().records())


def test_notebooks_show_a_table() -> None:
    html = catalogue(["lstm", "gru"])._repr_html_()
    assert html.count("<tr>") == 3
    assert "Schmidhuber" in html
    assert "&amp;" in html


def test_records_of_ones_own_cell_are_json() -> None:
    one = partial(max, 1)

    @cell
    def bounded(x, h, *, most=float("inf"), shape=one):  # type: ignore[no-untyped-def]
        h = minimum(tanh(affine("n", x, h)), most)
        return h, State(h=h)

    (record,) = catalogue(bounded).records()
    assert record["hypers"]["most"] == "inf"
    assert "partial" in record["hypers"]["shape"]
    json.dumps(record, allow_nan=False)
