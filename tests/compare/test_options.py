from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anyrnn.compare import options
from anyrnn.compare.options import DEFAULTS, RATES, make, split
from anyrnn.train.errors import UsageError


def test_commas_within_parentheses_belong_to_a_cell() -> None:
    text = "lstm, fast_slow(lstm, residual(gru), depth=3) ,my_file.py:my_cell"
    assert split(text) == ["lstm", "fast_slow(lstm, residual(gru), depth=3)", "my_file.py:my_cell"]
    assert split("o'brien/a.py:x,o'brien/b.py:y(kind=\"a,)'\"),gru") == ["o'brien/a.py:x", "o'brien/b.py:y(kind=\"a,)'\")", "gru"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("residual(lstm", r"--cells 'residual\(lstm': parentheses do not match"),
        ("residual(kind='lstm)", r"parentheses do not match"),
        ("lstm),(gru", r"--cells 'lstm\),\(gru': parentheses do not match"),
        ("lstm,,gru", "--cells 'lstm,,gru': a cell is missing beside a comma"),
        ("lstm,", "--cells 'lstm,': a cell is missing beside a comma"),
        ("", "--cells is empty"),
    ],
)
def test_cells_that_cannot_be_told_apart(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        split(text)


@pytest.mark.parametrize("task", DEFAULTS)
def test_what_is_left_out_is_filled_in(task: str) -> None:
    data = Path("somewhere") if task in options.FILES else None
    found = make("lstm", task, data=data)
    defaults = DEFAULTS[task]
    assert (found.hidden, found.batch, found.steps, found.length) == (
        defaults.hidden,
        defaults.batch,
        defaults.steps,
        defaults.length,
    )
    assert (found.seeds, found.equal, found.learning_rates, found.tuning) == (5, "hidden", RATES, (10_000, 10_001))
    assert found.output == Path("runs") / f"compare-{task}"


def test_of_one_rate_there_is_nothing_to_choose() -> None:
    assert make("lstm", "digits", learning_rate=0.01).tuning == ()
    assert make("lstm", "digits", learning_rate=[0.01, 0.1], tuning_seeds=3).tuning == (10_000, 10_001, 10_002)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cells": []}, "--cells is empty; give names of built-in cells"),
        ({"cells": "gru,lstm,gru"}, "--cells: gru is there twice"),
        ({"task": "digit"}, r"--task: unknown task 'digit' \(did you mean 'digits'\?\); the tasks are digits, mnist"),
        ({"task": "mnist"}, "mnist needs --data DIR: the folder with train-images-idx3-ubyte"),
        ({"task": "chars"}, r"chars needs --data DIR: the folder with tiny_shakespeare\.txt or input\.txt"),
        ({"data": "here"}, "--data is for mnist, pixels, vowels, chars: digits needs no files"),
        ({"length": 20}, "--length is for adding, copy, chars: those of digits are as long as they are"),
        ({"task": "adding", "length": 1}, "--length 1: expected a whole number from 2"),
        ({"seeds": 0}, "--seeds 0: expected a whole number from 1"),
        ({"seeds": 10_001}, "--seeds 10001: expected 10000 at the most"),
        ({"hidden": 2.5}, r"--hidden 2\.5: expected a whole number from 1"),
        ({"tuning_seeds": 0}, "--tuning-seeds 0: expected a whole number from 1"),
        ({"equal": "size"}, "--equal size: expected hidden or parameters"),
        ({"learning_rate": [0.1, 0.1]}, r"--learning-rate 0\.1,0\.1: expected finite numbers above 0, each once"),
        ({"learning_rate": -1.0}, "--learning-rate -1: expected finite numbers above 0, each once"),
        ({"learning_rate": 0}, "--learning-rate 0: expected finite numbers above 0, each once"),
        ({"learning_rate": []}, "--learning-rate : expected finite numbers above 0, each once"),
        ({"clip": float("nan")}, "--clip nan: expected a finite number from 0"),
        ({"clip": -1.0}, r"--clip -1\.0: expected a finite number from 0"),
    ],
)
def test_what_does_not_go_together(settings: Callable[..., dict[str, Any]], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(**settings(**changes))
