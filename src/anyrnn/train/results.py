"""What a run leaves in its folder: the weights, the summary, two pictures. Each file is written aside and renamed."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

import anyrnn.torch
from anyrnn import runtime
from anyrnn._files import written_aside
from anyrnn.datasets import Dataset
from anyrnn.errors import UnsupportedError
from anyrnn.runtime import saved
from anyrnn.train.checkpoint import CHECKPOINT
from anyrnn.train.errors import UsageError
from anyrnn.train.model import Reader
from anyrnn.train.options import Options
from anyrnn.train.output import check_folder
from anyrnn.train.pictures import confusion_picture, learning_picture
from anyrnn.train.record import Record

RECENT = 100
FILES = WEIGHTS, SUMMARY, LEARNING, CONFUSION = (
    "model.safetensors",
    "summary.json",
    "learning-curve.png",
    "confusion-matrix.png",
)


def check_output(folder: Path) -> None:
    """Raises UsageError when what a run leaves could not be written there; makes nothing yet."""
    check_folder(folder, (*FILES, CHECKPOINT))


def description(model: Reader, dataset: Dataset, options: Options) -> dict[str, str]:
    """The metadata of `model.safetensors`: the cell and the sizes, and the network that `anyrnn.runtime` runs, whose parameters
    have the names of the state dict. It has no weights, so it can be made before the training.

    Raises: UsageError when a file cannot keep the cell.
    """
    try:
        network = saved.metadata(network_of(model, dataset, options))
    except (UnsupportedError, ValueError) as error:
        raise UsageError(f"--cell {options.cell}: a file cannot keep this network: {error}") from error
    return {
        "format": "pt",
        "anyrnn": anyrnn.__version__,
        "cell": options.cell,
        "layers_from": options.layers_from,
        "input_size": str(dataset.features),
        "hidden_size": str(options.hidden),
        "num_layers": str(options.layers),
        "bidirectional": str(options.bidirectional).lower(),
        "head": options.head,
        "steps": str(dataset.steps),
        "classes": str(dataset.classes),
        "dataset": dataset.name,
        **network,
    }


def save_weights(model: Reader, options: Options, described: dict[str, str]) -> None:
    """`model.safetensors`: the state dict, described by `description`."""
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    with written_aside(options.output / WEIGHTS) as aside:
        aside.write_bytes(safetensors.torch.save(tensors, described))


def network_of(model: Reader, dataset: Dataset, options: Options) -> runtime.Network:
    """The same as a network at run time, of inputs x [N, T, features]; its output are the logits [N, classes]."""
    recurrent, last = model.recurrent, options.head == "last"
    if options.layers_from == "torch":
        sizes = (dataset.features, options.hidden, options.layers)
        recurrent = anyrnn.torch.Recurrent(options.cell, *sizes, bidirectional=options.bidirectional)
        recurrent.load_state_dict(model.recurrent.state_dict())
    layers: list[runtime.Layer] = [runtime.Recurrent.of("recurrent", "x", recurrent, last=last)]
    if not last:
        layers.append(runtime.Flatten("flatten", "recurrent", dataset.steps))
    weight, bias = (parameter.detach().cpu().numpy() for parameter in (model.linear.weight, model.linear.bias))
    layers.append(runtime.Dense("linear", layers[-1].name, weight, bias))
    return runtime.Network(dataset.features, layers, batch_first=True)


def save_summary(model: Reader, dataset: Dataset, options: Options, record: Record) -> dict[str, Any]:
    """`summary.json` and the pictures, from a record that ends with an evaluation. Gives what is in the JSON."""
    confusion = confusion_matrix(dataset.test.labels, record.evaluations[-1].predictions, dataset.classes)
    summary = summarise(model, dataset, options, record, confusion)
    with written_aside(options.output / SUMMARY) as aside:
        aside.write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    with written_aside(options.output / LEARNING) as aside:
        learning_picture(record, title(options)).savefig(aside, format="png")
    with written_aside(options.output / CONFUSION) as aside:
        confusion_picture(confusion, title(options), dataset).savefig(aside, format="png")
    return summary


def summarise(
    model: Reader, dataset: Dataset, options: Options, record: Record, confusion: np.ndarray[Any, Any]
) -> dict[str, Any]:
    """The run as plain data."""
    final = record.evaluations[-1]
    return {
        "dataset": dataset.name,
        "of": dataset.of,
        f"train_{dataset.of}": len(dataset.train),
        f"test_{dataset.of}": len(dataset.test),
        "held_out": dataset.held_out,
        "cell": options.cell,
        "layers_from": options.layers_from,
        "backend": backend_name(model, options),
        "hidden": options.hidden,
        "layers": options.layers,
        "bidirectional": options.bidirectional,
        "head": options.head,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "batch": options.batch,
        "steps": len(record.losses),
        "steps_asked": options.steps,
        "interrupted": record.interrupted,
        "lr": options.learning_rate,
        "seed": options.seed,
        "loss": float(np.mean(record.losses[-RECENT:])),
        "test_loss": final.loss,
        "test_accuracy": final.accuracy,
        "seconds": round(record.seconds, 3),
        "evaluation_seconds": round(record.evaluation_seconds, 3),
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "versions": {"anyrnn": anyrnn.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "output": str(options.output),
        "evaluations": [{"step": e.step, "test_loss": e.loss, "test_accuracy": e.accuracy} for e in record.evaluations],
        "confusion": confusion.tolist(),
    }


def backend_name(model: Reader, options: Options) -> str:
    """What ran the recurrent layers."""
    return "torch" if options.layers_from == "torch" else str(model.recurrent.backend_name)


def confusion_matrix(labels: np.ndarray[Any, Any], predictions: np.ndarray[Any, Any], classes: int) -> np.ndarray[Any, Any]:
    """How many sequences of each class (row) were read as each class (column), int64 [classes, classes]."""
    return np.bincount(labels * classes + predictions, minlength=classes * classes).reshape(classes, classes)


def title(options: Options) -> str:
    """A run in a few words, for people."""
    words = [options.dataset, options.cell, f"{options.hidden} hidden"]
    if options.layers > 1:
        words.append(f"{options.layers} layers")
    if options.bidirectional:
        words.append("bidirectional")
    if options.layers_from == "torch":
        words.append("torch.nn")
    return ", ".join(words)
