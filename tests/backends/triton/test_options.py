"""Options of layers and of calls: the generated kernels against the interpreter, with the same random bits."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
import torch
import triton.language as tl

from tests.backends.triton import quicker
from tests.backends.triton.twins import hold_weights, make, run
from tests.budget import assert_agree
from tests.options import COMBINATIONS, VALUES, options_of, shape_of, title

KIND = "random cells, float64"
CELLS = ("lstm", "gru_before", "lstm_layernorm")
LENGTHS = [3, 0, 5, 2, 5]
QUICK = ("zoneout", "reset")
slow = pytest.mark.slow
CALLS: dict[str, dict[str, Any]] = {
    "lengths": {"lengths": LENGTHS},
    "mask": {"mask": torch.arange(25).view(5, 5) % 3 != 0},
    "reset": {"reset": torch.arange(25).view(5, 5) % 4 == 0},
    "padding": {"lengths": LENGTHS, "padding": 1.5},
    "hold": {"lengths": LENGTHS, "padding": "last"},
    "last": {"return_outputs": "last"},
    "none": {"return_outputs": "none"},
    "last of lengths": {"lengths": LENGTHS, "return_outputs": "last"},
    "all states": {"return_states": "all"},
    "all states of lengths": {"lengths": LENGTHS, "return_states": "all", "reset": torch.arange(25).view(5, 5) % 4 == 0},
}


def compare(cell: str, options: dict[str, Any], call: dict[str, Any], **more: Any) -> None:
    shape = shape_of(cell, options, 6, 4)
    inputs, hidden = shape.pop("input_size"), shape.pop("hidden_size")
    made = [make(cell, b, inputs, hidden, **{**shape, **more}, **options) for b in ("triton", "reference")]
    found, expected = (run(module, 5, 5, with_state=True, **call) for module in made)
    assert_agree(found, expected, KIND, cell, 1.0, None)


@pytest.mark.parametrize("cell", [CELLS[0], *(pytest.param(c, marks=slow) for c in CELLS[1:])])
@pytest.mark.parametrize(
    "names", [pytest.param(n, marks=() if n[0] in QUICK and len(n) == 1 else slow) for n in COMBINATIONS], ids=title
)
def test_options(cell: str, names: list[str]) -> None:
    options = options_of(cell, names)
    call = {} if "merge" in options and "residual" in options else {"lengths": LENGTHS}
    compare(cell, options, call, dropout=0.3 if len(names) > 1 else 0.0)


@slow
@pytest.mark.parametrize("pair", list(combinations(VALUES, 2)), ids=" ".join)
@pytest.mark.parametrize("call", [{}, {"lengths": LENGTHS}], ids=["dense", "lengths"])
def test_pairs(pair: tuple[str, str], call: dict[str, Any]) -> None:
    if {"merge", "reverse"} <= set(pair):
        pair = pair[:1]
    compare("gru_before" if "cut_gradient" in pair else "lstm", options_of("lstm", pair), call)


def test_triton_draws_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own function, which other tests replace by a quicker one."""
    monkeypatch.setattr(tl, "philox_impl", quicker.PHILOX)
    compare("rnn_tanh", options_of("rnn_tanh", ["zoneout"]), {})


@pytest.mark.parametrize("kind", [pytest.param(k, marks=() if k in QUICK else slow) for k in CALLS])
@pytest.mark.parametrize("cell", ["lstm", pytest.param("lstm_layernorm", marks=slow)])
def test_calls(cell: str, kind: str) -> None:
    compare(cell, {}, CALLS[kind])


@pytest.mark.parametrize("kind", [pytest.param(k, marks=() if k == "reset" else slow) for k in CALLS])
@pytest.mark.parametrize("cell", ["lstm", pytest.param("lstm_layernorm", marks=slow)])
def test_calls_of_programs_that_scatter_sums(cell: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where steps have different rows, and borders of chunks are between them."""
    chosen = hold_weights(monkeypatch)
    monkeypatch.setattr("anyrnn.backends.triton.memory.CHUNK_ROWS", 6)
    compare(cell, {}, CALLS[kind], bidirectional=True)
    assert any(blocks.scatters for blocks in chosen)


@slow
@pytest.mark.parametrize("bias", ["input", "recurrent", "none"])
def test_biases(bias: str) -> None:
    compare("gru", {}, {}, bias=bias)


@pytest.mark.parametrize("cell", ["rnn_tanh", pytest.param("gru_before", marks=slow)])
def test_batch_first(cell: str) -> None:
    compare(cell, {}, {"lengths": LENGTHS}, batch_first=True)
    compare(cell, {}, {"return_states": "all"}, batch_first=True)


@slow
@pytest.mark.parametrize("cell", ["gru_before", "lstm_layernorm"])
def test_chunks(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rotated loop ends and begins at each border; sequences of different lengths, both directions. (The products beside the
    steps are a library's, whose bits depend on how many rows there are.)
    """
    module = make(cell, "triton", 3, 5, bidirectional=True)
    for call in ({}, {"lengths": [7, 1, 4]}):
        whole = run(module, 7, 3, **call)
        monkeypatch.setattr("anyrnn.backends.triton.memory.CHUNK_ROWS", 6)
        assert_agree(run(module, 7, 3, **call), whole, KIND, "in chunks", 1.0, None)
        monkeypatch.undo()
