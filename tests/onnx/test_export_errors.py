"""What cannot be exported is refused before anything is written."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import anyrnn
import anyrnn.onnx
import anyrnn.torch
from anyrnn import MissingExtraError, State, Step, UnsupportedError, affine, cell, clip_gradient, tanh
from anyrnn.onnx.writing_network import write_network
from anyrnn.onnx.writing_nodes import Writer

OF_ARGUMENTS = [
    (
        {"opset": 14},
        ValueError,
        r"export: opset should be from 15 to \d+, got 14",
    ),
    ({"opset": 1000}, ValueError, r"export: opset should be from 15 to \d+, got 1000"),
    ({"opset": True}, ValueError, r"export: opset should be from 15 to \d+, got True"),
    ({"nodes": "lstm"}, ValueError, "export: nodes should be one of auto, standard, scan, got 'lstm'"),
    ({"input_names": ["a"]}, ValueError, r"export: input_names should be 3 names, for x, h0, c0; got \['a'\]"),
    ({"input_names": "xhc"}, ValueError, "export: input_names should be 3 names, for x, h0, c0; got 'xhc'"),
    (
        {"output_names": ["x", "h", "c"]},
        ValueError,
        "export: inputs and outputs should have names, each another one, got x, h0, c0, x, h, c; give others as input_names or",
    ),
    ({"output_names": ["y", "", "c"]}, ValueError, "export: inputs and outputs should have names, each another one"),
]


@pytest.mark.parametrize(("options", "error", "message"), OF_ARGUMENTS)
def test_arguments_that_cannot_be_are_refused(options: dict[str, Any], error: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        anyrnn.onnx.export(anyrnn.Recurrent("lstm", 3, 5), tmp_path / "model.onnx", states=True, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("thing", [torch.nn.LSTM(3, 5), anyrnn.torch.LSTMCell(3, 5), "lstm", anyrnn.cells.lstm])
def test_what_is_no_layer_is_refused(thing: Any) -> None:
    message = f"export: the layer should be an anyrnn.Recurrent or a layer of anyrnn.torch, got a {type(thing).__name__}"
    with pytest.raises(TypeError, match=re.escape(message)):
        anyrnn.onnx.export(thing)


def test_dtypes_without_a_node_are_refused() -> None:
    with pytest.raises(TypeError, match=r"export: the layer: parameters should be float32 or float64, weight_ih_l0 is torch"):
        anyrnn.onnx.export(anyrnn.torch.LSTM(3, 5).to(torch.bfloat16))


def test_parameters_that_do_not_fit_are_refused() -> None:
    layer = anyrnn.Recurrent("lstm", 3, 5)
    layer.parameters["weight_ih_l0"] = np.zeros((20, 4), np.float32)
    with pytest.raises(ValueError, match=r"parameter weight_ih_l0 should be float32 \(20, 3\), got float32 \(20, 4\)"):
        anyrnn.onnx.export(layer)


def test_standard_nodes_that_there_are_not_are_refused() -> None:
    with pytest.raises(
        UnsupportedError, match="cell 'mgu' does not compute what an RNN, GRU or LSTM node does; nodes='scan' writes"
    ):
        anyrnn.onnx.export(anyrnn.Recurrent("mgu", 3, 5), nodes="standard")
    layer = anyrnn.Recurrent("lstm", 3, 5, clip_preactivation=0.1, dtype="float64")
    with pytest.raises(
        UnsupportedError, match="cell 'lstm' has bounds or activations with numbers that float32, which nodes have"
    ):
        anyrnn.onnx.export(layer, nodes="standard")


def test_random_choices_are_declined_by_name() -> None:
    network = anyrnn.Recurrent("mgu", 3, 5, input_dropout=0.5).training_network
    with pytest.raises(UnsupportedError, match="cell 'mgu': scale cannot be exported: it belongs to random choices"):
        write_network(Writer(np.dtype(np.float32)), network, ["x"], ["w"] * 4, own=[np.zeros((1, 1, 5), np.float32)])


def test_names_that_meet_ask_for_others() -> None:
    @cell
    def meets(x, h, output: Step(1)):
        h = tanh(affine("h", x, h, output))
        return h, State(h=h)

    layer = anyrnn.Recurrent(meets, 3, 5)
    with pytest.raises(ValueError, match="should have names, each another one, got x, output, output, h_n; give others"):
        anyrnn.onnx.export(layer)
    anyrnn.onnx.export(layer, output_names=["y", "h_n"])


@pytest.mark.parametrize(("missing", "call"), [
    ("onnx", lambda: anyrnn.onnx.export(anyrnn.Recurrent("lstm", 3, 5))),
    ("onnx", anyrnn.onnx.translations),
    ("onnxscript.ir", anyrnn.onnx.translations),
])  # fmt: skip
def test_packages_that_are_missing_are_named(missing: str, call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError, match=r'pip install "anyrnn\['):
        call()


def test_what_is_for_gradients_alone_is_left_out() -> None:
    @cell
    def clipped(x, h):
        h = tanh(clip_gradient(affine("h", x, h), -1.0, 1.0))
        return h, State(h=h)

    model = anyrnn.onnx.export(anyrnn.Recurrent(clipped, 3, 5))
    assert "Scan" in [node.op_type for node in model.graph.node]


def test_a_whole_model_is_sent_to_torchs_exporter() -> None:
    model = torch.nn.Sequential(anyrnn.torch.GRU(3, 5))
    with pytest.raises(TypeError, match=r"got a Sequential.*custom_translation_table=anyrnn\.onnx\.translations\(\)"):
        anyrnn.onnx.export(model)
