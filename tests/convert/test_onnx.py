"""ONNX models beside onnxruntime, through files."""

from pathlib import Path

import numpy as np
import pytest

import anyrnn
from anyrnn import convert, onnx, runtime
from anyrnn.cli import main
from tests.runtime.test_networks import draw, small

GOLDEN = sorted((Path(__file__).parent.parent / "onnx" / "golden").glob("*.onnx"))
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_models_of_torch_are_within_the_budget(path, tmp_path, capsys):
    assert main(["convert", str(path), str(tmp_path / "a.safetensors"), "--check"]) == 0
    assert "within the error budget" in capsys.readouterr().out
    assert "onnxruntime" in str(convert.parity(path, convert.load(path)))
    assert repr(runtime.load(tmp_path / "a.safetensors")) == repr(onnx.read(path).network)


@pytest.mark.parametrize("name", anyrnn.cells.names())
def test_networks_go_to_onnx_and_come_to_onnxruntime(name, tmp_path):
    network = small(name)
    convert.save(network, tmp_path / "a.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"), providers=["CPUExecutionProvider"])
    for shape in ((9, 3), (1, 1), (4, 7)):
        x = np.random.default_rng(1).integers(0, 11, shape)
        (given,) = session.get_inputs()
        theirs = session.run(None, {given.name: x})[0]
        ours = network.run(x)[0]
        assert np.abs(theirs - ours).max() < 1e-5 * np.abs(ours).max()


@pytest.mark.parametrize("name", ["lstm", "gru", "gru_before", "rnn_tanh", "rnn_relu", "lstm_peephole"])
def test_standard_cells_come_back_from_onnx(name, tmp_path):
    layer = anyrnn.Recurrent(name, 5, 7, 2, bidirectional=True, seed=0)
    network = runtime.Network(5, [runtime.Recurrent.of("rnn", ["x"], layer)])
    convert.save(network, tmp_path / "a.onnx")
    found = convert.load(tmp_path / "a.onnx")
    x = draw(9, 3, 5)
    assert np.abs(found.run(x)[0] - network.run(x)[0]).max() < 1e-6
    assert convert.parity(tmp_path / "a.onnx", found).within
    assert "cell" in convert.inspect(tmp_path / "a.onnx")
