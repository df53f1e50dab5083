import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import safetensors
import safetensors.torch
import torch

import anyrnn
from anyrnn import convert, runtime
from anyrnn.datasets import digits
from anyrnn.train.errors import UsageError
from anyrnn.train.layers import find_layers
from anyrnn.train.model import build
from anyrnn.train.options import Options
from anyrnn.train.pictures import confusion_picture
from anyrnn.train.program import run
from anyrnn.train.record import Record
from anyrnn.train.results import check_output, confusion_matrix, title

PNG = b"\x89PNG\r\n\x1a\n"


def test_what_a_run_leaves(options: Callable[..., Options]) -> None:
    choice = options(steps=30, bidirectional=True, head="last", threads=1)
    summary = run(choice)
    assert sorted(file.name for file in choice.output.iterdir()) == [
        "checkpoint.pt",
        "confusion-matrix.png",
        "learning-curve.png",
        "model.safetensors",
        "summary.json",
    ]
    for picture in choice.output.glob("*.png"):
        content = picture.read_bytes()
        assert content.startswith(PNG)
        assert content.endswith(b"IEND\xaeB`\x82")
    assert json.loads((choice.output / "summary.json").read_text()) == summary


@pytest.mark.parametrize("layers_from", ["anyrnn", "torch"])
def test_the_summary(options: Callable[..., Options], layers_from: str) -> None:
    choice = options(steps=30, layers_from=layers_from, threads=1, seed=5)
    summary = run(choice)
    expected = {
        "dataset": "digits",
        "cell": "lstm",
        "layers_from": layers_from,
        "hidden": 24,
        "layers": 1,
        "bidirectional": False,
        "head": "all",
        "batch": 32,
        "steps": 30,
        "steps_asked": 30,
        "interrupted": False,
        "lr": 0.01,
        "seed": 5,
        "threads": 1,
        "train_images": 1442,
        "test_images": 355,
        "parameters": 4 * 24 * (8 + 24 + 2) + 10 * (8 * 24 + 1),
        "output": str(choice.output),
    }
    assert {key: summary[key] for key in expected} == expected
    assert summary["versions"]["anyrnn"] == anyrnn.__version__
    assert 0 < summary["loss"] < 2.4
    assert summary["seconds"] > 0
    assert summary["backend"] == "torch" if layers_from == "torch" else summary["backend"] != "torch"
    confusion = np.array(summary["confusion"])
    assert confusion.shape == (10, 10)
    assert confusion.sum() == 355
    assert np.trace(confusion) / 355 == summary["test_accuracy"] == summary["evaluations"][-1]["test_accuracy"]


def test_the_weights_read_the_digits_again(options: Callable[..., Options]) -> None:
    from anyrnn.train import loop

    choice = options(steps=30, layers=2)
    summary = run(choice)
    file = choice.output / "model.safetensors"
    data = digits()
    model = build(find_layers(options(layers=2, seed=99)), data, choice)
    model.load_state_dict(safetensors.torch.load_file(file))
    record = Record()
    loop.evaluate(model, data.test, record)
    assert record.evaluations[0].accuracy == summary["test_accuracy"]
    with safetensors.safe_open(file, framework="pt") as opened:
        metadata = opened.metadata()
    expected = {
        "cell": "lstm",
        "input_size": "8",
        "hidden_size": "24",
        "num_layers": "2",
        "bidirectional": "false",
        "head": "all",
    }
    assert {key: metadata[key] for key in expected} == expected
    assert metadata["anyrnn"] == anyrnn.__version__


OWN = """
from anyrnn import State, affine, cell, sigmoid, tanh

@cell
def four(x, h):
    a, b, c, d = (affine(name, x, h) for name in "abcd")
    h = sigmoid(a) * h + sigmoid(b) * tanh(c) + 0.1 * tanh(d)
    return h, State(h=h)
"""


@pytest.mark.parametrize("given", [
    {"head": "all"}, {"head": "last"}, {"head": "last", "bidirectional": True, "layers": 2}, {"cell": "rnn_tanh"},
    {"layers_from": "torch", "cell": "gru", "layers": 2}, {"cell": "own"},
])  # fmt: skip
def test_the_network_runs_without_torch(options: Callable[..., Options], tmp_path: Path, given: dict[str, Any]) -> None:
    """Also that of a cell of one's own, whose parameters have the names and shapes of an LSTM's."""
    if given == {"cell": "own"}:
        (tmp_path / "four.py").write_text(OWN)
        given = {"cell": f"{tmp_path / 'four.py'}:four"}
    choice = options(steps=5, **given)
    run(choice)
    file, images = choice.output / "model.safetensors", digits().test.inputs[:7]
    model = build(find_layers(choice), digits(), choice)
    model.load_state_dict(safetensors.torch.load_file(file))
    expected = model.eval()(torch.from_numpy(images)).detach().numpy()
    network = runtime.load(file)
    assert network.recurrent["recurrent"].network.graph.name == choice.cell.rpartition(":")[2]
    np.testing.assert_allclose(network.run(images)[0], expected, rtol=1e-5, atol=1e-5)
    exported = tmp_path / "exported.onnx"
    convert.save(network, exported)
    session = onnxruntime.InferenceSession(exported)
    (logits,) = session.run(["linear"], {"x": images})
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


def test_a_second_run_replaces_the_first(options: Callable[..., Options]) -> None:
    run(options(steps=2))
    summary = run(options(steps=3))
    assert json.loads((options().output / "summary.json").read_text())["steps"] == summary["steps"] == 3
    assert len(list(options().output.iterdir())) == 5


def test_confusion_matrix() -> None:
    matrix = confusion_matrix(np.array([0, 0, 1, 2]), np.array([0, 2, 1, 1]), classes=3)
    assert matrix.tolist() == [[1, 0, 1], [0, 1, 0], [0, 1, 0]]


def test_a_digit_that_is_not_there_is_drawn() -> None:
    figure = confusion_picture(np.array([[2, 1], [0, 0]]), "two digits", digits())
    assert "2 of 3 held-out images right (66.67%)" in figure.axes[0].get_title()


def test_a_title_says_what_is_unusual(options: Callable[..., Options]) -> None:
    assert title(options()) == "digits, lstm, 24 hidden"
    unusual = options(cell="gru", layers=2, bidirectional=True, layers_from="torch")
    assert title(unusual) == "digits, gru, 24 hidden, 2 layers, bidirectional, torch.nn"


def test_the_output_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    for folder in (tmp_path / "taken", tmp_path / "taken" / "below"):
        with pytest.raises(UsageError, match=r"--output .*: '.*taken' is a file, not a folder"):
            check_output(folder)


def test_the_output_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(dir: Path) -> None:
        raise PermissionError(13, "Permission denied", str(dir))

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(UsageError, match=r"--output .*: the folder '.*' cannot be written to: Permission denied"):
        check_output(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_where_a_file_would_be(tmp_path: Path) -> None:
    check_output(tmp_path)
    (tmp_path / "summary.json").mkdir()
    with pytest.raises(UsageError, match=r"--output .*: 'summary.json' is a folder there, and would be a file"):
        check_output(tmp_path)
