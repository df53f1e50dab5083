import math
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from anyrnn import datasets
from anyrnn.compare import controls, tasks
from anyrnn.compare.examples import Task
from anyrnn.compare.options import make
from anyrnn.train.errors import UsageError
from tests.train.test_program import write_mnist


def task_of(name: str, **given: Any) -> Task:
    return tasks.load(make("lstm", name, **given))


def first_batches(task: Task, size: int, seed: int, count: int = 3) -> list[np.ndarray[Any, Any]]:
    return [batch.inputs for batch in islice(task.batches(size, seed), count)]


def test_the_digits_are_in_three_parts() -> None:
    task, data = task_of("digits"), datasets.digits()
    taken = np.concatenate(first_batches(task, 1157, seed=0, count=1))
    seen = {image.tobytes() for image in (*taken, *task.validation.inputs)}
    assert len(taken) + len(task.validation) == len(data.train)
    assert seen == {image.tobytes() for image in data.train.inputs}
    np.testing.assert_array_equal(task.test.inputs, data.test.inputs)
    assert task.largest_batch == 1157
    assert np.bincount(task.validation.targets).min() >= 27


@pytest.mark.parametrize("name", ["digits", "adding", "copy"])
def test_batches_follow_from_the_seed(name: str) -> None:
    task = task_of(name, **({} if name == "digits" else {"length": 12}))
    one, again, other = (first_batches(task, 5, seed) for seed in (3, 3, 4))
    for a, b, c in zip(one, again, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (a != c).any()


@pytest.mark.parametrize("steps", [2, 7, 100])
def test_adding(steps: int) -> None:
    task = controls.adding(steps)
    (batch,) = islice(task.batches(400, 0), 1)
    numbers, marks = batch.inputs[..., 0], batch.inputs[..., 1]
    np.testing.assert_array_equal(marks[:, : steps // 2].sum(1), 1)
    np.testing.assert_array_equal(marks[:, steps // 2 :].sum(1), 1)
    np.testing.assert_allclose((numbers * marks).sum(1), batch.targets, rtol=1e-6)
    assert numbers.min() >= 0
    assert numbers.max() <= 1
    assert marks.any(0).all()
    always_one = torch.ones(len(task.test), 1)
    assert float(task.loss(always_one, task.test)) == pytest.approx(1 / 6, rel=0.1)


@pytest.mark.parametrize("delay", [1, 5, 100])
def test_copy(delay: int) -> None:
    task = controls.copy(delay)
    (batch,) = islice(task.batches(300, 0), 1)
    inputs, targets = batch.inputs, batch.targets
    assert inputs.shape == targets.shape == (300, delay + 20)
    np.testing.assert_array_equal(inputs[:, :10], targets[:, -10:])
    assert set(np.unique(inputs[:, :10])) == set(range(8))
    assert (inputs[:, 9 + delay] == 9).all()
    blank = np.delete(inputs[:, 10:], delay - 1, axis=1)
    assert (blank == 8).all()
    assert (targets[:, :-10] == 8).all()


def test_what_guessing_gives_in_copy() -> None:
    task = controls.copy(5)
    sure = torch.full((len(task.test), task.steps, task.outputs), -1e4)
    sure[:, :-10, 8] = 0
    sure[:, -10:, :8] = 0
    assert float(task.loss(sure, task.test)) == pytest.approx(task.guess, rel=1e-4)
    assert task.guess == pytest.approx(10 * math.log(8) / 25)


def test_symbols_are_vectors_with_a_single_one() -> None:
    task = controls.copy(3)
    inputs, lengths = task.tensors(task.test.at(slice(0, 4)))
    assert inputs.shape == (4, 23, 10)
    assert lengths is None
    np.testing.assert_array_equal(inputs.argmax(-1), task.test.inputs[:4])
    assert (inputs.sum(-1) == 1).all()


def test_pixels_have_one_order_for_all(tmp_path: Path) -> None:
    write_mnist(tmp_path, images=40)
    rows, one, again = (task_of(name, data=tmp_path, batch=9, hidden=4) for name in ("mnist", "pixels", "pixels"))
    assert (one.steps, one.features) == (784, 1)
    order = np.random.default_rng(784).permutation(784)
    assert sorted(order) == list(range(784))
    for of_rows, of_pixels, once_more in ((rows.validation, one.validation, again.validation), (rows.test, one.test, again.test)):
        np.testing.assert_array_equal(of_rows.inputs.reshape(-1, 784)[:, order], of_pixels.inputs[..., 0])
        np.testing.assert_array_equal(of_pixels.inputs, once_more.inputs)
    for seed in (0, 1):
        for of_rows, of_pixels in zip(first_batches(rows, 9, seed), first_batches(one, 9, seed), strict=True):
            np.testing.assert_array_equal(of_rows.reshape(9, 784)[:, order], of_pixels[..., 0])
    assert one.digest == again.digest != rows.digest


def test_the_last_images_are_kept_to_choose_by(tmp_path: Path) -> None:
    write_mnist(tmp_path, images=40)
    task = task_of("mnist", data=tmp_path, batch=9)
    np.testing.assert_array_equal(task.validation.inputs, datasets.mnist(tmp_path).train.inputs[-8:])
    assert task.largest_batch == 32


def test_vowels_have_their_lengths(shared: Callable[[str], Path]) -> None:
    task = task_of("vowels", data=shared("data/japanese-vowels"))
    (batch,) = islice(task.batches(30, 0), 1)
    assert batch.lengths is not None
    assert (batch.lengths.min() >= 7, batch.lengths.max() <= 29, len(set(batch.lengths)) > 1) == (True, True, True)
    assert (len(task.validation), task.largest_batch, len(task.test)) == (54, 216, 370)


def write_text(folder: Path, text: str) -> Path:
    (folder / "input.txt").write_text(text, encoding="utf-8")
    return folder


def test_characters_are_told_from_those_before(tmp_path: Path) -> None:
    text = "".join(chr(97 + i * i % 23 % 7) for i in range(2000))
    task = task_of("chars", data=write_text(tmp_path, text), length=9, batch=6)
    (batch,) = islice(task.batches(6, 0), 1)
    np.testing.assert_array_equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    assert batch.counted is None
    data = datasets.characters(tmp_path)
    told = task.test.targets[:, -4:].flatten()  # each character once, from half a window on
    np.testing.assert_array_equal(told, data.test[6 : 6 + len(told)])
    assert len(data.test) - 6 - len(told) < 4


def test_of_symbols_those_that_count(tmp_path: Path) -> None:
    task = task_of("chars", data=write_text(tmp_path, "abcd" * 200), length=8, batch=6)
    answers = torch.randn(len(task.test), 8, 4, generator=torch.Generator().manual_seed(0))
    losses = -answers.log_softmax(-1).gather(-1, torch.from_numpy(task.test.targets.copy())[..., None])[..., 0]
    assert float(task.loss(answers, task.test)) == pytest.approx(float(losses[:, -4:].mean()), rel=1e-5)


def test_shakespeare(shared: Callable[[str], Path]) -> None:
    task = task_of("chars", data=shared("data/text"))
    assert task.features == task.outputs == 65
    assert task.guess is not None
    assert 4.5 < task.guess < 5


def test_errors_of_data(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--batch 1158: there are only 1157 training sequences"):
        task_of("digits", batch=1158)
    with pytest.raises(UsageError, match="there is no folder 'nowhere' to read a text from"):
        task_of("chars", data="nowhere")
    with pytest.raises(UsageError, match=r"--length 50: the shortest part of the text has only 5 characters"):
        task_of("chars", data=write_text(tmp_path, "abcde" * 20), length=50)
