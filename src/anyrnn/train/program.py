"""One run, from options to the files it leaves."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from anyrnn import datasets
from anyrnn.train.errors import UsageError
from anyrnn.train.options import Options
from anyrnn.train.output import holding
from anyrnn.train.requirements import require


def run(options: Options) -> dict[str, Any] | None:
    """Train, evaluate, and leave summary.json, model.safetensors, checkpoint.pt and two pictures in `options.output`. Gives the
    summary; None in all processes but the first, where torchrun has started several.

    Ctrl-C ends the training after the step at hand; what there is is evaluated and saved, and the summary says `interrupted`.

    Raises: UsageError and MissingExtraError before any work; DivergedError when the loss is no longer finite; KeyboardInterrupt
    for a second Ctrl-C, or one before the training.
    """
    require(options.dataset)
    from anyrnn.train import checkpoint, loop, results
    from anyrnn.train.interrupt import stop_requests
    from anyrnn.train.layers import find_layers
    from anyrnn.train.model import build
    from anyrnn.train.processes import joined

    layers = find_layers(options)
    results.check_output(options.output)
    content = checkpoint.read(options) if options.resume else None
    dataset = _load(options)
    if options.batch > len(dataset.train):
        raise UsageError(f"--batch {options.batch}: there are only {len(dataset.train)} training {dataset.of}")
    with limited_threads(options.threads), joined() as processes, ExitStack() as alone:
        if options.batch < processes.count:
            raise UsageError(f"--batch {options.batch}: there are {processes.count} processes, and each takes a part")
        if processes.leads:
            alone.enter_context(holding(options.output, "training"))
            if content is None and any((options.output / name).exists() for name in (*results.FILES, checkpoint.CHECKPOINT)):
                print(f"{options.output}: this run takes the place of an earlier one (--resume goes on with it)", file=sys.stderr)
        model = build(layers, dataset, options)
        described = results.description(model, dataset, options)
        checkpoints = checkpoint.of_run(model, dataset, options)
        before = None if content is None else checkpoints.checked(content)
        with stop_requests() as stop:
            record = loop.train(model, dataset, options, stop, checkpoints, processes, before)
            if not processes.leads:
                return None
            if record.interrupted:
                done = f"{len(record.losses)} of {options.steps} steps"
                print(f"interrupted after {done}: saving what there is in {options.output}", file=sys.stderr)
            loop.evaluate(model, dataset.test, record)
            results.save_weights(model, options, described)
            return results.save_summary(model, dataset, options, record)


def _load(options: Options) -> datasets.Dataset:
    if options.dataset == "digits":
        return datasets.digits()
    assert options.data is not None
    read = {"mnist": datasets.mnist, "vowels": datasets.vowels}[options.dataset]
    try:
        return read(options.data)
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error


@contextmanager
def limited_threads(count: int | None) -> Iterator[None]:
    """torch's threads, which are also those of our kernels."""
    import torch

    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
