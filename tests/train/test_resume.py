"""Runs that end and go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from anyrnn import datasets
from anyrnn.train import checkpoint, loop
from anyrnn.train.checkpoint import CHECKPOINT
from anyrnn.train.errors import UsageError
from anyrnn.train.options import Options
from anyrnn.train.program import run
from tests.train.test_program import press

Make = Callable[..., Options]
OWN_CELL = """
from anyrnn import State, Vec, affine, cell, tanh

@cell
def mine(x, h: Vec("hidden", init=0.0), *, rate=0.5):
    h = rate * tanh(affine("g", x, h))
    return h, State(h=h)
"""


def left_by(choice: Options) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The weights of a run, and what its last checkpoint says of it."""
    content = torch.load(choice.output / CHECKPOINT, weights_only=True)
    return load_file(choice.output / "model.safetensors"), content["record"]


def check_same(ours: Options, expected: Options, evaluations: bool = True) -> None:
    """Of runs that were evaluated after the same steps, the evaluations too."""
    (weights, record), (of_expected, expected_record) = left_by(ours), left_by(expected)
    assert weights.keys() == of_expected.keys()
    assert all(weights[name].equal(of_expected[name]) for name in weights)
    assert record["losses"] == expected_record["losses"]
    assert not record["interrupted"]
    if evaluations:
        assert [e["loss"] for e in record["evaluations"]] == [e["loss"] for e in expected_record["evaluations"]]


@pytest.mark.parametrize(("layers_from", "when"), [("anyrnn", 17), ("anyrnn", 18), ("torch", 17)])
def test_a_run_that_was_interrupted_goes_on_to_the_same_bits(
    options: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layers_from: str, when: int
) -> None:
    whole = options(steps=30, bidirectional=True, layers_from=layers_from, output=tmp_path / "whole")
    parts = replace(whole, output=tmp_path / "parts")
    expected = run(whole)
    with monkeypatch.context() as patch:
        press(patch, loop, "learning_rate", when=when)
        interrupted = run(parts)
    assert interrupted is not None
    assert (interrupted["steps"], interrupted["interrupted"]) == (when, True)
    assert [e["step"] for e in interrupted["evaluations"]] == [3, 6, 9, 12, 15, when]
    found = run(replace(parts, resume=True))
    assert found is not None
    assert (found["steps"], found["interrupted"]) == (30, False)
    assert found["evaluations"] == expected["evaluations"]
    check_same(parts, whole)


def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint(
    options: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = options(steps=30, save_every=4, output=tmp_path / "whole")
    parts = replace(whole, output=tmp_path / "parts")
    run(whole)
    rate = loop.learning_rate
    with monkeypatch.context() as patch:
        patch.setattr(loop, "learning_rate", lambda initial, step: rate(initial, step) if step < 15 else 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(parts)
    assert len(torch.load(parts.output / CHECKPOINT, weights_only=True)["record"]["losses"]) == 12
    run(replace(parts, resume=True))
    check_same(parts, whole)


def test_a_run_that_has_ended_goes_on_with_more_steps(options: Make, tmp_path: Path) -> None:
    whole, parts = options(steps=25, output=tmp_path / "whole"), options(steps=10, output=tmp_path / "parts")
    run(whole)
    run(parts)
    run(replace(parts, steps=25, resume=True, save_every=100))
    check_same(parts, whole, evaluations=False)


def test_a_run_that_has_ended_may_be_resumed_for_nothing(options: Make) -> None:
    first = run(options(steps=3))
    again = run(options(steps=3, resume=True))
    assert (again["steps"], again["test_loss"]) == (3, first["test_loss"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": 7}, "checkpoint.pt is of a run with hidden 24, not 7"),
        ({"seed": 1}, "checkpoint.pt is of a run with seed 0, not 1"),
        ({"learning_rate": 0.5}, "checkpoint.pt is of a run with learning_rate 0.01, not 0.5"),
        ({"steps": 2}, "checkpoint.pt is of a run that has done 3 steps, more than the 2 asked for"),
    ],
    ids=str,
)
def test_another_run_is_not_resumed(options: Make, change: dict[str, Any], message: str) -> None:
    run(options(steps=3))
    before = (options().output / CHECKPOINT).read_bytes()
    with pytest.raises(UsageError, match=message):
        run(options(**{"steps": 3, "resume": True, **change}))
    assert (options().output / CHECKPOINT).read_bytes() == before


def test_what_is_no_checkpoint(options: Make) -> None:
    choice = options(steps=3, resume=True)
    with pytest.raises(UsageError, match=r"--resume: there is no .*checkpoint\.pt"):
        run(choice)
    assert not choice.output.exists()
    choice.output.mkdir()
    file = choice.output / CHECKPOINT
    for content in (b"", b"no checkpoint"):
        file.write_bytes(content)
        with pytest.raises(UsageError, match=r"checkpoint\.pt is damaged, or no checkpoint of this version of anyrnn$"):
            run(choice)
    run(replace(choice, resume=False))
    whole = file.read_bytes()
    for place in (0, len(whole) // 2, len(whole) - 1):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        file.write_bytes(flipped if place else whole[: len(whole) // 2])
        with pytest.raises(UsageError, match=r"checkpoint\.pt is damaged, or no checkpoint of this version of anyrnn$"):
            run(choice)
    file.write_bytes(whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", checkpoint.FORMAT + 1)
        with pytest.raises(UsageError, match=r"checkpoint\.pt is no checkpoint of this version of anyrnn$"):
            run(choice)


def test_a_cell_that_has_changed(options: Make, tmp_path: Path) -> None:
    """In what it computes, not in how it is written."""
    file = tmp_path / "cells.py"
    file.write_text(OWN_CELL)
    choice = options(cell=f"{file}:mine", steps=3)
    run(choice)
    for before, after in (("h = rate", "h = 2 * rate"), ("rate=0.5", "rate=0.6"), ("init=0.0", "init=0.1")):
        file.write_text(OWN_CELL.replace(before, after))
        with pytest.raises(UsageError, match=r"--resume: .*checkpoint\.pt is of a run whose cell .*:mine had other equations$"):
            run(replace(choice, resume=True))
    file.write_text(
        "# the same\n" + OWN_CELL.replace("h = rate", "later = rate").replace("h, State(h=h)", "later, State(h=later)")
    )
    run(replace(choice, resume=True))


OF_FUNCTIONS = """
from functools import partial
from anyrnn import State, affine, cell, relu, tanh

def leaky(x, slope):
    return relu(x) - slope * relu(-x)

@cell
def mine(x, h, *, inner=(tanh, relu), outer=partial(leaky, slope=0.1)):
    first, second = inner
    h = outer(first(affine("a", x, h)) + second(affine("b", x)))
    return h, State(h=h)
"""


def test_hyper_parameters_that_are_written_with_their_addresses(options: Make, tmp_path: Path) -> None:
    file = tmp_path / "cells.py"
    file.write_text(OF_FUNCTIONS)
    choice = options(cell=f"{file}:mine", steps=3)
    run(choice)
    run(replace(choice, resume=True))  # the file is read again, so its functions are others
    file.write_text(OF_FUNCTIONS.replace("slope=0.1", "slope=0.2"))
    with pytest.raises(UsageError, match="had other equations"):
        run(replace(choice, resume=True))


def test_other_data(options: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    run(options(steps=3))
    data = datasets.digits()
    data.train.labels[0] += 1
    monkeypatch.setattr(datasets, "digits", lambda: data)
    with pytest.raises(UsageError, match=r"checkpoint\.pt is of a run with other training data$"):
        run(options(steps=3, resume=True))
