"""Runs that end and go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from anyrnn.train import loop
from anyrnn.train.checkpoint import CHECKPOINT
from anyrnn.train.errors import UsageError
from anyrnn.train.options import Options
from anyrnn.train.program import run
from tests.train.test_program import press

Make = Callable[..., Options]


rate = loop.learning_rate


def left_by(choice: Options) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The weights of a run, and what its last checkpoint says of it."""
    content = torch.load(choice.output / CHECKPOINT, weights_only=True)
    return load_file(choice.output / "model.safetensors"), content["record"]


def check_same(ours: Options, expected: Options, evaluations: bool = True) -> None:
    (weights, record), (of_expected, expected_record) = left_by(ours), left_by(expected)
    assert weights.keys() == of_expected.keys()
    assert all(weights[name].equal(of_expected[name]) for name in weights)
    assert record["losses"] == expected_record["losses"]
    assert not record["interrupted"]
    if evaluations:
        assert [e["loss"] for e in record["evaluations"]] == [e["loss"] for e in expected_record["evaluations"]]


@pytest.mark.parametrize("layers_from", ["anyrnn", "torch"])
def test_a_run_that_was_interrupted_goes_on_to_the_same_bits(
    options: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layers_from: str
) -> None:
    whole = options(steps=30, bidirectional=True, layers_from=layers_from, output=tmp_path / "whole")
    parts = replace(whole, output=tmp_path / "parts")
    expected = run(whole)
    with monkeypatch.context() as patch:
        press(patch, loop, "learning_rate", when=17)
        interrupted = run(parts)
    assert (interrupted["steps"], interrupted["interrupted"]) == (17, True)
    found = run(replace(parts, resume=True))
    assert (found["steps"], found["interrupted"]) == (30, False)
    assert found["test_loss"] == expected["test_loss"]
    check_same(parts, whole, evaluations=False)  # an interrupted run evaluates once more


def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint(
    options: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = options(steps=30, save_every=4, output=tmp_path / "whole")
    parts = replace(whole, output=tmp_path / "parts")
    run(whole)
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
    file.write_bytes(b"no zip file")
    with pytest.raises(UsageError, match=r"--resume: .*checkpoint\.pt cannot be read: "):
        run(choice)
    torch.save({"format": 0}, file)
    with pytest.raises(UsageError, match=r"checkpoint\.pt is no checkpoint of this version of anyrnn"):
        run(choice)


def test_a_cell_that_has_changed(options: Make, tmp_path: Path) -> None:
    text = "from anyrnn import *\n\n@cell\ndef mine(x, h):\n    h = tanh(affine('{}', x, h))\n    return h, State(h=h)\n"
    file = tmp_path / "cells.py"
    file.write_text(text.format("one"))
    run(options(cell=f"{file}:mine", steps=3))
    file.write_text(text.format("one two").replace("affine('one two', x, h)", "sum(split(affine('one two', x, h), 2))"))
    with pytest.raises(UsageError, match=r"--resume: .*checkpoint\.pt is of another model: .*size mismatch"):
        run(options(cell=f"{file}:mine", steps=5, resume=True))
