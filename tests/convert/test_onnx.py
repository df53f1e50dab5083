"""ONNX models beside onnxruntime, through files."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import anyrnn
from anyrnn import convert, onnx, runtime
from anyrnn.cli import main
from anyrnn.convert import checking
from tests.runtime.test_networks import draw, given, small
from tests.zoo import EVERY

GOLDEN = sorted((Path(__file__).parent.parent / "onnx" / "golden").glob("*.onnx"))
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_models_of_torch_are_within_the_budget(path, tmp_path, capsys):
    assert main(["convert", str(path), str(tmp_path / "a.safetensors"), "--check"]) == 0
    assert "within the error budget" in capsys.readouterr().out
    assert "onnxruntime" in str(convert.parity(path, convert.load(path)))
    assert repr(runtime.load(tmp_path / "a.safetensors")) == repr(convert.load(path))


@pytest.mark.parametrize("name", EVERY)
def test_networks_go_to_onnx_and_come_to_onnxruntime(name, tmp_path):
    network = small(name)
    convert.save(network, tmp_path / "a.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"), providers=["CPUExecutionProvider"])
    for shape in ((9, 3), (1, 1), (4, 7)):
        x = given(network, *shape)
        theirs = session.run(None, x)[0]
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


def test_a_network_that_is_not_the_models_is_over_the_budget(tmp_path):
    layer = anyrnn.Recurrent("rnn_tanh", 5, 7, seed=0)
    onnx.export(layer, tmp_path / "a.onnx")
    assert convert.parity(tmp_path / "a.onnx", convert.load(tmp_path / "a.onnx")).within
    found = convert.load(tmp_path / "a.onnx")
    parameters = {**found.layers[0].arrays, "bias_hh_l0": found.layers[0].arrays["bias_hh_l0"] + 0.01}
    changed = runtime.Recurrent(found.layers[0].name, found.layers[0].inputs, found.layers[0].network, parameters)
    wrong = runtime.Network(found.inputs, [changed])
    assert not convert.parity(tmp_path / "a.onnx", wrong).within
    other = runtime.Network(5, [runtime.Recurrent.of("other", ["x"], layer)])
    with pytest.raises(ValueError, match=r"a.onnx: the network was not made of this model"):
        convert.parity(tmp_path / "a.onnx", other)


def test_what_a_model_says_itself_cannot_be_told_of_it(tmp_path):
    onnx.export(anyrnn.Recurrent("gru", 5, 7, seed=0, batch_first=True), tmp_path / "a.onnx")
    network = convert.load(tmp_path / "a.onnx", backend="reference")
    assert network.batch_first
    assert network.layers[0].runner.backend == "reference"
    with pytest.raises(ValueError, match=r"a.onnx tells by itself how it is made \(an ONNX file\): leave out cell, layers"):
        convert.load(tmp_path / "a.onnx", cell="lstm", layers=2)
    with pytest.raises(ValueError, match="backend should be one of auto, llvm, reference, got 'nonsense'"):
        convert.load(tmp_path / "a.onnx", backend="nonsense")


def test_lengths_that_a_model_fixes_are_not_lost_in_silence(tmp_path):
    from onnx import TensorProto, helper, numpy_helper, save

    given = {"W": draw(1, 5, 3), "R": draw(1, 5, 5), "n": np.array([3, 1], np.int32)}
    graph = helper.make_graph(
        [helper.make_node("RNN", ["x", "W", "R", "", "n"], ["y"], hidden_size=5)],
        "fixed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 1, 2, 5])],
        [numpy_helper.from_array(array, name) for name, array in given.items()],
    )
    save(helper.make_model(graph), tmp_path / "a.onnx")
    with pytest.raises(ValueError, match=r"a.onnx: its samples have lengths that the model fixes; anyrnn.onnx.read runs it"):
        convert.load(tmp_path / "a.onnx")


class Own(runtime.Layer):
    kind = "own"

    def gives(self, *given):
        return given[0]

    def run(self, call, *given):
        return given[0]


def test_layers_of_ones_own_are_refused_by_name(tmp_path):
    network = runtime.Network(5, [Own("mine", ["x"])])
    assert network.run(draw(2, 1, 5))[0].shape == (2, 1, 5)
    with pytest.raises(ValueError, match="mine: a Own is no layer that files hold"):
        network.save(tmp_path / "a.safetensors")
    with pytest.raises(anyrnn.UnsupportedError, match="export: mine, a Own, has no nodes in ONNX"):
        onnx.export(network)


def with_lengths(nodes, outputs, classes=None):
    """A model whose samples have lengths that are an input."""
    random = np.random.default_rng(0)
    arrays = {"W": random.normal(size=(1, 5, 3)), "R": random.normal(size=(1, 5, 5))}
    constants = [helper.make_tensor("axis", TensorProto.INT64, [1], [0])]
    constants += [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["T", "N", 3])
    if classes:
        constants.append(numpy_helper.from_array(random.normal(size=(classes, 3)).astype(np.float32), "E"))
        x = helper.make_tensor_value_info("x", TensorProto.INT64, [None, None])
    inputs = [x, *(helper.make_tensor_value_info(name, TensorProto.INT32, [None]) for name in ("len", "other"))]
    used = [value for value in inputs if any(value.name in node.input for node in nodes)]
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "g", used, given, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


RNN = helper.make_node("RNN", ["x", "W", "R", "", "len"], ["y", "h"], hidden_size=5)


@pytest.mark.parametrize("classes", [None, 100])
def test_lengths_that_are_an_input_are_compared_as_lengths(classes, tmp_path, capsys):
    nodes = [RNN]
    if classes:
        of_classes = helper.make_node("RNN", ["e", "W", "R", "", "len"], ["y", "h"], hidden_size=5)
        nodes = [helper.make_node("Gather", ["E", "x"], ["e"]), of_classes]
    save(with_lengths(nodes, ["y", "h"], classes), tmp_path / "a.onnx")
    model = onnx.read(tmp_path / "a.onnx")
    assert model.lengths == ["len"]
    drawn = checking._drawn(model, 50, 13, 0)
    assert set(drawn["len"].tolist()) > {1, 13}
    assert drawn["x"].shape[:2] == (13, 50)
    assert main(["convert", str(tmp_path / "a.onnx"), str(tmp_path / "a.safetensors"), "--check"]) == 0
    assert "within the error budget" in capsys.readouterr().out


def test_lengths_that_a_network_cannot_have_are_refused(tmp_path):
    mean = helper.make_node("ReduceMean", ["y", "axis"], ["m"], keepdims=0)
    second = helper.make_node("RNN", ["x", "W", "R", "", "other"], ["z"], hidden_size=5)
    without = helper.make_node("RNN", ["x", "W", "R"], ["z"], hidden_size=5)
    for nodes, outputs, message in (
        ([RNN, mean], ["m"], "looks at all steps, whatever the lengths in 'len'"),
        ([RNN, without], ["y", "z"], "looks at all steps, whatever the lengths in 'len'"),
        ([RNN, second], ["y", "z"], r"its layers have lengths of their own \(len, other\)"),
    ):
        save(with_lengths(nodes, outputs), tmp_path / "a.onnx")
        onnx.read(tmp_path / "a.onnx")
        with pytest.raises(ValueError, match=message):
            convert.load(tmp_path / "a.onnx")
