import gzip
import signal
import struct
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from anyrnn import datasets
from anyrnn._files import held
from anyrnn.train import loop, results
from anyrnn.train.errors import DivergedError, UsageError
from anyrnn.train.options import DEFAULTS, Options
from anyrnn.train.program import run
from tests.zoo import FEW

OWN_CELL = """
from anyrnn import State, affine, cell, sigmoid, tanh

@cell
def mine(x, h):
    f = sigmoid(affine("f", x, h))
    h = f * h + (1 - f) * tanh(affine("g", x))
    return h, State(h=h)

@cell
def forgetful(x, h):
    return tanh(affine("g", x, h)), State(memory=h)
"""


def test_the_number_of_threads_holds_for_the_run_only(options: Callable[..., Options]) -> None:
    before = torch.get_num_threads()
    assert run(options(steps=1, threads=2))["threads"] == 2
    assert torch.get_num_threads() == before


@pytest.mark.slow
def test_every_built_in_cell_trains(options: Callable[..., Options]) -> None:
    from anyrnn import cells

    for name in FEW:
        graph = cells.load(name).trace()
        if graph.input_size_name == "hidden" or len(graph.inputs) > 1:
            continue
        summary = run(options(cell=name, steps=60, hidden=16))
        assert summary["cell"] == name
        assert summary["evaluations"][-1]["test_loss"] < summary["evaluations"][0]["test_loss"], name
        assert summary["test_accuracy"] > 0.5, name


def test_a_cell_of_the_user_trains(options: Callable[..., Options], tmp_path: Path) -> None:
    (tmp_path / "cells_of_mine.py").write_text(OWN_CELL)
    summary = run(options(cell=f"{tmp_path / 'cells_of_mine.py'}:mine", steps=100, bidirectional=True, layers=2))
    assert summary["test_accuracy"] > 0.7


def test_an_error_in_a_cell_of_the_user_comes_before_any_work(options: Callable[..., Options], tmp_path: Path) -> None:
    (tmp_path / "cells_of_mine.py").write_text(OWN_CELL)
    with pytest.raises(
        UsageError, match=r"--cell .*cells_of_mine\.py:\d+: cell 'forgetful' must return the states h; it returned memory"
    ):
        run(options(cell=f"{tmp_path / 'cells_of_mine.py'}:forgetful"))
    assert not options().output.exists()


def test_what_a_file_cannot_keep_is_refused_before_any_work(
    options: Callable[..., Options], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anyrnn.runtime.saved.MOST_LAYERS", 1)
    with pytest.raises(UsageError, match="--cell lstm: a file cannot keep this network: a network of more than 1 layers"):
        run(options(layers=2))
    assert not options().output.exists()


def test_one_training_at_a_time_in_a_folder(options: Callable[..., Options]) -> None:
    chosen = options(steps=2)
    chosen.output.mkdir(parents=True)
    with held(chosen.output), pytest.raises(UsageError, match="another training is at work there"):
        run(chosen)
    assert run(chosen)["interrupted"] is False


def test_too_large_a_batch(options: Callable[..., Options]) -> None:
    with pytest.raises(UsageError, match="--batch 1443: there are only 1442 training images"):
        run(options(batch=1443))


def test_divergence_leaves_nothing(options: Callable[..., Options]) -> None:
    with pytest.raises(DivergedError):
        run(options(cell="rnn_relu", learning_rate=1e30, layers_from="torch"))
    with pytest.raises(DivergedError, match=r"the loss on what is held out is (nan|inf) at step 1: training has diverged"):
        run(options(cell="rnn_relu", learning_rate=1e30, layers_from="torch", steps=1))
    assert not options().output.exists()


def test_that_an_earlier_run_is_replaced_is_said(options: Callable[..., Options], capsys: pytest.CaptureFixture[str]) -> None:
    told = f"{options().output}: this run takes the place of an earlier one"
    for steps, resume, expected in ((2, False, False), (3, True, False), (3, False, True)):
        run(options(steps=steps, resume=resume))
        assert (told in capsys.readouterr().err) == expected
    for name in results.FILES:  # as a run that was killed leaves it
        (options().output / name).unlink()
    run(options(steps=2))
    assert told in capsys.readouterr().err


def press(monkeypatch: pytest.MonkeyPatch, module: object, name: str, when: int) -> None:
    """Press Ctrl-C at the given call of a function."""
    real = getattr(module, name)
    calls = iter(range(1, 10**9))

    def pressed(*arguments: object, **keywords: object) -> object:
        if next(calls) == when:
            signal.raise_signal(signal.SIGINT)
        return real(*arguments, **keywords)

    monkeypatch.setattr(module, name, pressed)


def test_ctrl_c_saves_what_there_is(
    options: Callable[..., Options], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    press(monkeypatch, loop, "learning_rate", when=7)
    summary = run(options(steps=5000))
    assert summary["interrupted"] is True
    assert (summary["steps"], summary["steps_asked"]) == (7, 5000)
    assert len(list(options().output.iterdir())) == 5
    assert f"interrupted after 7 of 5000 steps: saving what there is in {options().output}" in capsys.readouterr().err


def test_a_second_ctrl_c_ends_at_once_and_leaves_whole_files(
    options: Callable[..., Options], monkeypatch: pytest.MonkeyPatch
) -> None:
    press(monkeypatch, loop, "learning_rate", when=7)
    press(monkeypatch, results, "confusion_picture", when=1)
    with pytest.raises(KeyboardInterrupt):
        run(options(steps=5000))
    left = sorted(file.name for file in options().output.iterdir())
    assert left == ["checkpoint.pt", "learning-curve.png", "model.safetensors", "summary.json"]


def test_ctrl_c_while_saving_saves_all(options: Callable[..., Options], monkeypatch: pytest.MonkeyPatch) -> None:
    press(monkeypatch, results, "confusion_picture", when=1)
    assert run(options(steps=3))["interrupted"] is False
    assert len(list(options().output.iterdir())) == 5


def write_mnist(folder: Path, images: int) -> None:
    random = np.random.default_rng(0)
    for part in ("train", "t10k"):
        pixels = struct.pack(">4I", 0x803, images, 28, 28) + random.bytes(images * 28 * 28)
        labels = struct.pack(">2I", 0x801, images) + bytes(i % 10 for i in range(images))
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(pixels))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(labels)


def test_mnist_from_a_folder(options: Callable[..., Options], tmp_path: Path) -> None:
    write_mnist(tmp_path, images=40)
    summary = run(options(dataset="mnist", data=tmp_path, steps=2))
    assert (summary["train_images"], summary["test_images"]) == (40, 40)


def test_a_damaged_mnist_comes_before_any_work(options: Callable[..., Options], tmp_path: Path) -> None:
    write_mnist(tmp_path, images=40)
    file = tmp_path / "t10k-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(UsageError, match=rf"{file}: the gzip data ends too early: the file is truncated"):
        run(options(dataset="mnist", data=tmp_path))
    with pytest.raises(UsageError, match="there is no folder"):
        run(options(dataset="mnist", data=tmp_path / "nowhere"))
    assert not options().output.exists()


@pytest.mark.parametrize("layers_from", ["anyrnn", "torch"])
def test_mnist_is_learned(options: Callable[..., Options], shared: Callable[[str], Path], layers_from: str) -> None:
    data = shared("data/mnist")
    summary = run(options(dataset="mnist", data=data, cell="gru", hidden=32, batch=100, steps=60, layers_from=layers_from))
    assert summary["test_accuracy"] > 0.8


@pytest.mark.slow
@pytest.mark.parametrize(("cell", "published"), [("lstm", 0.9717), ("gru", 0.9666), ("rnn_tanh", 0.9298)])
def test_the_published_experiment(
    options: Callable[..., Options], shared: Callable[[str], Path], cell: str, published: float
) -> None:
    """The MNIST figures of the cuDNN forum thread after 1000 steps are reached, by our layers as by torch's."""
    settings = {"dataset": "mnist", "hidden": 256, "batch": 200, "steps": 1000, "learning_rate": 0.001}
    ours, theirs = (
        run(options(**settings, cell=cell, data=shared("data/mnist"), layers_from=layers_from))["test_accuracy"]
        for layers_from in ("anyrnn", "torch")
    )
    assert ours >= published
    assert abs(ours - theirs) <= 0.004


VOWELS = {"dataset": "vowels", **asdict(DEFAULTS["vowels"])}


def test_vowels_are_learned(options: Callable[..., Options], shared: Callable[[str], Path]) -> None:
    data = shared("data/japanese-vowels")
    accuracies = [run(options(**VOWELS, data=data, seed=seed))["test_accuracy"] for seed in range(3)]
    assert sum(accuracies) / 3 >= 0.96


def test_vowels_are_learned_alike_by_torch(options: Callable[..., Options], shared: Callable[[str], Path]) -> None:
    losses = []
    for layers_from in ("anyrnn", "torch"):
        few = options(**{**VOWELS, "steps": 5}, data=shared("data/japanese-vowels"), layers_from=layers_from)
        losses.append(run(few)["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_what_is_beyond_an_utterance_is_never_read(
    options: Callable[..., Options], shared: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = options(**{**VOWELS, "steps": 40}, data=shared("data/japanese-vowels"))
    clean = run(few)
    dataset = datasets.vowels(few.data or "")
    for part in (dataset.train, dataset.test):
        assert part.lengths is not None
        beyond = np.arange(dataset.steps) >= part.lengths[:, None]
        part.inputs[beyond] = np.nan
    monkeypatch.setattr(datasets, "vowels", lambda folder: dataset)
    poisoned = run(few)
    for figure in ("loss", "test_loss", "test_accuracy", "confusion"):
        assert poisoned[figure] == clean[figure]
