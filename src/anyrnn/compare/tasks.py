"""The tasks that cells are compared by, from their data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from anyrnn import datasets
from anyrnn.compare import controls
from anyrnn.compare.examples import ACCURACY, BITS, Examples, Task
from anyrnn.compare.options import Options
from anyrnn.datasets import Dataset
from anyrnn.datasets._sequences import every_fifth
from anyrnn.train import identity
from anyrnn.train.errors import UsageError
from anyrnn.train.loop import batches

VALIDATION_IMAGES = 5000
ORDER_OF_PIXELS = 784


def load(options: Options) -> Task:
    """The task of a comparison. Raises: UsageError for data that are missing or damaged, and for a batch larger than they are."""
    makers: dict[str, Callable[[], Task]] = {
        "digits": lambda: _stratified(datasets.digits()),
        "mnist": lambda: _rows(datasets.mnist(options.folder)),
        "pixels": lambda: _pixels(datasets.mnist(options.folder)),
        "vowels": lambda: _stratified(datasets.vowels(options.folder)),
        "chars": lambda: _characters(datasets.characters(options.folder), options.steps_of_sequence),
        "adding": lambda: controls.adding(options.steps_of_sequence),
        "copy": lambda: controls.copy(options.steps_of_sequence),
    }
    try:
        task = makers[options.task]()
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error
    if task.largest_batch is not None and options.batch > task.largest_batch:
        raise UsageError(f"--batch {options.batch}: there are only {task.largest_batch} training sequences")
    return task


def _stratified(dataset: Dataset) -> Task:
    """Every fifth training sequence of each label is kept to choose by."""
    return _labelled(dataset, every_fifth(dataset.train.labels), f"every fifth training sequence of each {dataset.label}")


def _rows(dataset: Dataset) -> Task:
    kept = np.zeros(len(dataset.train), np.bool_)
    kept[-min(VALIDATION_IMAGES, len(kept) // 5) :] = True
    return _labelled(dataset, kept, "the last training images")


def _pixels(dataset: Dataset) -> Task:
    """Pixel by pixel, T = 784 and D = 1, in one order that is the same for all images and all runs.

    Source: Le, Jaitly & Hinton 2015, A Simple Way to Initialize Recurrent Networks of Rectified Linear Units, arXiv 1504.00941.
    """
    order = np.random.default_rng(ORDER_OF_PIXELS).permutation(dataset.steps * dataset.features)

    def scattered(images: NDArray[Any]) -> NDArray[Any]:
        return images.reshape(len(images), -1)[:, order, None]

    train, test = (replace(part, inputs=scattered(part.inputs)) for part in (dataset.train, dataset.test))
    task = _rows(replace(dataset, name="pixels", train=train, test=test))
    return replace(task, about=f"{task.about}; pixel by pixel in one random order")


def _labelled(dataset: Dataset, kept: NDArray[np.bool_], chosen_by: str) -> Task:
    parts = [
        Examples(part.inputs[where], part.labels[where], None if part.lengths is None else part.lengths[where])
        for part, where in ((dataset.train, ~kept), (dataset.train, kept), (dataset.test, slice(None)))
    ]
    train, validation, test = parts
    counts = np.bincount(dataset.test.labels, minlength=dataset.classes)
    about = (
        f"{len(train)} {dataset.of} to train on, {len(validation)} to choose by ({chosen_by}), {len(test)} to test on "
        f"({dataset.held_out})"
    )
    return Task(
        name=dataset.name,
        features=dataset.features,
        outputs=dataset.classes,
        steps=dataset.steps,
        head="last",
        measure=ACCURACY,
        batches=_endless(train),
        validation=validation,
        test=test,
        digest=identity.of_arrays([array for part in parts for array in (part.inputs, part.targets, part.lengths)]),
        about=about,
        largest_batch=len(train),
        guess=float(counts.max() / len(test)) * ACCURACY.scale,
        guessing=f"to name the most frequent {dataset.label}",
    )


def _characters(text: datasets.Text, steps: int) -> Task:
    """The next character at each step. Trained on windows of the text that begin anywhere, with all steps; what is to choose by
    and to test on is cut into windows of which the last half counts, so that each character is told after half a window at least.
    """
    counted = max(1, steps // 2)
    shortest = min(map(len, (text.train, text.validation, text.test)))
    if shortest <= steps:
        raise ValueError(f"--length {steps}: the shortest part of the text has only {shortest} characters")

    def windows(part: NDArray[np.int64], stride: int, counted: int | None) -> Examples:
        found = sliding_window_view(part, steps + 1)[::stride]
        return Examples(found[:, :-1], found[:, 1:], counted=counted)

    train = windows(text.train, 1, None)
    shares = np.bincount(text.train, minlength=len(text.alphabet)) + 1.0
    surprise = -np.log(shares / shares.sum())[text.test].mean()
    return Task(
        name="chars",
        features=len(text.alphabet),
        outputs=len(text.alphabet),
        steps=steps,
        head="each",
        measure=BITS,
        batches=_endless(train),
        validation=windows(text.validation, counted, counted),
        test=windows(text.test, counted, counted),
        digest=identity.of_arrays([text.train, text.validation, text.test]),
        about=f"windows of {steps} characters of {len(text.alphabet)} kinds: {len(text.train):,} to train on, "
        f"{len(text.validation):,} to choose by, {len(text.test):,} to test on, in this order in the text; states begin anew in "
        f"each window, and in those to choose by and to test on the last {counted} steps count",
        largest_batch=len(train),
        guess=float(surprise) * BITS.scale,
        guessing="to know how frequent characters are",
    )


def _endless(train: Examples) -> Callable[[int, int], Iterator[Examples]]:
    def found(size: int, seed: int) -> Iterator[Examples]:
        return (train.at(places) for places in batches(len(train), size, seed))

    return found
